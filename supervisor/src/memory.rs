//! A child's resident memory, and whether the kernel has killed for want of it.

use std::{fs, path::PathBuf};

use nix::unistd::{SysconfVar, sysconf};

/// Resident bytes of a process; `None` when it is gone.
pub fn resident(pid: i32) -> Option<u64> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten()? as u64;
    Some(pages * page)
}

/// The kernel's count of processes that it killed for memory in this control group.
#[derive(Debug)]
pub(crate) struct OomKills {
    events: Option<PathBuf>,
    seen: u64,
}

impl OomKills {
    /// The control group of this process (version 2); without one, nothing is ever seen.
    pub(crate) fn here() -> Self {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let events = own_group(&own).map(|group| PathBuf::from(format!("/sys/fs/cgroup{group}/memory.events")));
        let mut kills = Self { events, seen: 0 };
        kills.rose();
        kills
    }

    /// It has risen since the last look.
    pub(crate) fn rose(&mut self) -> bool {
        let text = self.events.as_ref().and_then(|path| fs::read_to_string(path).ok());
        let count = text.as_deref().and_then(oom_kills).unwrap_or(self.seen);
        count > std::mem::replace(&mut self.seen, count)
    }
}

fn own_group(cgroup: &str) -> Option<&str> {
    cgroup.lines().find_map(|line| line.strip_prefix("0::")).map(|group| group.trim_end_matches('/'))
}

fn oom_kills(events: &str) -> Option<u64> {
    events.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_of_a_living_process_is_more_than_a_page_and_of_none_unknown() {
        assert!(resident(std::process::id() as i32).unwrap() > 100_000);
        assert_eq!(resident(i32::MAX), None);
    }

    /// Field report R46.
    #[test]
    fn a_rise_of_the_kernels_count_is_seen_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("memory.events");
        let write =
            |count: u32| fs::write(&path, format!("low 0\noom 9\noom_kill {count}\noom_group_kill 7\n")).unwrap();
        write(3);
        let mut kills = OomKills { events: Some(path.clone()), seen: 3 };
        assert!(!kills.rose());
        write(4);
        assert!(kills.rose());
        assert!(!kills.rose());
        fs::remove_file(&path).unwrap();
        assert!(!kills.rose());
    }

    #[test]
    fn the_group_is_the_one_of_the_second_version() {
        assert_eq!(
            own_group("1:name=systemd:/x\n0::/system.slice/shardvisor.service\n"),
            Some("/system.slice/shardvisor.service")
        );
        assert_eq!(own_group("0::/\n"), Some(""));
        assert_eq!(own_group("4:memory:/a\n"), None);
    }
}
