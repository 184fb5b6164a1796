# Every habit is one word. Nothing here is needed: each line works as it stands.

# What there is.
default:
    @just --list --unsorted

# Form and lints, all crates.
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --features simulators/whatsapp --locked -- -D warnings

# Everything that continuous integration runs. Arguments go to the test runner.
test *arguments:
    ./tests/run {{arguments}}

# The real binary from outside, the long way round.
e2e:
    cargo test -p shardvisor --locked

# Two shards, a simulator, people who chat.
demo *arguments:
    cargo demo {{arguments}}

# A shard full of bots beside python-telegram-bot: memory, CPU, latency. `just bench-telegram --quick` takes minutes less.
bench-telegram *arguments:
    tests/foreign/install
    cargo build --release --locked -p shardvisor
    cargo run --release --locked -p bench --bin bench-telegram -- --daemon target/release/shardvisor --python target/foreign/venv/bin/python {{arguments}}

# Jobs a second through a shard, every step of each on the disk.
bench-jobs *arguments:
    cargo run --release --locked -p bench --bin bench-jobs -- {{arguments}}

# The sample configuration, from the code.
sample-config:
    cargo run --quiet -- check-config --template > packaging/shardvisor.toml
