//! The `shardvisor` command.

fn main() {}
