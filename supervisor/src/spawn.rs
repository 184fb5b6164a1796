//! Starts a shard: this program again, tied to this process's life, with a link and a lock and nothing else inherited.
//!
//! Three traps are closed here. The death signal follows the *thread* that forked, so only the main thread may. The
//! parent may die between fork and arming, so the child looks at who its parent is afterwards. And an inherited
//! descriptor keeps a socket alive after its owner's death, so every other one is closed at exec.
#![allow(unsafe_code)]

use std::{
    io,
    os::{
        fd::{AsRawFd, BorrowedFd, RawFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    path::PathBuf,
    process::{Command, Stdio},
};

use nix::{
    sys::{
        prctl,
        signal::{SigSet, Signal},
    },
    unistd::{Pid, getpid, getppid, gettid},
};

use crate::{
    lock::LockError,
    spec::{Birth, ChildSpec, INCARNATION_ENV, LIFE_ENV, LINK_FD_ENV, LOCK_FD_ENV, SHARD_INDEX_ENV},
    succession::{LINK_ENV, spoken, this_file},
    systemd,
};

/// A running child.
#[derive(Debug)]
pub struct Started {
    /// Its process.
    pub pid: i32,
    /// The primary's end of its link.
    pub link: UnixStream,
}

/// A child could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// No link could be made.
    #[error("cannot make a link for slot {slot}")]
    Link {
        /// For which slot.
        slot: u32,
        /// What the kernel said.
        source: io::Error,
    },
    /// The slot's lock file does not take the life's number.
    #[error("cannot number the next life of slot {slot}")]
    Lock {
        /// For which slot.
        slot: u32,
        /// What went wrong.
        source: LockError,
    },
    /// Fork or exec failed.
    #[error("cannot start {} for slot {slot}", program.display())]
    Exec {
        /// For which slot.
        slot: u32,
        /// What was to be executed.
        program: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Starts a child for a slot.
///
/// # Panics
/// On any thread but the main one: the child would die with that thread.
pub fn spawn(spec: &ChildSpec, birth: Birth, lock: Option<BorrowedFd<'_>>) -> Result<Started, SpawnError> {
    let slot = birth.slot;
    assert_eq!(gettid(), getpid(), "children are started from the main thread alone");
    let (ours, theirs) = UnixStream::pair().map_err(|source| SpawnError::Link { slot, source })?;
    let replaced = spec.or_itself && !spec.program.exists();
    let mut command = if replaced { Command::new(this_file()) } else { Command::new(&spec.program) };
    command.args(&spec.args).stdin(Stdio::null());
    // A signal from the terminal or to the group is for the primary; what it means for the shards is the primary's word.
    command.process_group(0);
    if let Some(arg0) = &spec.arg0 {
        command.arg0(arg0);
    }
    for name in
        systemd::ENVIRONMENT.iter().map(std::ffi::OsStr::new).chain(spec.env_remove.iter().map(|n| n.as_os_str()))
    {
        command.env_remove(name);
    }
    command.envs(spec.env.iter().map(|(name, value)| (name, value)));
    command.env(SHARD_INDEX_ENV, slot.to_string());
    command.env(LINK_ENV, spoken());
    command.env(INCARNATION_ENV, birth.incarnation.to_string()).env(LIFE_ENV, birth.life.to_string());
    let link = theirs.as_raw_fd();
    command.env(LINK_FD_ENV, link.to_string());
    let lock = lock.map(|fd| fd.as_raw_fd());
    match lock {
        Some(lock) => command.env(LOCK_FD_ENV, lock.to_string()),
        None => command.env_remove(LOCK_FD_ENV),
    };
    let parent = getpid();
    // SAFETY: between fork and exec the closure makes system calls only; it neither allocates nor takes a lock. The
    // descriptors it names are open in this process until `spawn` has returned, so they are open in the child too.
    unsafe {
        command.pre_exec(move || {
            arm(parent)?;
            SigSet::empty().thread_set_mask()?;
            close_all_at_exec();
            keep_at_exec(link)?;
            lock.map_or(Ok(()), keep_at_exec)
        });
    }
    // The handle is dropped at once: the reaper waits for all children alike.
    let child = command.spawn().map_err(|source| SpawnError::Exec { slot, program: spec.program.clone(), source })?;
    Ok(Started { pid: child.id() as i32, link: ours })
}

/// Ties this process to its parent's life; if the parent is gone already, this process is too.
fn arm(parent: Pid) -> io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    if getppid() != parent {
        // SAFETY: ends this process, a child before exec, without running anything that belongs to the parent.
        unsafe { libc::_exit(1) }
    }
    Ok(())
}

/// Whatever this process was itself started with, beyond the standard three.
fn close_all_at_exec() {
    // SAFETY: marks descriptors and touches no memory. A kernel without the call (before 5.11) leaves those open that
    // somebody left open for this process; its own are marked one by one.
    unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

fn keep_at_exec(fd: RawFd) -> io::Result<()> {
    // SAFETY: clears a flag of a descriptor that is open in this process; no memory is involved.
    match unsafe { libc::fcntl(fd, libc::F_SETFD, 0) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::{env, io::Read, sync::mpsc, time::Duration};

    use nix::sys::signal::kill;

    use super::*;

    /// Field report R43.
    #[test]
    #[should_panic(expected = "main thread")]
    fn a_child_is_never_started_from_a_thread_that_may_end() {
        let _ = spawn(&ChildSpec::program("/bin/true", [""; 0]), Birth { slot: 0, incarnation: 1, life: 1 }, None);
    }

    /// Contract: P5. Field report R43.
    #[test]
    fn a_child_whose_parent_died_between_fork_and_arming_exits() {
        const NAME: &str = "spawn::tests::a_child_whose_parent_died_between_fork_and_arming_exits";
        const ROLE: &str = "SUPERVISOR_TEST_DYING_PARENT";
        if env::var_os(ROLE).is_some() {
            let parent = getpid();
            let mut command = Command::new("/bin/sleep");
            command.arg("60");
            // SAFETY: system calls alone.
            unsafe {
                command.pre_exec(move || {
                    kill(parent, Signal::SIGKILL)?;
                    while getppid() == parent {
                        libc::usleep(1000);
                    }
                    arm(parent)
                });
            }
            let _ = command.spawn();
            return;
        }
        let mut parent = Command::new(env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env(ROLE, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // The child holds the pipe as long as it lives, and it would live for a minute.
        let mut pipe = parent.stdout.take().unwrap();
        let (ended, end) = mpsc::channel();
        std::thread::spawn(move || ended.send(pipe.read_to_string(&mut String::new()).is_ok()));
        assert_eq!(end.recv_timeout(Duration::from_secs(20)), Ok(true), "the child outlives its parent");
        assert!(!parent.wait().unwrap().success(), "the parent was killed");
    }
}
