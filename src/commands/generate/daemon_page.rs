//! shardvisor(8): the daemon, for whoever runs it.

use super::roff::Page;
use crate::exit;

pub(super) fn text() -> String {
    let mut page = Page::new("shardvisor", 8, "keeps hundreds of chat connections alive on one small box");
    page.section("SYNOPSIS");
    page.example(
        "shardvisor run [--config FILE] [--data-dir DIR] [--shard-count N] [--shard-index I] [--health-port PORT]",
    );
    page.section("DESCRIPTION");
    page.text(
        "shardvisor run is the daemon. With SHARD_COUNT above 1 a primary starts that many shards and keeps them alive: each \
         holds its share of the channels, consumes its queues, and answers on the one health port. With SHARD_INDEX set, or \
         with one shard, the process is that shard itself.",
    );
    page.text(
        "Channels are added by shardvisor channel add, or come from the directory that directory.url names; jobs come by shardvisor send or a producer's client; events go to each \
         channel's handler and to events.url. All settings are in shardvisor.toml(5).",
    );
    page.section("SIGNALS");
    page.term("SIGTERM, SIGINT", "Stop in order: nothing new is begun, what runs may end, the rest goes back to its queue. A second one ends everything at once.");
    page.term("SIGHUP", "Replace one shard after the other, the next when the last is ready. A shard without a primary reads its configuration again and drops no connection. shardvisor reload does the same as the first, and waits until it is done.");
    page.section("EXIT STATUS");
    for (status, meaning) in exit::STATUSES {
        page.term(&status.to_string(), meaning);
    }
    page.section("FILES");
    page.term("/etc/shardvisor/shardvisor.toml", "The configuration.");
    page.term(
        "/etc/shardvisor/shard-<i>.env",
        "The environment of the static shard i, read by the unit shardvisor-shard@<i>.service.",
    );
    page.term("/var/lib/shardvisor", "The data directory: box.db (channels and ownership), queue.db or queue-<i>.db (jobs, events, what was sent), secret.key (by which tokens are encrypted), slot-<i>.lock, control.sock. Keep secret.key with the rest: without it no token can be read.");
    page.section("SYSTEMD");
    page.text(
        "The unit is shardvisor.service; the primary alone notifies and pets the watchdog. systemctl reload waits until the last \
         shard is replaced. A secret is given as a credential, for example with LoadCredential=events-secret:/path in a drop-in.",
    );
    page.section("HEALTH");
    page.text("On HEALTH_PORT (8080): /healthz, /readyz, /metrics, /status. Whichever shard answers speaks for the whole box.");
    page.section("SEE ALSO");
    page.text("shardvisor(1), shardvisor.toml(5), systemctl(1)");
    page.done()
}
