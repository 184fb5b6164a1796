//! The WhatsApp simulator as a process of its own, for hands and for test drivers that are not written in Rust.
//!
//! `whatsapp-simulator [--listen 127.0.0.1:0]` prints where it listens and the key that signs its certificates, then does
//! what its standard input says, a line each, until that ends. What phones are shown is printed as it comes.

use std::{io::BufRead, net::SocketAddr, process::ExitCode, time::Duration};

use simulators::whatsapp::{Address, End, Phone, WhatsApp};
use tokio::sync::mpsc;

const USAGE: &str = "usage: whatsapp-simulator [--listen 127.0.0.1:PORT]

then on standard input:
  scan NUMBER CODE            the phone scans the code that a device shows
  link NUMBER DIGITS          the phone types the digits that a device shows
  say NUMBER CHAT TEXT        the phone writes to a number or to an address
  group NUMBER NAME MEMBER..  the phone makes a group
  devices NUMBER              the phone lists its devices
  unlink NUMBER DEVICE        the phone unlinks a device
  end NUMBER DEVICE HOW       replaced, closed, cut, unnamed, failure=CODE or error=CODE";

/// How long a device may take to answer to its digits.
const LINKING: Duration = Duration::from_secs(60);

/// A line of the standard input.
#[derive(Debug, PartialEq, Eq)]
enum Command {
    Scan { number: String, code: String },
    Link { number: String, digits: String },
    Say { number: String, chat: String, text: String },
    Group { number: String, name: String, members: Vec<String> },
    Devices { number: String },
    Unlink(Address),
    End(Address, End),
}

fn command(line: &str) -> Option<Command> {
    let (word, rest) = line.trim().split_once(' ')?;
    let mut parts = rest.split_whitespace();
    let number = parts.next().filter(|number| number.bytes().all(|digit| digit.is_ascii_digit()))?.to_owned();
    let mut device = |number: &str| Some(Address::new(number, parts.next()?.parse().ok()?));
    Some(match word {
        "scan" => Command::Scan { number, code: parts.next()?.to_owned() },
        "link" => Command::Link { number, digits: parts.next()?.to_owned() },
        "say" => {
            let chat = parts.next()?.to_owned();
            let text = rest.splitn(3, ' ').nth(2)?.to_owned();
            Command::Say { number, chat, text }
        }
        "group" => {
            let name = parts.next()?.to_owned();
            Command::Group { number, name, members: parts.map(ToOwned::to_owned).collect() }
        }
        "devices" => Command::Devices { number },
        "unlink" => Command::Unlink(device(&number)?),
        "end" => {
            let device = device(&number)?;
            Command::End(device, end(parts.next()?)?)
        }
        _ => return None,
    })
}

fn end(how: &str) -> Option<End> {
    Some(match how.split_once('=') {
        Some(("failure", code)) => End::Failure(code.parse().ok()?),
        Some(("error", code)) => End::Error(code.parse().ok()?),
        Some(_) => return None,
        None => match how {
            "replaced" => End::Replaced,
            "closed" => End::Closed,
            "cut" => End::Cut,
            "unnamed" => End::Unnamed,
            _ => return None,
        },
    })
}

/// Does it. What is printed.
async fn obey(whatsapp: &WhatsApp, command: Command, phone: &mut impl FnMut(&str) -> Phone) -> Result<String, String> {
    let said = |error: &dyn std::fmt::Display| error.to_string();
    match command {
        Command::Scan { number, code } => {
            let device = phone(&number).scan(&code).map_err(|error| said(&error))?;
            Ok(format!("linked {device}"))
        }
        Command::Link { number, digits } => {
            let device = phone(&number).link(&digits, LINKING).await.map_err(|error| said(&error))?;
            Ok(format!("linked {device}"))
        }
        Command::Say { number, chat, text } => {
            let id = phone(&number).say(&chat, &text).await.map_err(|error| said(&error))?;
            Ok(format!("said {id}"))
        }
        Command::Group { number, name, members } => {
            let members: Vec<Phone> = members.iter().map(|member| phone(member)).collect();
            Ok(format!("group {}", phone(&number).create_group(&name, &members.iter().collect::<Vec<_>>())))
        }
        Command::Devices { number } => {
            let devices = phone(&number).devices();
            Ok(devices.iter().map(|device| format!("device {device}")).collect::<Vec<_>>().join("\n"))
        }
        Command::Unlink(device) => {
            phone(&device.number).unlink(&device);
            Ok(format!("unlinked {device}"))
        }
        Command::End(device, end) if whatsapp.end(&device, end) => Ok(format!("ended {device}")),
        Command::End(device, _) => Err(format!("{device} is not connected")),
    }
}

async fn run(listen: SocketAddr) -> std::io::Result<()> {
    let whatsapp = WhatsApp::listen(listen).await?;
    let root: String = whatsapp.root_key().iter().map(|byte| format!("{byte:02x}")).collect();
    println!("url {}\nmedia {}\nroot {root}", whatsapp.url(), whatsapp.media_url());
    let (lines, mut input) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            // The rest is of no use once nobody reads any more.
            if lines.send(line).is_err() {
                return;
            }
        }
    });
    let mut known = std::collections::HashSet::new();
    let mut phone = |number: &str| {
        let phone = whatsapp.phone(number);
        if known.insert(number.to_owned()) {
            let number = number.to_owned();
            phone.watch(move |received| {
                let text = received.text.as_deref().unwrap_or("(no text)");
                println!("shown to {number} in {} by {}: {text}", received.chat, received.from);
            });
        }
        phone
    };
    while let Some(line) = input.recv().await {
        match command(&line) {
            Some(command) => match obey(&whatsapp, command, &mut phone).await {
                Ok(done) => println!("{done}"),
                Err(error) => println!("failed: {error}"),
            },
            None if line.trim().is_empty() => {}
            None => eprintln!("whatsapp-simulator: not understood: {line}\n{USAGE}"),
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let listen = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Some(SocketAddr::from(([127, 0, 0, 1], 0))),
        ["--listen", address] => address.parse().ok(),
        _ => None,
    };
    let Some(listen) = listen else {
        eprintln!("{USAGE}");
        return ExitCode::from(64);
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.and_then(|runtime| runtime.block_on(run(listen))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("whatsapp-simulator: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_command_or_nothing() {
        let said = Command::Say { number: "1555".into(), chat: "1556".into(), text: "hello  you".into() };
        assert_eq!(command("say 1555 1556 hello  you"), Some(said));
        let device = Address::new("1555", 2);
        assert_eq!(command("end 1555 2 failure=405"), Some(Command::End(device.clone(), End::Failure(405))));
        assert_eq!(command("unlink 1555 2"), Some(Command::Unlink(device)));
        for nothing in ["", "say 1555", "end 1555 2 gladly", "scan me 1", "dance 1555"] {
            assert_eq!(command(nothing), None, "{nothing}");
        }
    }
}
