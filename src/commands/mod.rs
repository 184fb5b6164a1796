//! The commands, one file each: what each reads, does and prints.

mod bot;
mod channel;
mod check_config;
mod data;
mod dead;
#[cfg(feature = "demo")]
mod demo;
mod directory;
mod generate;
mod reload;
mod run;
mod schema;
mod send;
#[cfg(feature = "whatsapp")]
mod session;
mod status;
mod r#where;

use std::{fmt::Display, io::Write, process::ExitCode};

pub(crate) use data::store_failure;

use crate::{
    cli::{Bot, Cli, Command, Settings},
    config::{Config, template},
    exit::Failure,
};

/// Does what was asked.
pub(crate) fn perform(cli: Cli) -> Result<ExitCode, Failure> {
    let settings = cli.settings;
    if matches!(cli.command, Command::Run) {
        let spoken = supervisor::speak_the_primarys_link();
        spoken
            .map_err(|error| Failure::Internal(format!("the primary's program: {}", crate::config::plain(&error))))?;
    }
    match cli.command {
        Command::Run => return Ok(ExitCode::from(run::run(&load(&settings)?, &settings)?)),
        Command::Reload => reload::run(&load(&settings)?)?,
        Command::CheckConfig(options) if options.template => print(template().trim_end())?,
        Command::CheckConfig(options) => check_config::run(&load(&settings)?, &options)?,
        Command::Channel(command) => channel::run(&load(&settings)?, &command)?,
        #[cfg(feature = "whatsapp")]
        Command::Session(command) => session::run(&load(&settings)?, &command)?,
        Command::Send(options) => send::run(&load(&settings)?, &options)?,
        Command::Directory(command) => directory::run(&load(&settings)?, &command)?,
        Command::Dead(command) => dead::run(&load(&settings)?, &command)?,
        Command::Bot(Bot::Where(options)) => bot::run(&settings, &options)?,
        Command::Where(options) => r#where::run(&settings, &options)?,
        Command::Status(options) => status::run(&load(&settings)?, &options)?,
        Command::Schema => schema::run()?,
        Command::Generate { into } => generate::run(&into)?,
        #[cfg(feature = "demo")]
        Command::Demo(options) => demo::run(&options)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The configuration in force.
fn load(settings: &Settings) -> Result<Config, Failure> {
    Ok(Config::load(&settings.sources())?)
}

/// One line on standard output. A reader that went away early (`| head`) is no fault: what is left is not wanted.
fn print(line: impl Display) -> Result<(), Failure> {
    match writeln!(std::io::stdout(), "{line}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::Internal(format!("standard output: {}", crate::config::plain(&error))))
        }
        _ => Ok(()),
    }
}

/// A value as JSON on one line.
fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    print(serde_json::to_string(value).map_err(|error| Failure::Internal(error.to_string()))?)
}
