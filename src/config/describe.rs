//! The effective layout as one line, for the log of the primary and of each shard, without credentials.

use shard::identity::QueueBase;

use super::Config;

impl Config {
    /// Count, index, queues, placement, addresses: what an operator compares with the producers' own line.
    /// `index` is `None` for the primary, which serves no queue.
    pub(crate) fn layout_line(&self, index: Option<u32>) -> String {
        let who = match index {
            None => format!("primary of {} shards", self.shard_count),
            Some(index) => format!("shard {index} of {}", self.shard_count),
        };
        let first = index.unwrap_or(0);
        let last = index.unwrap_or(self.shard_count - 1);
        let queues: Vec<String> = QueueBase::ALL.iter().map(|base| self.queues(*base, first, last)).collect();
        format!(
            "layout: {who}, queues {}, placement by the first 32 bits of the channel id modulo {}, queue {}, \
             registry {}, directory {}, data in {}, health on {}:{}, at most {} channels a shard, memory of a shard {}",
            queues.join(" "),
            self.shard_count,
            self.queue.at.describe(),
            self.registry.at.describe(),
            self.directory.at.describe(),
            self.data_dir.display(),
            self.health.bind,
            self.health.port,
            self.bot_worker.worker_capacity,
            self.supervisor.shard_memory_limit.map_or("unlimited".to_owned(), |bytes| format!("{}M", bytes >> 20)),
        )
    }

    fn queues(&self, base: QueueBase, first: u32, last: u32) -> String {
        let name = self.shard(first).queue(base).to_string();
        if first == last { name } else { format!("{name}..{last}") }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Sources};

    fn config(count: &str) -> Config {
        let env = [("SHARD_COUNT", count), ("SHARDVISOR_CONFIG", "/dev/null"), ("WORKER_ID", "box")];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        Config::load(&Sources { env, ..Sources::default() }).expect("valid")
    }

    /// Contract: I4.
    #[test]
    fn the_layout_names_count_index_and_queues() {
        let line = config("2").layout_line(Some(1));
        assert!(line.contains("shard 1 of 2, queues whatsapp-1 whatsapp_media-1 whatsapp_avatars-1,"), "{line}");
        let line = config("3").layout_line(None);
        assert!(line.contains("primary of 3 shards, queues whatsapp-0..2 whatsapp_media-0..2"), "{line}");
        let line = config("1").layout_line(Some(0));
        assert!(line.contains("shard 0 of 1, queues whatsapp whatsapp_media whatsapp_avatars,"), "{line}");
    }

    /// Contract: W1.
    #[test]
    fn worker_ids_are_numbered_when_there_are_several_shards() {
        assert_eq!(config("1").worker_id_of(0), "box");
        assert_eq!(config("2").worker_id_of(1), "box-1");
    }
}
