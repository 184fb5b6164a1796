//! The WhatsApp simulator, held against the library that the daemon's connector is built on.

mod baileys;
mod device;
mod faults;
mod groups;
mod linking;
mod media;
mod messages;
mod process;
mod traffic;
