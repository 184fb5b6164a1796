//! The claim on the health port of a box.
//!
//! Shards share the port by `SO_REUSEPORT`, which also lets a second daemon of the same user slip in unnoticed and take
//! half of the probes. So the port is claimed before any shard binds it: the claim succeeds only when nobody listens
//! there, and while it is held nobody who doesn't share can. It never listens itself, so it gets no connection.

use std::{
    fs, io,
    net::SocketAddr,
    os::fd::{AsRawFd, OwnedFd},
    path::Path,
};

use nix::sys::socket::{SockaddrStorage, getsockname};

use super::sockopt::{self, Share};

/// The port is ours until this is dropped.
#[derive(Debug)]
pub struct PortClaim {
    address: SocketAddr,
    _held: OwnedFd,
}

/// Why the port is not ours.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// Somebody listens there. Whose fault: the second one's; stop the other or choose another port.
    #[error("the health port {address} is in use by {}", match pid { Some(pid) => format!("process {pid}"), None => "another process".to_owned() })]
    InUse {
        /// The address asked for.
        address: SocketAddr,
        /// Who holds it, where /proc tells.
        pid: Option<u32>,
    },
    /// The address can't be bound at all.
    #[error("can't bind the health port {address}")]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
}

impl PortClaim {
    /// Claims an address; port 0 chooses a free one.
    pub fn new(address: SocketAddr) -> Result<Self, PortError> {
        let wrong = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => PortError::InUse { address, pid: listener_pid(address.port()) },
            _ => PortError::Bind { address, source },
        };
        if address.port() != 0 {
            // Shares with nobody, so it fails where anybody listens, also somebody who would share.
            sockopt::bound(address, Share::Nothing).and_then(sockopt::listening).map_err(wrong)?;
        }
        let held = sockopt::bound(address, Share::Port).map_err(wrong)?;
        sockopt::keep_from_others(&held).map_err(wrong)?;
        let address = local_address(&held).map_err(wrong)?;
        Ok(Self { address, _held: held })
    }

    /// The address, with the port that was chosen.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn local_address(fd: &OwnedFd) -> io::Result<SocketAddr> {
    let name: SockaddrStorage = getsockname(fd.as_raw_fd())?;
    let v4 = name.as_sockaddr_in().map(|v4| SocketAddr::from((v4.ip(), v4.port())));
    let v6 = name.as_sockaddr_in6().map(|v6| SocketAddr::from((v6.ip(), v6.port())));
    v4.or(v6).ok_or_else(|| io::Error::other("not an internet address"))
}

/// The process that listens on a port, as far as this user may see it.
fn listener_pid(port: u16) -> Option<u32> {
    let inodes: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .flat_map(|table| inodes(&table, port))
        .collect();
    let holds = |process: &Path| {
        let Ok(descriptors) = fs::read_dir(process.join("fd")) else { return false };
        descriptors
            .flatten()
            .filter_map(|entry| fs::read_link(entry.path()).ok())
            .any(|target| inodes.iter().any(|inode| target.as_os_str() == inode.as_str()))
    };
    let processes = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse::<u32>().ok()?;
        Some((pid, entry.path()))
    });
    let mut processes: Vec<_> = processes.collect();
    processes.sort_unstable();
    processes.into_iter().find(|(_, path)| holds(path)).map(|(pid, _)| pid)
}

/// As /proc names the sockets that listen on a port.
fn inodes(table: &str, port: u16) -> Vec<String> {
    let found = table.lines().skip(1).filter_map(|line| holder_inode(line, port));
    found.map(|inode| format!("socket:[{inode}]")).collect()
}

/// The inode in a line of /proc/net/tcp, when it is a listener on the port.
fn holder_inode(line: &str, port: u16) -> Option<&str> {
    let mut fields = line.split_ascii_whitespace();
    let local = fields.nth(1)?;
    let state = fields.nth(1)?;
    let inode = fields.nth(5)?;
    let (_, local_port) = local.rsplit_once(':')?;
    (state == "0A" && u16::from_str_radix(local_port, 16) == Ok(port)).then_some(inode)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn loopback(port: u16) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    }

    /// Contract: P4. Field report R50.
    #[test]
    fn a_port_that_somebody_shares_is_not_ours_and_the_holder_is_named() {
        let claim = PortClaim::new(loopback(0)).expect("free");
        let fd = sockopt::bound(claim.address(), Share::Port).expect("shared");
        let _listener = sockopt::listening(fd).expect("listens beside the claim");
        let error = PortClaim::new(claim.address()).expect_err("a second daemon");
        let port = claim.address().port();
        let pid = std::process::id();
        assert_eq!(error.to_string(), format!("the health port 127.0.0.1:{port} is in use by process {pid}"));
    }

    /// Contract: P4. Field report R50.
    #[test]
    fn a_claim_alone_keeps_a_second_daemon_out() {
        let claim = PortClaim::new(loopback(0)).expect("free");
        assert!(matches!(PortClaim::new(claim.address()), Err(PortError::InUse { .. })));
        assert!(std::net::TcpListener::bind(claim.address()).is_err(), "nor anybody else");
        let address = claim.address();
        drop(claim);
        PortClaim::new(address).expect("free again");
    }

    #[test]
    fn an_address_that_is_not_here_is_told_apart_from_one_in_use() {
        let elsewhere = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 8080));
        let error = PortClaim::new(elsewhere).expect_err("not this machine");
        assert_eq!(error.to_string(), "can't bind the health port 192.0.2.1:8080");
    }

    #[test]
    fn a_listener_is_found_in_the_table_of_sockets() {
        let line =
            "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0 100 0";
        assert_eq!(holder_inode(line, 8080), Some("4711"));
        assert_eq!(holder_inode(line, 8081), None);
        assert_eq!(holder_inode(&line.replace(" 0A ", " 01 "), 8080), None, "a connection, no listener");
    }
}
