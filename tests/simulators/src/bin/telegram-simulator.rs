//! The Telegram simulator as a process of its own, for test drivers that are not written in Rust.
//!
//! `telegram-simulator [--listen 127.0.0.1:0] [token …]` prints its URL as the first line and serves until its standard
//! input ends, so that it never outlives whoever started it. It is driven over HTTP under `/control`.

use std::{io::Read, net::SocketAddr, process::ExitCode};

use simulators::telegram::Telegram;

const USAGE: &str = "usage: telegram-simulator [--listen 127.0.0.1:PORT] [TOKEN ...]";

struct Arguments {
    listen: SocketAddr,
    tokens: Vec<String>,
}

fn parse(arguments: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut parsed = Arguments { listen: SocketAddr::from(([127, 0, 0, 1], 0)), tokens: Vec::new() };
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        if argument == "--listen" {
            let address = arguments.next().ok_or("--listen: an address is missing")?;
            parsed.listen = address.parse().map_err(|_| format!("--listen: {address:?} is no address"))?;
        } else if argument
            .split_once(':')
            .is_some_and(|(id, secret)| id.parse::<i64>().is_ok_and(|id| id > 0) && !secret.is_empty())
        {
            parsed.tokens.push(argument);
        } else {
            return Err(format!("{argument:?} is neither an option nor a token <id>:<secret>"));
        }
    }
    Ok(parsed)
}

async fn run(arguments: Arguments) -> std::io::Result<()> {
    let telegram = Telegram::listen(arguments.listen).await?;
    for token in &arguments.tokens {
        telegram.add_bot_with_token(token);
    }
    println!("{}", telegram.url());
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    ended.await.map_err(std::io::Error::other)??;
    Ok(())
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("telegram-simulator: {error}\n{USAGE}");
            return ExitCode::from(64);
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.and_then(|runtime| runtime.block_on(run(arguments))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("telegram-simulator: {error}");
            ExitCode::FAILURE
        }
    }
}
