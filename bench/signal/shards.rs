//! The same traffic into one shard and into two: what a message costs, and how much sooner two are through.

use std::{
    io,
    path::Path,
    time::{Duration, Instant},
};

use bench::{
    linked::{Daemon, Home},
    process::cost,
};
use simulators::whatsapp::{Address, Phone, WhatsApp};

use super::{SOON, other};

/// Channels of each of the two shards.
const CHANNELS: usize = 4;

/// Devices that were away, and whom people wrote to meanwhile.
struct Stand {
    server: WhatsApp,
    home: Home,
    devices: Vec<Address>,
    /// Who is written to, and by whom.
    pairs: Vec<(Phone, Phone)>,
}

/// What it took until everything was acknowledged.
struct Taken {
    cpu: Duration,
    wall: Duration,
}

impl Stand {
    async fn new(program: &Path) -> io::Result<Self> {
        let server = WhatsApp::start().await?;
        server.keep(1000);
        let home = Home::new(program, &server, 20)?;
        let mut owners = home.add_to(&server, 0, CHANNELS)?;
        owners.extend(home.add_to(&server, 1, CHANNELS)?);
        home.link(&server, &owners, 2, SOON).await?;
        home.handle_by("none")?;
        let devices = owners.iter().filter_map(|owner| owner.devices().into_iter().next()).collect();
        let peer = |n: usize| server.phone(&(447_700_000_000 + n as u64).to_string());
        let pairs = owners.into_iter().enumerate().map(|(n, owner)| (owner, peer(n))).collect();
        Ok(Self { server, home, devices, pairs })
    }

    async fn record(&self, messages: usize) -> io::Result<()> {
        for n in 0..messages {
            for (owner, peer) in &self.pairs {
                peer.say(owner.number(), &format!("message {n}")).await.map_err(|error| other(&error))?;
            }
        }
        Ok(())
    }

    fn waiting(&self) -> usize {
        self.devices.iter().map(|device| self.server.waiting_for(device)).sum()
    }

    /// From the start until nothing waits and the processes have nothing more to do.
    async fn through(&self, shards: u32) -> io::Result<Taken> {
        let began = Instant::now();
        let daemon = self.home.start(shards, None)?;
        for device in &self.devices {
            let online = self.server.wait_for_device(device, SOON).await;
            online.map_err(|error| io::Error::other(format!("{error}\n{}", daemon.tail())))?;
        }
        let emptied = || (self.waiting() == 0).then_some(());
        let emptied = self.server.wait_for("all is acknowledged", SOON, emptied).await;
        emptied.map_err(|error| io::Error::other(format!("{error}\n{}", daemon.tail())))?;
        let wall = began.elapsed();
        let cpu = calm(&daemon).await?;
        daemon.stop().await?;
        for device in &self.devices {
            let left = || self.server.connection(device).is_none().then_some(());
            self.server.wait_for("all have left", SOON, left).await.map_err(|error| other(&error))?;
        }
        Ok(Taken { cpu, wall })
    }

    /// CPU of a message, and the time of them all, less what a start without messages takes.
    async fn measured(&self, shards: u32, messages: usize) -> io::Result<Taken> {
        // The sessions of channels that move are fetched by this one.
        self.through(shards).await?;
        let empty = self.through(shards).await?;
        self.record(messages).await?;
        let full = self.through(shards).await?;
        let count = u32::try_from(messages * self.pairs.len()).unwrap_or(u32::MAX);
        Ok(Taken { cpu: full.cpu.saturating_sub(empty.cpu) / count, wall: full.wall.saturating_sub(empty.wall) })
    }
}

/// The CPU that the daemon has used by the time it has nothing more to do.
async fn calm(daemon: &Daemon) -> io::Result<Duration> {
    let mut before = cost(daemon.pid())?.cpu;
    for _ in 0..240 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = cost(daemon.pid())?.cpu;
        if now - before <= Duration::from_millis(10) {
            return Ok(now);
        }
        before = now;
    }
    Err(io::Error::other("the daemon does not come to rest"))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Prints what the same number of messages takes in one shard and in two; whether the bar is met.
pub(super) async fn compare(program: &Path, messages: usize) -> io::Result<bool> {
    let stand = Stand::new(program).await?;
    let (mut cpus, mut walls) = ([vec![], vec![]], [vec![], vec![]]);
    // In turns, and the middle of three: the machine is shared.
    for _ in 0..3 {
        for (at, shards) in [1, 2].into_iter().enumerate() {
            let taken = stand.measured(shards, messages).await?;
            eprintln!(
                "  {shards} shards: {} µs a message, {} ms in all",
                taken.cpu.as_micros(),
                taken.wall.as_millis()
            );
            cpus[at].push(taken.cpu);
            walls[at].push(taken.wall);
        }
    }
    let (cpu, wall) = (cpus.map(median), walls.map(median));
    let ratio = |two: Duration, one: Duration| two.as_secs_f64() / one.as_secs_f64().max(1e-9);
    let more = ratio(cpu[1], cpu[0]);
    let all = messages * 2 * CHANNELS;
    println!("{all} messages in chains, recorded beforehand, to {} channels\n", 2 * CHANNELS);
    println!("| | one shard | two shards | | bar |\n|---|---:|---:|---:|---:|");
    let missed = if more > 1.05 { " (missed)" } else { "" };
    let micros = |one: Duration| one.as_secs_f64() * 1e6;
    println!("| CPU a message | {:.0} µs | {:.0} µs | {more:.2} × | 1.05 ×{missed} |", micros(cpu[0]), micros(cpu[1]));
    let sooner = ratio(wall[0], wall[1]);
    println!("| until all are stored | {} ms | {} ms | {sooner:.2} × | |", wall[0].as_millis(), wall[1].as_millis());
    Ok(more <= 1.05)
}
