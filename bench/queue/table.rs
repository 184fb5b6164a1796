//! What was measured, for people: each run as it ends, then medians and ratios.

use super::subject::Measured;

impl Measured {
    fn rate(&self) -> f64 {
        self.jobs / self.seconds
    }

    fn per_cpu_second(&self) -> f64 {
        self.jobs / self.cpu
    }
}

pub(crate) fn one(round: u32, name: &str, measured: &Measured) {
    println!(
        "round {}: {name}: {:.0} jobs in {:.2} s, {:.2} s of CPU, {:.1} MB",
        round + 1,
        measured.jobs,
        measured.seconds,
        measured.cpu,
        measured.rss / 1e6,
    );
}

fn median(runs: &[Measured], of: impl Fn(&Measured) -> f64) -> f64 {
    let mut values: Vec<f64> = runs.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

pub(crate) fn all(subjects: Vec<(&'static str, Vec<Measured>)>) {
    println!(
        "\n{:<32} {:>9} {:>14} {:>12} {:>9}",
        "median of all rounds", "jobs/s", "jobs/CPU-s", "CPU µs/job", "RSS MB"
    );
    for (name, runs) in &subjects {
        println!(
            "{name:<32} {:>9.0} {:>14.0} {:>12.1} {:>9.1}",
            median(runs, Measured::rate),
            median(runs, Measured::per_cpu_second),
            median(runs, |run| run.cpu * 1e6 / run.jobs),
            median(runs, |run| run.rss / 1e6),
        );
    }
    let find = |part: &str| subjects.iter().find(|(name, _)| name.contains(part)).map(|(_, runs)| runs.as_slice());
    // Of the same round, so that what else the machine did weighs on both.
    let ratio = |what: &str, of: &str, to: &str, value: fn(&Measured) -> f64| {
        let (Some(of), Some(to)) = (find(of), find(to)) else { return };
        let mut ratios: Vec<f64> = of.iter().zip(to).map(|(of, to)| value(of) / value(to)).collect();
        ratios.sort_by(f64::total_cmp);
        let shown: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
        println!("{what}: {:.2} (rounds: {})", ratios[ratios.len() / 2], shown.join(", "));
    };
    println!();
    ratio("jobs/s, shardvisor to raw lapin (bar 0.7)", "RabbitMQ", "raw", Measured::rate);
    ratio("jobs/CPU-s, shardvisor to BullMQ (bar 3)", "RabbitMQ", "BullMQ", Measured::per_cpu_second);
}
