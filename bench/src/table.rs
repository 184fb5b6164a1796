//! The figures side by side, and each peer's divided by the daemon's.

use crate::measure::Measured;

type Figure = (&'static str, fn(&Measured) -> f64, fn(f64) -> String);

const FIGURES: [Figure; 11] = [
    ("all connected after", |m| m.start.as_secs_f64(), |v| format!("{v:.2} s")),
    ("CPU until then", |m| m.start_cpu.as_secs_f64(), |v| format!("{v:.2} s")),
    ("memory, idle (RSS)", |m| m.rss_idle as f64, megabytes),
    ("memory, after load (RSS)", |m| m.rss_loaded as f64, megabytes),
    ("memory, after a burst (RSS)", |m| m.rss_burst.unwrap_or_default() as f64, megabytes),
    ("CPU, idle (of a core)", |m| m.idle_cores, |v| format!("{:.2} %", v * 100.0)),
    ("CPU an echo, all", |m| m.cpu_per_echo.as_secs_f64(), milliseconds),
    ("CPU an echo, without idle", |m| m.net_cpu_per_echo.as_secs_f64(), milliseconds),
    ("latency p50", |m| m.summary.p50_ms / 1000.0, milliseconds),
    ("latency p99", |m| m.summary.p99_ms / 1000.0, milliseconds),
    ("latency max", |m| m.summary.max_ms / 1000.0, milliseconds),
];

fn megabytes(bytes: f64) -> String {
    format!("{:.1} MB", bytes / 1e6)
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.2} ms", seconds * 1e3)
}

/// A table in Markdown. With `base`, each figure of the others is also given as a multiple of its.
pub fn table(measured: &[Measured], base: Option<&Measured>) -> String {
    let mut rows = vec![row("", measured.iter().map(|m| m.name.to_owned()))];
    rows.push(format!("|---|{}", "---:|".repeat(measured.len())));
    for (name, of, shown) in FIGURES {
        if measured.iter().all(|m| of(m) == 0.0) && name.contains("burst") {
            continue;
        }
        rows.push(row(
            name,
            measured.iter().map(|m| {
                let ratio = base.filter(|base| base.name != m.name && of(base) > 0.0);
                let ratio = ratio.map(|base| format!(" ({:.1}×)", of(m) / of(base))).unwrap_or_default();
                format!("{}{ratio}", shown(of(m)))
            }),
        ));
    }
    rows.push(row("processes", measured.iter().map(|m| m.processes.to_string())));
    rows.push(row(
        "messages, answered once / lost / doubled / out of order",
        measured.iter().map(|m| {
            let s = &m.summary;
            format!("{}, {} / {} / {} / {}", s.received, s.answered, s.lost, s.duplicated, s.out_of_order)
        }),
    ));
    rows.join("\n")
}

fn row(name: &str, cells: impl Iterator<Item = String>) -> String {
    format!("| {name} | {} |", cells.collect::<Vec<_>>().join(" | "))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use simulators::traffic::Summary;

    use super::*;

    fn measured(name: &'static str, rss_idle: u64) -> Measured {
        Measured {
            name,
            processes: 1,
            start: Duration::from_secs(2),
            start_cpu: Duration::from_secs(1),
            rss_idle,
            rss_loaded: rss_idle,
            rss_burst: None,
            idle_cores: 0.0,
            cpu_per_echo: Duration::from_micros(500),
            net_cpu_per_echo: Duration::from_micros(400),
            summary: Summary { received: 3, answered: 3, ..Summary::default() },
        }
    }

    #[test]
    fn peers_are_shown_as_multiples_of_the_base_and_nothing_is_divided_by_zero() {
        let all = [measured("peer", 100_000_000), measured("us", 25_000_000)];
        let table = table(&all, Some(&all[1]));
        assert!(table.contains("| memory, idle (RSS) | 100.0 MB (4.0×) | 25.0 MB |"), "{table}");
        assert!(table.contains("| CPU, idle (of a core) | 0.00 % | 0.00 % |"), "{table}");
    }
}
