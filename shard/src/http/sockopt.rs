//! Sockets that share a port: made, steered, released. What tokio and std have no name for.
#![allow(unsafe_code)]

use std::{
    io, mem,
    net::{SocketAddr, TcpListener},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    ptr,
};

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockProtocol, SockType, SockaddrStorage, bind, listen, setsockopt, socket,
    sockopt::{Ipv6V6Only, ReuseAddr, ReusePort},
};

use super::steering::Instruction;

/// Not in libc for this target; `asm-generic/socket.h`.
const SO_DETACH_REUSEPORT_BPF: libc::c_int = 68;

/// How many connections the kernel keeps ready between two accepts.
const BACKLOG: i32 = 1024;

/// With whom a socket shares its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Share {
    /// With other sockets of the same user that say the same.
    Port,
    /// With nobody.
    Nothing,
}

/// A bound socket that does not listen yet; not in the group of its port. Closed on exec, so that no other process
/// keeps a copy which would swallow connections after this one is gone.
pub(super) fn bound(address: SocketAddr, share: Share) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(family, SockType::Stream, flags, SockProtocol::Tcp)?;
    setsockopt(&fd, ReuseAddr, &true)?;
    if share == Share::Port {
        setsockopt(&fd, ReusePort, &true)?;
    }
    if address.is_ipv6() && address.ip().is_unspecified() {
        setsockopt(&fd, Ipv6V6Only, &false)?;
    }
    bind(fd.as_raw_fd(), &SockaddrStorage::from(address))?;
    Ok(fd)
}

/// From now on nobody may listen on this address but sockets that share its port.
pub(super) fn keep_from_others(fd: &OwnedFd) -> io::Result<()> {
    Ok(setsockopt(fd, ReuseAddr, &false)?)
}

/// Starts to listen: the socket is now the last of its port's group.
pub(super) fn listening(fd: OwnedFd) -> io::Result<TcpListener> {
    listen(&fd, Backlog::new(BACKLOG)?)?;
    Ok(TcpListener::from(fd))
}

/// Lets `program` choose the socket for new connections, for the whole group that this socket is in.
pub(super) fn steer(socket: &impl AsFd, program: &[Instruction]) -> io::Result<()> {
    let mut filter: Vec<libc::sock_filter> =
        program.iter().map(|i| libc::sock_filter { code: i.code, jt: i.jt, jf: i.jf, k: i.k }).collect();
    let len = u16::try_from(filter.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
    // SAFETY: `program` points to `filter`, which lives until the call is over; the kernel copies both.
    unsafe { set(socket.as_fd(), libc::SO_ATTACH_REUSEPORT_CBPF, &program) }
}

/// Gives the choice back to the kernel's hash. No program to take away is as good.
pub(super) fn unsteer(socket: &impl AsFd) -> io::Result<()> {
    let unused: libc::c_int = 0;
    // SAFETY: the option takes an int and ignores its value.
    match unsafe { set(socket.as_fd(), SO_DETACH_REUSEPORT_BPF, &unused) } {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        other => other,
    }
}

/// # Safety
/// `value` is what the option expects, and every pointer in it is valid for the call.
unsafe fn set<T>(socket: BorrowedFd<'_>, option: libc::c_int, value: &T) -> io::Result<()> {
    let size = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: a borrowed descriptor is open; pointer and size are those of `value`; the rest is the caller's word.
    let done =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, ptr::from_ref(value).cast(), size) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
