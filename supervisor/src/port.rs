//! One daemon for each port. SO_REUSEPORT would let a second one start unnoticed and share the first one's connections,
//! so the port is claimed by name first, and then tried without that option for strangers.
//!
//! The name is an abstract socket: it lives in the network namespace, as ports do, and ends with its process.

use std::{
    fs,
    io::{self, ErrorKind},
    net::SocketAddr,
    os::{
        fd::{AsRawFd, OwnedFd},
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream},
    },
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::socket::{
        AddressFamily, SockFlag, SockType, SockaddrStorage, bind, getsockopt, setsockopt, socket,
        sockopt::{PeerCredentials, ReuseAddr},
    },
};

use crate::lock::Holder;

/// A claimed port. Keep it for as long as the port is served.
#[derive(Debug)]
pub struct PortGuard {
    /// Nothing for port 0, which is a new one each time.
    _name: Option<UnixListener>,
}

/// A port cannot be claimed.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// Another daemon of this kind serves it.
    #[error("port {port} is served by another instance, {}", Holder(*pid))]
    Claimed {
        /// The port.
        port: u16,
        /// The other instance, as far as known.
        pid: Option<i32>,
    },
    /// Some other program has it.
    #[error("port {port} is in use by {}", Holder(*pid))]
    InUse {
        /// The port.
        port: u16,
        /// The other program, as far as it may be known.
        pid: Option<i32>,
    },
    /// The address cannot be bound at all.
    #[error("cannot bind {addr}")]
    Bind {
        /// The address.
        addr: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
}

impl PortGuard {
    /// Claims a port, and waits for up to `wait` for a holder that is about to end.
    pub fn acquire(addr: SocketAddr, wait: Duration) -> Result<Self, PortError> {
        if addr.port() == 0 {
            return Ok(Self { _name: None });
        }
        let deadline = Instant::now() + wait;
        loop {
            let error = match claim(addr).and_then(|name| try_bind(addr).map(|()| name)) {
                Ok(name) => return Ok(Self { _name: Some(name) }),
                Err(error) => error,
            };
            if matches!(error, PortError::Bind { .. }) || Instant::now() >= deadline {
                return Err(error);
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn claim(addr: SocketAddr) -> Result<UnixListener, PortError> {
    let port = addr.port();
    let bind = |source| PortError::Bind { addr, source };
    let name = UnixAddr::from_abstract_name(format!("shardvisor/port/{port}")).map_err(bind)?;
    match UnixListener::bind_addr(&name) {
        Ok(listener) => Ok(listener),
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            let peer = UnixStream::connect_addr(&name).ok();
            let pid = peer.and_then(|peer| getsockopt(&peer, PeerCredentials).ok()).map(|peer| peer.pid());
            Err(PortError::Claimed { port, pid })
        }
        Err(error) => Err(bind(error)),
    }
}

/// Binds without listening, so that no connection lands here, and lets go.
fn try_bind(addr: SocketAddr) -> Result<(), PortError> {
    let family = if addr.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let trial = || -> nix::Result<OwnedFd> {
        let fd = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
        // Connections that linger from an earlier life of this daemon are no obstacle; a listener is.
        setsockopt(&fd, ReuseAddr, &true)?;
        bind(fd.as_raw_fd(), &SockaddrStorage::from(addr))?;
        Ok(fd)
    };
    match trial() {
        Ok(_) => Ok(()),
        Err(Errno::EADDRINUSE) => Err(PortError::InUse { port: addr.port(), pid: listener_on(addr.port()) }),
        Err(error) => Err(PortError::Bind { addr, source: error.into() }),
    }
}

/// Who listens on a port, as far as this user may see it.
fn listener_on(port: u16) -> Option<i32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let inodes: Vec<String> = tables.iter().flat_map(|table| listening_inodes(table, port)).collect();
    let links: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let holds = |pid: &i32| {
        let fds = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        fds.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|to| links.iter().any(|link| to.as_os_str() == &**link))
    };
    let processes = fs::read_dir("/proc").ok()?.flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(holds)
}

fn listening_inodes(table: &str, port: u16) -> Vec<String> {
    let local = format!(":{port:04X}");
    let listening = |line: &&str| {
        let mut fields = line.split_ascii_whitespace();
        fields.nth(1).is_some_and(|addr| addr.ends_with(&local)) && fields.nth(1) == Some("0A")
    };
    let inode = |line: &str| line.split_ascii_whitespace().nth(9).map(str::to_owned);
    table.lines().skip(1).filter(listening).filter_map(inode).collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A port that nobody has: bound and let go.
    fn free() -> SocketAddr {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
    }

    /// Contract: P4. Field report R50.
    #[test]
    fn a_second_daemon_on_the_port_is_refused_and_told_the_firsts_pid() {
        let addr = free();
        let guard = PortGuard::acquire(addr, Duration::ZERO).unwrap();
        let error = PortGuard::acquire(addr, Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, PortError::Claimed { pid: Some(pid), .. } if pid == std::process::id() as i32));
        assert!(error.to_string().contains(&format!("process {}", std::process::id())));
        drop(guard);
        PortGuard::acquire(addr, Duration::ZERO).unwrap();
    }

    #[test]
    fn a_strangers_listener_is_found_by_its_pid() {
        for loopback in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(stranger) = TcpListener::bind(loopback) else { continue };
            let error = PortGuard::acquire(stranger.local_addr().unwrap(), Duration::ZERO).unwrap_err();
            assert!(
                matches!(error, PortError::InUse { pid: Some(pid), .. } if pid == std::process::id() as i32),
                "{error}"
            );
        }
    }

    #[test]
    fn an_address_of_another_machine_is_an_error_at_once() {
        let addr = SocketAddr::new("192.0.2.1".parse().unwrap(), free().port());
        let error = PortGuard::acquire(addr, Duration::from_secs(60)).unwrap_err();
        assert!(matches!(error, PortError::Bind { .. }), "{error}");
    }

    #[test]
    fn a_free_port_stays_free_for_the_shards() {
        let addr = free();
        let _guard = PortGuard::acquire(addr, Duration::ZERO).unwrap();
        TcpListener::bind(addr).unwrap();
    }
}
