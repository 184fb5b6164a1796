//! The `shardvisor` command.

mod box_view;

fn main() {}
