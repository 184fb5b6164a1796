//! What this process takes of the machine.

use serde::{Deserialize, Serialize};
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

/// Memory and CPU of a process.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Resident memory.
    pub rss_bytes: u64,
    /// CPU time since its start, user and system, all threads.
    pub cpu_seconds: f64,
}

/// Reads the usage of this process; keeps what makes the next reading cheap.
#[derive(Debug)]
pub struct UsageSampler {
    system: Option<System>,
    pid: Pid,
}

impl Default for UsageSampler {
    fn default() -> Self {
        Self { system: System::new().ok(), pid: Pid::from_u32(std::process::id()) }
    }
}

impl UsageSampler {
    /// As it is now. `None` without a readable /proc.
    pub fn sample(&mut self) -> Option<Usage> {
        let what = ProcessRefreshKind::nothing().with_memory().with_cpu();
        let system = self.system.as_mut()?;
        system.refresh_processes_specifics(ProcessesToUpdate::Some(&[self.pid]), true, what);
        let process = system.process(self.pid)?;
        Some(Usage { rss_bytes: process.memory(), cpu_seconds: process.accumulated_cpu_time() as f64 / 1000.0 })
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn memory_and_cpu_are_those_of_this_process() {
        let mut sampler = UsageSampler::default();
        let before = sampler.sample().expect("/proc");
        let block = vec![1_u8; 32 << 20];
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut after = sampler.sample().expect("/proc");
        // Counted in ticks of 10 ms, so it takes a moment of real work to show.
        while after.cpu_seconds <= before.cpu_seconds {
            assert!(Instant::now() < deadline, "CPU time stands still");
            std::hint::black_box(block.iter().map(|&b| u64::from(b)).sum::<u64>());
            after = sampler.sample().expect("/proc");
        }
        assert!(after.rss_bytes >= before.rss_bytes + (30 << 20), "{before:?} {after:?}");
    }
}
