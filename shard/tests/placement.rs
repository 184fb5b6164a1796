//! The ring beside one written in Python, as other programs compute it.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use md5::{Digest, Md5};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::SliceRandom};
use shard::placement::{REPLICAS, Ring};

const IDS: usize = 10_000;
const MEMBERSHIPS: usize = 1_000;
/// Ids asked of each membership: every id is asked of twenty.
const ASKED: usize = 200;

/// Contract: W2. The owner of each of 10,000 ids, over 1,000 memberships of 1 to 16 workers.
#[test]
fn a_ring_in_python_names_the_same_owners() {
    let mut rng = StdRng::seed_from_u64(20);
    let ids: Vec<String> = (0..IDS).map(|_| uuid::Uuid::from_u128(rng.random()).to_string()).collect();
    let pool: Vec<String> = (0..40).map(|n| format!("box{}-{n}", rng.random_range(0..9))).collect();
    let (mut questions, mut ours) = (String::new(), Vec::new());
    for round in 0..MEMBERSHIPS {
        let mut workers: Vec<&str> = pool.iter().map(String::as_str).collect();
        workers.shuffle(&mut rng);
        workers.truncate(rng.random_range(1..=16));
        let asked: Vec<&str> = (0..ASKED).map(|n| ids[(round * IDS / MEMBERSHIPS + n) % IDS].as_str()).collect();
        questions.push_str(&format!("{}\t{}\n", workers.join(","), asked.join(",")));
        let ring = Ring::new(workers, REPLICAS);
        let owners: Vec<_> = asked.iter().map(|id| ring.owner(id).expect("an owner")).collect();
        ours.push(Md5::digest(owners.join(",")).iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    }
    let oracle = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/ring.py");
    let mut python =
        Command::new("python3").arg(oracle).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3");
    let mut stdin = python.stdin.take().expect("piped");
    let writing = std::thread::spawn(move || stdin.write_all(questions.as_bytes()));
    let output = python.wait_with_output().expect("ended");
    writing.join().expect("joined").expect("written");
    let theirs: Vec<_> = std::str::from_utf8(&output.stdout).expect("text").lines().collect();
    assert_eq!(theirs, ours);
}
