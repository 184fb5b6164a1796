//! What it takes to read encrypted messages: a linked device on shardvisor, its session durable, beside one on Baileys in Node.
//!
//! The traffic of each kind is recorded beforehand: the device is away while people write. Then it comes, and what its process
//! takes until everything is acknowledged is measured, less what a login without messages takes. Both stand before the same
//! simulator, so that handshake, frames, acknowledgements and storage are in both figures.

mod baileys;
mod ours;
mod shards;

use std::{io, path::PathBuf, process::ExitCode, time::Duration};

use bench::process::cost;
use clap::Parser;
use simulators::whatsapp::{Address, History, Phone, WhatsApp};

use self::{baileys::Baileys, ours::Ours};

/// How long any step may take.
const SOON: Duration = Duration::from_secs(300);
/// The history's chats, of a hundred messages each.
const CHATS: usize = 50;

/// Reads the same kinds of messages with shardvisor and with Baileys, and prints what each costs.
#[derive(Debug, Parser)]
struct Arguments {
    /// A release build of shardvisor with the feature `loopback`
    #[arg(long, value_name = "FILE")]
    daemon: PathBuf,
    /// A folder in which Baileys is installed for Node.js
    #[arg(long, value_name = "DIR")]
    node: PathBuf,
    /// Messages of each kind
    #[arg(long, default_value_t = 300)]
    messages: usize,
    /// Messages to each channel for the comparison of one shard with two; 0 for none
    #[arg(long, default_value_t = 2000)]
    shard_messages: usize,
    /// Only that comparison
    #[arg(long)]
    shards_only: bool,
    /// Exit with 1 when a bar is missed
    #[arg(long)]
    bars: bool,
}

/// A device that can be started and stopped.
trait Device {
    /// Starts it; the process.
    async fn start(&mut self, server: &WhatsApp) -> io::Result<u32>;

    /// Ends it in good order.
    async fn stop(&mut self) -> io::Result<()>;

    /// Links it, once, and ends it.
    async fn link(&mut self, server: &WhatsApp, owner: &Phone) -> io::Result<Address>;

    /// Writes something to each of these people, and ends it.
    async fn answer(&mut self, server: &WhatsApp, owner: &Phone, people: &[Phone]) -> io::Result<()>;
}

fn other(error: &impl std::fmt::Display) -> io::Error {
    io::Error::other(error.to_string())
}

/// Waits until all is acknowledged and the process has nothing more to do; the CPU it has used by then.
async fn drained(server: &WhatsApp, device: &Address, pid: u32) -> io::Result<Duration> {
    server.wait_for_device(device, SOON).await.map_err(|error| other(&error))?;
    let began = std::time::Instant::now();
    let mut calm = 0;
    let mut before = cost(pid)?.cpu;
    while calm < 6 {
        if began.elapsed() > SOON {
            return Err(io::Error::other("not all messages were acknowledged"));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = cost(pid)?.cpu;
        let is_calm = server.waiting_for(device) == 0 && now - before <= Duration::from_millis(15);
        calm = if is_calm { calm + 1 } else { 0 };
        before = now;
    }
    Ok(before)
}

async fn session(device: &mut impl Device, server: &WhatsApp, address: &Address) -> io::Result<Duration> {
    let pid = device.start(server).await?;
    let cpu = drained(server, address, pid).await?;
    device.stop().await?;
    let left = server.wait_for("the device left", SOON, || server.connection(address).is_none().then_some(())).await;
    left.map_err(|error| other(&error))?;
    Ok(cpu)
}

/// The kinds, and what a message of each took.
async fn costs(device: &mut impl Device, messages: usize) -> io::Result<Vec<(&'static str, Duration)>> {
    let server = WhatsApp::start().await?;
    server.keep(1000);
    let owner = server.phone("4915100000001");
    let address = device.link(&server, &owner).await?;
    let people: Vec<Phone> = (0..messages).map(|n| server.phone(&(447_700_000_000 + n as u64).to_string())).collect();
    let say = async |phone: &Phone, chat: &str, text: &str| phone.say(chat, text).await.map_err(|error| other(&error));

    // The first one still finishes what linking began.
    session(device, &server, &address).await?;
    let mut empty = Duration::MAX;
    for _ in 0..3 {
        empty = empty.min(session(device, &server, &address).await?);
    }
    eprintln!("  a login without messages: {} ms", empty.as_millis());
    let each = |cpu: Duration, count: usize| {
        eprintln!("  {count} messages more: {} ms", cpu.as_millis());
        cpu.saturating_sub(empty) / u32::try_from(count).unwrap_or(u32::MAX)
    };
    let mut costs = Vec::new();

    for person in &people {
        say(person, owner.number(), "the first one").await?;
    }
    costs.push(("pre-key messages", each(session(device, &server, &address).await?, messages)));

    device.answer(&server, &owner, &people).await?;
    for person in &people {
        say(person, owner.number(), "after your answer").await?;
    }
    costs.push(("1:1, with a ratchet step", each(session(device, &server, &address).await?, messages)));

    for n in 0..messages {
        say(&people[0], owner.number(), &format!("and {n}")).await?;
    }
    costs.push(("1:1, in a chain", each(session(device, &server, &address).await?, messages)));

    let group = people[0].create_group("friends", &[&owner]);
    say(&people[0], &group, "who is here?").await?;
    session(device, &server, &address).await?;
    for n in 0..messages {
        say(&people[0], &group, &format!("to all {n}")).await?;
    }
    costs.push(("in a group", each(session(device, &server, &address).await?, messages)));

    let chats = (0..CHATS).map(|n| History::of(&format!("4479{n:08}@s.whatsapp.net"), "an old friend", 100)).collect();
    owner.hand_over(&address, chats).await.map_err(|error| other(&error))?;
    costs.push(("of a history", each(session(device, &server, &address).await?, CHATS * 100)));
    Ok(costs)
}

async fn run(arguments: Arguments) -> io::Result<bool> {
    let mut met = true;
    if arguments.shard_messages > 0 {
        eprintln!("measuring one shard and two …");
        met &= shards::compare(&arguments.daemon, arguments.shard_messages).await?;
        println!();
    }
    if arguments.shards_only {
        return Ok(met);
    }
    eprintln!("measuring shardvisor …");
    let ours = costs(&mut Ours::new(arguments.daemon)?, arguments.messages).await?;
    eprintln!("measuring Baileys …");
    let theirs = costs(&mut Baileys::new(arguments.node)?, arguments.messages).await?;
    println!("{} messages of each kind, {} of a history\n", arguments.messages, CHATS * 100);
    println!("| CPU a message | shardvisor | Baileys, Node.js | | bar |\n|---|---:|---:|---:|---:|");
    for ((kind, ours), (_, theirs)) in ours.into_iter().zip(theirs) {
        let times = theirs.as_secs_f64() / ours.as_secs_f64().max(1e-9);
        let (micros, missed) = (|one: Duration| one.as_secs_f64() * 1e6, if times < 5.0 { " (missed)" } else { "" });
        println!("| {kind} | {:.0} µs | {:.0} µs | {times:.1} × | 5 ×{missed} |", micros(ours), micros(theirs));
        met &= times >= 5.0;
    }
    Ok(met)
}

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    for path in [&mut arguments.daemon, &mut arguments.node] {
        *path = std::path::absolute(&*path).unwrap_or_else(|_| path.clone());
    }
    let bars = arguments.bars;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.and_then(|runtime| runtime.block_on(run(arguments))) {
        Ok(met) if met || !bars => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench-signal: {error}");
            ExitCode::FAILURE
        }
    }
}
