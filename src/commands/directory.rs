//! `shardvisor directory`: what a person has to say to a directory that lies elsewhere, or to put into it.

use std::{io::Read, path::Path, sync::Arc};

use shard::{clock::SystemClock, identity::ChannelId, keyring::Keyring, secret::Secret, store::BoxStore};

use crate::{
    cli::Directory,
    commands::{
        data::{self, block_on, store_failure},
        print,
    },
    config::{Config, DirectoryAt, plain, secrets_of_file, secrets_of_text},
    directory,
    exit::Failure,
};

/// Does what was asked.
pub(super) fn run(config: &Config, command: &Directory) -> Result<(), Failure> {
    match command {
        Directory::Confirm => confirm(config),
        Directory::Seal { id, token_file, handler_secret } => seal(config, *id, token_file, *handler_secret),
    }
}

/// The secret is read before the process becomes the data directory's owner, who may not be allowed to.
fn seal(config: &Config, id: ChannelId, file: &Path, handler_secret: bool) -> Result<(), Failure> {
    let lines = if file == Path::new("-") {
        let mut text = String::new();
        let read = std::io::stdin().read_to_string(&mut text).map_err(|error| plain(&error));
        read.and_then(|_| secrets_of_text(&text))
    } else {
        secrets_of_file(file)
    };
    let lines = lines.map_err(|what| Failure::Config(format!("{}: {what}", file.display())))?;
    let secret = Secret::new(lines.iter().map(Secret::expose).collect::<Vec<_>>().join(" "));
    data::enter(config)?;
    let keys = Keyring::open(&config.key_file()).map_err(|error| Failure::Config(error.to_string()))?;
    let purpose = if handler_secret { "secret" } else { "token" };
    let sealed = keys.seal(id, purpose, &secret).map_err(|error| Failure::Config(error.to_string()))?;
    print(format_args!("\\x{}", sealed.iter().map(|byte| format!("{byte:02x}")).collect::<String>()))
}

fn confirm(config: &Config) -> Result<(), Failure> {
    if matches!(config.directory.at, DirectoryAt::Embedded) {
        let problem =
            "directory.url names no directory that lies elsewhere: nothing is ever held back of the built-in one";
        return Err(Failure::Usage(problem.to_owned()));
    }
    data::enter(config)?;
    block_on(async {
        if !config.data_dir.join("box.db").exists() {
            return print("nothing is held back");
        }
        let shared = BoxStore::open(&config.data_dir, Arc::new(SystemClock)).map_err(store_failure)?;
        match directory::kept(config, shared)?.confirm().await.map_err(directory::failure)? {
            0 => print("nothing is held back"),
            gone => {
                print(format_args!("{gone} channels that {} lists no longer are ended", config.directory.at.describe()))
            }
        }
    })
}
