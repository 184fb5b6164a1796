//! The device on shardvisor: one shard, the built-in echo while it answers, and no handler while it is measured.

use std::{io, path::PathBuf};

use bench::linked::{Daemon, Home};
use simulators::whatsapp::{Address, Phone, WhatsApp};
use uuid::Uuid;

use super::{Device, SOON, other};

/// The daemon and its directory.
pub(super) struct Ours {
    program: PathBuf,
    home: Option<Home>,
    running: Option<Daemon>,
}

impl Ours {
    pub(super) fn new(program: PathBuf) -> io::Result<Self> {
        Ok(Self { program, home: None, running: None })
    }

    fn home(&self) -> io::Result<&Home> {
        self.home.as_ref().ok_or_else(|| io::Error::other("it was not linked"))
    }
}

impl Device for Ours {
    async fn start(&mut self, _: &WhatsApp) -> io::Result<u32> {
        let daemon = self.home()?.start(1, None)?;
        Ok(self.running.insert(daemon).pid())
    }

    async fn stop(&mut self) -> io::Result<()> {
        match self.running.take() {
            Some(daemon) => daemon.stop().await,
            None => Ok(()),
        }
    }

    async fn link(&mut self, server: &WhatsApp, owner: &Phone) -> io::Result<Address> {
        let home = self.home.insert(Home::new(&self.program, server, 812)?);
        home.add_for(owner, Uuid::new_v4())?;
        home.link(server, std::slice::from_ref(owner), 1, SOON).await?;
        home.handle_by("none")?;
        owner.devices().into_iter().next().ok_or_else(|| io::Error::other("it was not linked"))
    }

    async fn answer(&mut self, server: &WhatsApp, owner: &Phone, people: &[Phone]) -> io::Result<()> {
        self.home()?.handle_by("echo")?;
        self.start(server).await?;
        for person in people {
            person.say(owner.number(), "hello?").await.map_err(|error| other(&error))?;
        }
        for person in people {
            person.wait_for_text("hello?", SOON).await.map_err(|error| other(&error))?;
        }
        self.stop().await?;
        self.home()?.handle_by("none")
    }
}
