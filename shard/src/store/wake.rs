//! Wake-ups between the processes of a box: a datagram of one byte to a socket in `wake/`. One that gets lost costs a
//! second, no more, since whoever listens also looks by itself.

use std::{
    fs::{DirBuilder, File},
    io,
    os::{
        fd::AsRawFd,
        unix::{
            fs::{DirBuilderExt, FileTypeExt},
            net::UnixDatagram as StdDatagram,
        },
    },
    path::{Path, PathBuf},
};

use tokio::net::UnixDatagram;

/// A socket's address holds 107 bytes; a data directory may be longer. Through its descriptor it is always short.
fn address(dir: &File, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()))
}

fn folder(data_dir: &Path) -> PathBuf {
    data_dir.join("wake")
}

/// The socket on which one process is woken.
#[derive(Debug)]
pub(crate) struct Wake {
    socket: UnixDatagram,
}

impl Wake {
    /// Binds `wake/<name>.sock`, replacing what a predecessor left. Must be called within the runtime.
    pub(crate) fn bind(data_dir: &Path, name: &str) -> io::Result<Self> {
        let folder = folder(data_dir);
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let dir = File::open(&folder)?;
        let file = format!("{name}.sock");
        match std::fs::remove_file(folder.join(&file)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let socket = StdDatagram::bind(address(&dir, &file))?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket: UnixDatagram::from_std(socket)? })
    }

    /// Returns when somebody has knocked since the last call. Cancel-safe.
    pub(crate) async fn knocked(&self) -> io::Result<()> {
        let mut byte = [0; 8];
        self.socket.recv(&mut byte).await?;
        // Whoever else knocked meanwhile is answered by the same look.
        while self.socket.try_recv(&mut byte).is_ok() {}
        Ok(())
    }
}

/// Waits for a knock; for ever, where there is no socket or it is broken. Cancel-safe.
pub(crate) async fn knocked(wake: Option<&Wake>) {
    match wake {
        Some(wake) if wake.knocked().await.is_ok() => {}
        _ => std::future::pending().await,
    }
}

/// Wakes the listener of a name, if there is one.
pub(crate) fn knock(data_dir: &Path, name: &str) {
    let _ = knock_at(data_dir, &format!("{name}.sock"));
}

/// Wakes every listener whose name begins so.
pub(crate) fn knock_all(data_dir: &Path, prefix: &str) {
    let Ok(entries) = std::fs::read_dir(folder(data_dir)) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if name.starts_with(prefix) && entry.file_type().is_ok_and(|kind| kind.is_socket()) {
            let _ = knock_at(data_dir, name);
        }
    }
}

fn knock_at(data_dir: &Path, file: &str) -> io::Result<()> {
    let dir = File::open(folder(data_dir))?;
    let socket = StdDatagram::unbound()?;
    // A full socket buffer means that the listener has been woken already.
    socket.set_nonblocking(true)?;
    socket.send_to(&[1], address(&dir, file)).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_knock_is_heard_also_in_a_directory_with_a_long_name() {
        let base = tempfile::tempdir().expect("directory");
        let dir = base.path().join("d".repeat(150));
        std::fs::create_dir(&dir).expect("made");
        knock(&dir, "queue-0");
        let wake = Wake::bind(&dir, "queue-0").expect("bound");
        knock(&dir, "queue-0");
        knock_all(&dir, "queue-");
        wake.knocked().await.expect("heard");
        drop(wake);
        let again = Wake::bind(&dir, "queue-0").expect("bound again over what the first left");
        knock_all(&dir, "queue-");
        again.knocked().await.expect("heard");
    }
}
