//! What happened lately, within bounds.

use std::{
    collections::{HashSet, VecDeque},
    hash::Hash,
};

/// Ids of events whose delivery or removal is remembered, in case they come again.
pub(super) const REMEMBERED: usize = 8192;

/// A bounded memory: the oldest goes.
#[derive(Debug)]
pub(super) struct Recent<K>(HashSet<K>, VecDeque<K>);

impl<K: Hash + Eq + Clone> Default for Recent<K> {
    fn default() -> Self {
        Self(HashSet::new(), VecDeque::new())
    }
}

impl<K: Hash + Eq + Clone> Recent<K> {
    pub(super) fn add(&mut self, key: K) {
        if self.0.insert(key.clone()) {
            self.1.push_back(key);
        }
        if self.1.len() > REMEMBERED
            && let Some(oldest) = self.1.pop_front()
        {
            self.0.remove(&oldest);
        }
    }

    pub(super) fn has(&self, key: &K) -> bool {
        self.0.contains(key)
    }
}
