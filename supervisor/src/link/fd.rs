//! Descriptors that the primary hands to a shard by number, in the environment. Taking one is unsafe by nature, so it is
//! done here and once.
#![allow(unsafe_code)]

use std::{
    collections::BTreeSet,
    env,
    os::fd::{FromRawFd, OwnedFd, RawFd},
    sync::Mutex,
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, FdFlag, fcntl},
};

/// An inherited descriptor cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FdError {
    /// The variable does not hold a descriptor's number.
    #[error("{name}={value} is no descriptor that could have been inherited")]
    NoNumber {
        /// The variable.
        name: String,
        /// What it holds.
        value: String,
    },
    /// It was taken before, by this process.
    #[error("descriptor {fd} of {name} is already in use")]
    Taken {
        /// The variable.
        name: String,
        /// The number.
        fd: RawFd,
    },
    /// No such descriptor is open.
    #[error("descriptor {fd} of {name} is not open")]
    NotOpen {
        /// The variable.
        name: String,
        /// The number.
        fd: RawFd,
        /// What the kernel said.
        source: Errno,
    },
}

static TAKEN: Mutex<BTreeSet<RawFd>> = Mutex::new(BTreeSet::new());

/// Takes the descriptor that the environment variable `name` announces, if it is set. It is closed at the next exec.
pub fn inherited(name: &str) -> Result<Option<OwnedFd>, FdError> {
    let Some(value) = env::var_os(name) else { return Ok(None) };
    let value = value.to_string_lossy().into_owned();
    let number = value.parse::<RawFd>().ok().filter(|fd| *fd > 2);
    let Some(fd) = number else { return Err(FdError::NoNumber { name: name.to_owned(), value }) };
    if !TAKEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).insert(fd) {
        return Err(FdError::Taken { name: name.to_owned(), fd });
    }
    // SAFETY: the primary opened this descriptor for this process and nobody in it has taken it before: TAKEN says so.
    // If it is not open at all, the call below fails and the value is forgotten without closing anybody's descriptor.
    let owned = unsafe { OwnedFd::from_raw_fd(fd) };
    match fcntl(&owned, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)) {
        Ok(_) => Ok(Some(owned)),
        Err(source) => {
            std::mem::forget(owned);
            Err(FdError::NotOpen { name: name.to_owned(), fd, source })
        }
    }
}
