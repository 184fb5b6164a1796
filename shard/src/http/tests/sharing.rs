//! Several sockets on one port: steering, leaving, joining.

use super::*;

async fn who_answers(address: SocketAddr, probes: u32) -> BTreeMap<String, u32> {
    let ask = move || {
        let mut seen = BTreeMap::new();
        for _ in 0..probes {
            let (_, _, body) = request(address, "GET", "/status").expect("answer");
            let body: Value = serde_json::from_str(&body).expect("json");
            *seen.entry(body["name"].as_str().expect("name").to_owned()).or_default() += 1;
        }
        seen
    };
    tokio::task::spawn_blocking(ask).await.expect("task")
}

/// Contract: P4.
#[tokio::test]
async fn new_connections_go_where_they_are_steered() {
    let claim = PortClaim::new(loopback()).expect("port");
    let mut group = Group::default();
    let mut threads = Vec::new();
    for name in ["a", "b", "c"] {
        let thread = thread_at(claim.address(), Sharing::Group, quick(), name);
        thread.listen().await.expect("listens");
        group.joined(name);
        threads.push(thread);
    }
    let spread = who_answers(claim.address(), 200).await;
    assert_eq!(spread.len(), 3, "{spread:?}");
    // Any member may attach it, also the one that is steered away from.
    let without_b = group.indices(|name| *name != "b").expect("known");
    threads[2].steer(&without_b, 3).await.expect("steered");
    let spread = who_answers(claim.address(), 200).await;
    assert!(!spread.contains_key("b") && spread["a"] > 50 && spread["c"] > 50, "{spread:?}");
    // The first one leaves, the last one takes its place.
    threads[0].leave().await.expect("left");
    group.left(&"a");
    threads[1].steer(&group.indices(|name| *name == "c").expect("known"), 2).await.expect("steered");
    assert_eq!(who_answers(claim.address(), 50).await, BTreeMap::from([("c".to_owned(), 50)]));
    threads[1].unsteer().await.expect("unsteered");
    threads[1].unsteer().await.expect("nothing to take away");
    assert_eq!(who_answers(claim.address(), 200).await.len(), 2);
}

/// What probes saw.
#[derive(Default)]
struct Seen {
    answered: AtomicU64,
    failed: std::sync::Mutex<Vec<String>>,
}

/// Probes without pause until it is told to stop, on new connections or on one as long as it is kept.
fn hammer(address: SocketAddr, keep: bool, stop: &AtomicBool, most: u64, seen: &Seen) {
    let mut kept: Option<TcpStream> = None;
    while !stop.load(Ordering::Relaxed) && seen.answered.load(Ordering::Relaxed) < most {
        let outcome = (|| -> io::Result<()> {
            let mut stream = match kept.take() {
                Some(stream) => stream,
                None => connect(address)?,
            };
            let answer = probe_once(&mut stream)?;
            if keep && !answer.contains("connection: close") {
                kept = Some(stream);
            }
            Ok(())
        })();
        match outcome {
            Ok(()) => drop(seen.answered.fetch_add(1, Ordering::Relaxed)),
            Err(error) => seen.failed.lock().expect("failures").push(error.to_string()),
        }
    }
}

/// Contract: P4. Members leave and join 20 times under load: nothing is refused, reset or cut off.
#[tokio::test]
async fn a_rolling_restart_under_load_loses_no_probe() {
    let claim = PortClaim::new(loopback()).expect("port");
    let address = claim.address();
    let mut group = Group::default();
    let mut members = BTreeMap::new();
    for id in 0..2_u32 {
        let thread = thread_at(address, Sharing::Group, quick(), "member");
        thread.listen().await.expect("listens");
        group.joined(id);
        members.insert(id, thread);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::new(Seen::default());
    let hammers: Vec<_> = (0..6)
        .map(|n| {
            let (stop, seen) = (stop.clone(), seen.clone());
            std::thread::spawn(move || hammer(address, n % 3 == 2, &stop, 20_000, &seen))
        })
        .collect();
    for round in 0..20 {
        let (old, new) = (round, round + 2);
        let leaver = members.remove(&old).expect("member");
        let stays = group.indices(|id| *id != old).expect("known");
        leaver.steer(&stays, group.len() as u32).await.expect("steered");
        let left = leaver.leave().await.expect("left");
        assert_eq!(left.cut_off, 0);
        group.left(&old);
        members[&(old + 1)].unsteer().await.expect("unsteered");
        let thread = thread_at(address, Sharing::Group, quick(), "member");
        thread.listen().await.expect("listens");
        group.joined(new);
        members.insert(new, thread);
    }
    stop.store(true, Ordering::Relaxed);
    for hammer in hammers {
        hammer.join().expect("hammer");
    }
    let failed = seen.failed.lock().expect("failures");
    let answered = seen.answered.load(Ordering::Relaxed);
    assert!(failed.is_empty(), "{} of {answered} probes failed: {:?}", failed.len(), &failed[..failed.len().min(5)]);
    println!("{answered} probes over 20 restarts, none lost");
    assert!(answered > 500, "hardly any load: {answered}");
}
