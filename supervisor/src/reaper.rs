//! Collects every child that has ended. One SIGCHLD may stand for many deaths, so it asks until there are none.

use nix::{
    errno::Errno,
    sys::{
        signal::kill,
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

use crate::exit_status::Exit;

/// All deaths so far. `living` are the children that are believed to live.
pub(crate) fn reap(living: &[i32]) -> Vec<(i32, Exit)> {
    let mut ends = Vec::new();
    let mut nameless = false;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) => ends.push((pid.as_raw(), Exit::Code(code))),
            Ok(WaitStatus::Signaled(pid, signal, _)) => ends.push((pid.as_raw(), Exit::Signal(signal as i32))),
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => break,
            // Reaped, but by a signal that has no name (a real-time one): the pid is lost with it.
            Err(Errno::EINVAL) => nameless = true,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => {
                tracing::error!(%error, "cannot wait for children");
                break;
            }
        }
    }
    if nameless {
        let gone = |pid: &&i32| {
            !ends.iter().any(|(other, _)| other == *pid) && kill(Pid::from_raw(**pid), None) == Err(Errno::ESRCH)
        };
        let lost: Vec<i32> = living.iter().filter(gone).copied().collect();
        ends.extend(lost.into_iter().map(|pid| (pid, Exit::Signal(0))));
    }
    ends
}

#[cfg(test)]
mod tests {
    use std::{
        process::{Child, Command},
        time::{Duration, Instant},
    };

    use super::*;

    fn sleeper() -> Child {
        Command::new("/bin/sleep").arg("60").spawn().unwrap()
    }

    fn reap_all(children: &[i32]) -> Vec<(i32, Exit)> {
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut ends = Vec::new();
        while ends.len() < children.len() {
            assert!(Instant::now() < deadline, "only {ends:?} of {children:?}");
            ends.extend(reap(children));
            std::thread::yield_now();
        }
        ends.sort_by_key(|(pid, _)| *pid);
        ends
    }

    /// Field report R44. One test, since a process has one set of children.
    #[test]
    fn no_death_is_missed_however_many_come_at_once_and_whatever_ended_them() {
        let mut pids: Vec<i32> = (0..20).map(|_| sleeper().id() as i32).collect();
        pids.sort_unstable();
        for pid in &pids {
            kill(Pid::from_raw(*pid), nix::sys::signal::SIGKILL).unwrap();
        }
        let killed: Vec<(i32, Exit)> = pids.iter().map(|pid| (*pid, Exit::Signal(9))).collect();
        assert_eq!(reap_all(&pids), killed);

        let pid = sleeper().id() as i32;
        let real_time = (libc::SIGRTMIN() + 3).to_string();
        assert!(Command::new("/bin/sh").args(["-c", &format!("kill -{real_time} {pid}")]).status().unwrap().success());
        assert_eq!(reap_all(&[pid]), [(pid, Exit::Signal(0))]);
        assert_eq!(reap(&[]), []);
    }
}
