//! A primary whose program was replaced by an upgrade starts its next shards from the new one, so that a rolling restart brings the
//! new version in without dropping everything at once. What primary and shard say to each other may have changed in between:
//! then the new program, before it does anything else, becomes the old one again, from the file that the primary still holds.

use std::{
    env, io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

use nix::unistd::getppid;

/// Grows with each change of the link that the other side would not understand.
const LINK: u32 = 1;

/// Environment variable that tells a child which link its primary speaks.
pub const LINK_ENV: &str = "SHARDVISOR_LINK";

/// What the children are told.
pub(crate) fn spoken() -> String {
    LINK.to_string()
}

/// The program that this process was started from, by the path at which an upgrade puts the next version.
pub(crate) fn by_path() -> PathBuf {
    // A file that is gone already shows as a path that does not exist.
    env::current_exe().ok().filter(|path| path.exists()).unwrap_or_else(this_file)
}

/// The program itself, whatever has become of its path.
pub(crate) fn this_file() -> PathBuf {
    "/proc/self/exe".into()
}

/// For a shard, first of all. Returns when its primary speaks this program's link, or when there is no primary; an error when it
/// speaks another one and its program can't be had.
pub fn speak_the_primarys_link() -> io::Result<()> {
    match env::var(LINK_ENV) {
        Ok(theirs) if theirs != spoken() => {
            let program = Path::new("/proc").join(getppid().to_string()).join("exe");
            let mut arguments = env::args_os();
            let mut command = Command::new(program);
            if let Some(name) = arguments.next() {
                command.arg0(name);
            }
            // Asked once: the primary's own program speaks its link.
            Err(command.args(arguments).env_remove(LINK_ENV).exec())
        }
        _ => Ok(()),
    }
}
