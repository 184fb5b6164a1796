//! `shardvisor generate`: manual pages and completions out of the code, for packages and for whoever builds from source.

mod daemon_page;
mod roff;
mod settings_page;

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::CommandFactory;
use clap_complete::{Shell, generate_to};

use crate::{cli::Cli, config::plain, exit::Failure};

/// Writes them all below a directory: `man/`, `completions/`.
pub(super) fn run(into: &Path) -> Result<(), Failure> {
    let (man, completions) = (into.join("man"), into.join("completions"));
    for folder in [&man, &completions] {
        fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
    }
    let command = Cli::command();
    clap_mangen::generate_to(command.clone(), &man).map_err(|error| failed(&man, &error))?;
    for (name, text) in [("shardvisor.8", daemon_page::text()), ("shardvisor.toml.5", settings_page::text())] {
        let path = man.join(name);
        fs::write(&path, text).map_err(|error| failed(&path, &error))?;
    }
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let written: Result<PathBuf, _> = generate_to(shell, &mut command.clone(), "shardvisor", &completions);
        written.map_err(|error| failed(&completions, &error))?;
    }
    Ok(())
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::GaveUp(format!("{}: {}", path.display(), plain(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::keys, exit};

    #[test]
    fn pages_name_every_setting_every_status_and_every_command() {
        let dir = tempfile::tempdir().expect("a directory");
        run(dir.path()).expect("written");
        let page = |name: &str| fs::read_to_string(dir.path().join("man").join(name)).expect(name).replace('\\', "");
        let settings = page("shardvisor.toml.5");
        for key in keys::ALL {
            assert!(settings.contains(key.name), "{}", key.name);
        }
        let daemon = page("shardvisor.8");
        for (status, _) in exit::STATUSES {
            assert!(daemon.contains(&format!("\n.B {status}\n")), "{status}");
        }
        let command = Cli::command();
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            assert!(page(&format!("shardvisor-{}.1", sub.get_name())).contains(".TH"), "{}", sub.get_name());
        }
        for (shell, file) in [("bash", "shardvisor.bash"), ("zsh", "_shardvisor"), ("fish", "shardvisor.fish")] {
            let text = fs::read_to_string(dir.path().join("completions").join(file)).expect(shell);
            assert!(text.contains("check-config"), "{shell}");
        }
    }
}
