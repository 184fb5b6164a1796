//! One instance for each slot of a data directory: a lock file held by the primary and by the shard it was handed to.
//!
//! Both hold the same open file, so the lock ends when both are dead and not before: whoever gets it knows that its
//! predecessor's shard is gone too, and may take its leases over at once. The file also counts the slot's lives.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::OpenOptionsExt,
    },
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use crate::{
    clock::wall_ms,
    link::{FdError, inherited},
    spec::LOCK_FD_ENV,
};

/// How long a holder that is about to die is waited for, unless said otherwise.
pub const DEFAULT_WAIT: Duration = Duration::from_secs(3);

/// The lock of a slot.
#[derive(Debug)]
pub struct SlotLock {
    file: File,
    path: PathBuf,
    slot: u32,
}

/// The lock of a slot cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another instance has it.
    #[error("slot {slot} of this data directory is in use by {} ({})", Holder(*pid), path.display())]
    Held {
        /// Which slot.
        slot: u32,
        /// The holder, as far as known.
        pid: Option<i32>,
        /// The lock file.
        path: PathBuf,
    },
    /// The file cannot be opened, locked or written.
    #[error("cannot use the lock file {}", path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

struct Holder(Option<i32>);

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(pid) => write!(f, "process {pid}"),
            None => f.write_str("another process"),
        }
    }
}

impl SlotLock {
    /// Takes the lock of a slot, and waits for up to `wait` for a holder that is about to end.
    pub fn acquire(data_dir: &Path, slot: u32, wait: Duration) -> Result<Self, LockError> {
        let path = data_dir.join(format!("slot-{slot}.lock"));
        let io = |source| LockError::Io { path: path.clone(), source };
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(io)?;
        let deadline = Instant::now() + wait;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(Duration::from_millis(20)),
                Err(TryLockError::WouldBlock) => {
                    let pid = read(&mut file).ok().and_then(|(pid, _)| pid);
                    return Err(LockError::Held { slot, pid, path });
                }
                Err(TryLockError::Error(source)) => return Err(io(source)),
            }
        }
        let mut lock = Self { file, path, slot };
        let (_, incarnation) = read(&mut lock.file).map_err(|source| lock.failed(source))?;
        lock.write(incarnation)?;
        Ok(lock)
    }

    /// Who holds a slot, if anybody does. Looking takes nothing away from whoever wants it.
    pub fn holder(data_dir: &Path, slot: u32) -> Result<Option<i32>, LockError> {
        let path = data_dir.join(format!("slot-{slot}.lock"));
        let io = |source| LockError::Io { path: path.clone(), source };
        let mut file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(io)?,
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => Ok(read(&mut file).map_err(io)?.0),
            Err(TryLockError::Error(source)) => Err(io(source)),
        }
    }

    /// The lock that the primary handed to this process, to be held until it ends.
    pub fn inherited() -> Result<Option<std::os::fd::OwnedFd>, FdError> {
        inherited(LOCK_FD_ENV)
    }

    /// Which slot's it is.
    pub fn slot(&self) -> u32 {
        self.slot
    }

    /// The number of the slot's next life: above all earlier ones, also when the file was lost meanwhile.
    pub fn next_incarnation(&mut self) -> Result<u64, LockError> {
        let (_, last) = read(&mut self.file).map_err(|source| self.failed(source))?;
        let next = wall_ms().max(last + 1);
        self.write(next)?;
        Ok(next)
    }

    fn write(&mut self, incarnation: u64) -> Result<(), LockError> {
        let text = format!("{}\n{incarnation}\n", std::process::id());
        let mut replace = || {
            self.file.rewind()?;
            self.file.write_all(text.as_bytes())?;
            self.file.set_len(text.len() as u64)
        };
        replace().map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> LockError {
        LockError::Io { path: self.path.clone(), source }
    }
}

impl AsFd for SlotLock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The holder's pid and the slot's last incarnation.
fn read(file: &mut File) -> io::Result<(Option<i32>, u64)> {
    let mut text = String::new();
    file.rewind()?;
    file.take(200).read_to_string(&mut text)?;
    let mut lines = text.lines();
    let pid = lines.next().and_then(|line| line.parse().ok());
    Ok((pid, lines.next().and_then(|line| line.parse().ok()).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Contract: P2, P4.
    #[test]
    fn a_second_instance_is_refused_and_told_who_holds_the_slot() {
        let dir = tempfile::tempdir().unwrap();
        let first = SlotLock::acquire(dir.path(), 0, Duration::ZERO).unwrap();
        let error = SlotLock::acquire(dir.path(), 0, Duration::from_millis(50)).unwrap_err();
        assert!(matches!(&error, LockError::Held { pid: Some(pid), .. } if *pid == std::process::id() as i32));
        let text = error.to_string();
        assert!(text.contains(&std::process::id().to_string()) && text.contains("slot-0.lock"), "{text}");
        SlotLock::acquire(dir.path(), 1, Duration::ZERO).unwrap();
        assert_eq!(SlotLock::holder(dir.path(), 0).unwrap(), Some(std::process::id() as i32));
        drop(first);
        assert_eq!(SlotLock::holder(dir.path(), 0).unwrap(), None);
        assert_eq!(SlotLock::holder(dir.path(), 7).unwrap(), None);
        SlotLock::acquire(dir.path(), 0, Duration::ZERO).unwrap();
    }

    #[test]
    fn whoever_waits_gets_the_lock_when_the_holder_ends() {
        let dir = tempfile::tempdir().unwrap();
        let first = SlotLock::acquire(dir.path(), 0, Duration::ZERO).unwrap();
        thread::scope(|scope| {
            let second = scope.spawn(|| SlotLock::acquire(dir.path(), 0, Duration::from_secs(20)));
            drop(first);
            second.join().unwrap().unwrap();
        });
    }

    #[test]
    fn incarnations_grow_over_restarts_of_the_primary() {
        let dir = tempfile::tempdir().unwrap();
        let mut numbers = Vec::new();
        for _ in 0..3 {
            let mut lock = SlotLock::acquire(dir.path(), 0, Duration::ZERO).unwrap();
            numbers.extend([lock.next_incarnation().unwrap(), lock.next_incarnation().unwrap()]);
        }
        assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
        // A lost file starts above what was counted before.
        std::fs::remove_file(dir.path().join("slot-0.lock")).unwrap();
        let mut lock = SlotLock::acquire(dir.path(), 0, Duration::ZERO).unwrap();
        assert!(lock.next_incarnation().unwrap() >= numbers[0]);
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let error = SlotLock::acquire(Path::new("/nonexistent"), 3, Duration::ZERO).unwrap_err();
        assert_eq!(error.to_string(), "cannot use the lock file /nonexistent/slot-3.lock");
    }
}
