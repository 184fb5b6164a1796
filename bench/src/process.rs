//! What a process and its descendants cost, as `/proc` and its clocks have it.

use std::{fs, io, time::Duration};

use nix::{
    time::{clock_getcpuclockid, clock_gettime},
    unistd::Pid,
};

/// CPU time and memory at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cost {
    /// User and system time.
    pub cpu: Duration,
    /// Resident memory.
    pub rss_bytes: u64,
    /// How many processes.
    pub processes: usize,
}

/// Of the process and all that descend from it.
pub fn cost(pid: u32) -> io::Result<Cost> {
    let mut sum = Cost::default();
    let mut pids = vec![pid];
    while let Some(pid) = pids.pop() {
        // A descendant may have gone since it was listed; the process itself may not.
        match of_one(pid) {
            Ok((cpu, rss)) => {
                sum.cpu += cpu;
                sum.rss_bytes += rss;
                sum.processes += 1;
            }
            Err(error) if sum.processes == 0 => return Err(error),
            Err(_) => continue,
        }
        for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            pids.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    }
    Ok(sum)
}

fn of_one(pid: u32) -> io::Result<(Duration, u64)> {
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid} has an unknown form"));
    // User and system time of all threads, dead ones included. `stat` has the same in hundredths of a second.
    let clock = clock_getcpuclockid(Pid::from_raw(i32::try_from(pid).map_err(io::Error::other)?))?;
    let cpu = Duration::from(clock_gettime(clock)?);
    let rss = rss(&fs::read_to_string(format!("/proc/{pid}/status"))?).ok_or_else(malformed)?;
    Ok((cpu, rss))
}

fn rss(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_kilobytes() {
        assert_eq!(rss("Name:\tx\nVmRSS:\t   1024 kB\n"), Some(1024 * 1024));
    }

    #[test]
    fn the_cost_of_this_process_is_something() {
        let cost = cost(std::process::id()).expect("it lives");
        assert!(cost.cpu > Duration::ZERO && cost.rss_bytes > 100_000 && cost.processes >= 1);
    }
}
