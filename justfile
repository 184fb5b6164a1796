# Every habit is one word. Nothing here is needed: each line works as it stands.

# What there is.
default:
    @just --list --unsorted

# Form and lints, all crates.
check:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --all-features --locked -- -D warnings

# Everything that continuous integration runs. Arguments go to the test runner.
test *arguments:
    ./tests/run {{arguments}}

# The real binary from outside, the long way round.
e2e:
    cargo test -p shardvisor --all-features --locked

# Two shards, a simulator, people who chat.
demo *arguments:
    cargo demo {{arguments}}

# A shard full of bots beside python-telegram-bot: memory, CPU, latency. `just bench-telegram --quick` takes minutes less.
bench-telegram *arguments:
    tests/foreign/install
    cargo build --release --locked -p shardvisor
    cargo run --release --locked -p bench --bin bench-telegram -- --daemon target/release/shardvisor --python target/foreign/venv/bin/python {{arguments}}

# A shard full of Slack apps beside slack-bolt and Bolt: memory, CPU, latency.
bench-slack *arguments:
    tests/foreign/install
    cargo build --release --locked -p shardvisor
    cargo run --release --locked -p bench --bin bench-slack -- --daemon target/release/shardvisor --python target/foreign/venv/bin/python --node target/foreign {{arguments}}

# A shard full of linked devices: login, memory, CPU, latency, and a storm of histories. `--channels 100 --storm 10` takes minutes less.
bench-whatsapp *arguments:
    cargo build --release --locked -p shardvisor -p bench --features shardvisor/loopback,bench/whatsapp
    target/release/bench-whatsapp --daemon target/release/shardvisor {{arguments}}

# Encrypted messages read by a device on shardvisor, its session durable, beside one on Baileys: CPU a message of each kind.
bench-signal *arguments:
    tests/foreign/install
    cargo build --release --locked -p shardvisor -p bench --features shardvisor/loopback,bench/whatsapp
    target/release/bench-signal --daemon target/release/shardvisor --node target/foreign {{arguments}}

# Jobs a second through a shard, every step of each on the disk.
bench-jobs *arguments:
    cargo run --release --locked -p bench --bin bench-jobs -- {{arguments}}

# Jobs through RabbitMQ and Redis beside the client alone and beside BullMQ; latency; leases. `--only raw,ours` takes parts of it.
bench-queue *arguments:
    bench/queue/bullmq/install
    cargo run --release --locked -p bench --bin bench-queue -- --bullmq "$PWD/target/bullmq" {{arguments}}

# Jobs through two shards while those are killed, the broker is restarted twice and Redis once. `--platform telegram`, `--jobs N`, `--seed N`.
chaos *arguments:
    cargo build --release --locked -p shardvisor -p bench
    target/release/bench-chaos {{arguments}}

# The sample configuration, from the code.
sample-config:
    cargo run --quiet -- check-config --template > packaging/shardvisor.toml

# A release: built twice and compared, a deb and an rpm, the bill of materials, checksums, bars. Wants a committed tree.
release *arguments:
    cargo cyclonedx --version >/dev/null || cargo install --locked cargo-cyclonedx
    packaging/release {{arguments}}
