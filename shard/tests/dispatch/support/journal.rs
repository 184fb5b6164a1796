//! What happened, and when: printed when a run has gone wrong, since a seed alone does not bring back how its processes
//! were scheduled.

use std::{sync::Mutex, time::Instant};

struct Entry {
    at: Instant,
    process: String,
    what: String,
}

/// The journal of a world.
pub(crate) struct Journal {
    began: Instant,
    entries: Mutex<Vec<Entry>>,
}

impl Default for Journal {
    fn default() -> Self {
        Self { began: Instant::now(), entries: Mutex::default() }
    }
}

impl Journal {
    /// Notes something that this thread's process does, or has done to it.
    pub(crate) fn note(&self, what: impl Into<String>) {
        let process = std::thread::current().name().filter(|name| name.starts_with("shard-")).unwrap_or("-").to_owned();
        self.entries.lock().expect("journal").push(Entry { at: Instant::now(), process, what: what.into() });
    }

    /// Prints whatever mentions one of these, as a word.
    pub(crate) fn print(&self, words: &[&str]) {
        for Entry { at, process, what } in self.entries.lock().expect("journal").iter() {
            if what.split(' ').any(|word| words.contains(&word)) {
                eprintln!("{:>10.1} ms {process:14} {what}", (*at - self.began).as_secs_f64() * 1e3);
            }
        }
    }
}
