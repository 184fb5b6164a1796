//! What lies in the files. A migration is a text that is never changed once it was released; the next one is appended.

/// Which of the two kinds of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `queue.db` or `queue-<i>.db`: all that one slot's process writes on its hot path.
    Slot,
    /// `box.db`: what the processes of a box share.
    Box,
}

impl Kind {
    /// SQLite's `application_id`, by which a file of another kind is told.
    pub(super) fn application_id(self) -> i64 {
        match self {
            Self::Slot => 0x7368_7651,
            Self::Box => 0x7368_7642,
        }
    }

    /// All migrations, oldest first; `user_version` counts those applied.
    pub(super) fn migrations(self) -> &'static [&'static str] {
        match self {
            Self::Slot => &[SLOT_1, SLOT_2],
            Self::Box => &[BOX_1, BOX_2],
        }
    }
}

/// `jobs.id` is the base's number in the high bits and a place that only grows in the low ones: each queue is one range
/// of one tree, read in order without an index. `queues.last_id` gives the places; `queues.out_mark` is a bound of what
/// may have been handed out. The rest of a channel is one row, so that a fenced write dirties one page for it.
const SLOT_1: &str = "
CREATE TABLE owner (
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    incarnation INTEGER NOT NULL,
    drainer     INTEGER NOT NULL,
    token       INTEGER NOT NULL,
    imported    INTEGER
);
INSERT INTO owner VALUES (1, 0, 0, 0, NULL);

CREATE TABLE queues (
    base     INTEGER PRIMARY KEY,
    last_id  INTEGER NOT NULL,
    out_mark INTEGER NOT NULL
);
CREATE TABLE jobs (
    id      INTEGER PRIMARY KEY,
    headers TEXT,
    body    BLOB NOT NULL
);
CREATE TABLE parked (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    base    INTEGER NOT NULL,
    lane    TEXT NOT NULL,
    seq     INTEGER NOT NULL,
    out_by  INTEGER,
    headers TEXT,
    body    BLOB NOT NULL
);
CREATE INDEX parked_place ON parked (base, lane, seq);
CREATE TABLE dead (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    base    INTEGER NOT NULL,
    headers TEXT,
    body    BLOB NOT NULL
);

CREATE TABLE channels (
    channel BLOB PRIMARY KEY,
    token   INTEGER NOT NULL,
    seq     INTEGER NOT NULL DEFAULT 0,
    read_to INTEGER
) WITHOUT ROWID;

CREATE TABLE guard (
    job         TEXT PRIMARY KEY,
    channel     BLOB NOT NULL,
    state       INTEGER NOT NULL,
    worker      TEXT NOT NULL,
    incarnation INTEGER NOT NULL,
    provider_id TEXT,
    result      TEXT,
    at_ms       INTEGER NOT NULL,
    uncertain_ms INTEGER
) WITHOUT ROWID;
CREATE TABLE lanes (
    base     INTEGER NOT NULL,
    lane     TEXT NOT NULL,
    channel  BLOB NOT NULL,
    chat     TEXT,
    head     TEXT NOT NULL,
    due_ms   INTEGER NOT NULL,
    next_seq INTEGER NOT NULL,
    PRIMARY KEY (base, lane)
) WITHOUT ROWID;
CREATE TABLE deaths (
    job     TEXT PRIMARY KEY,
    channel BLOB NOT NULL,
    deaths  INTEGER NOT NULL,
    at_ms   INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE outbox (
    position INTEGER PRIMARY KEY,
    id       BLOB NOT NULL,
    channel  BLOB NOT NULL,
    seq      INTEGER NOT NULL,
    handler  INTEGER,
    endpoint INTEGER,
    at_ms    INTEGER NOT NULL,
    event    BLOB NOT NULL
);
CREATE TABLE kept (
    position INTEGER PRIMARY KEY,
    id       BLOB NOT NULL,
    channel  BLOB NOT NULL,
    seq      INTEGER NOT NULL,
    at_ms    INTEGER NOT NULL,
    event    BLOB NOT NULL
);
CREATE TABLE dead_events (
    number      INTEGER PRIMARY KEY,
    id          BLOB NOT NULL,
    destination INTEGER NOT NULL,
    channel     BLOB NOT NULL,
    seq         INTEGER NOT NULL,
    attempts    INTEGER NOT NULL,
    reason      TEXT NOT NULL,
    event       BLOB NOT NULL,
    UNIQUE (id, destination)
);
CREATE TABLE placed (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    id      BLOB NOT NULL UNIQUE,
    channel BLOB NOT NULL,
    seq     INTEGER,
    at_ms   INTEGER NOT NULL
);
CREATE TABLE seen_0 (id BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE seen_1 (id BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE outbox_state (
    one           INTEGER PRIMARY KEY CHECK (one = 1),
    last_position INTEGER NOT NULL,
    generation    INTEGER NOT NULL,
    since_ms      INTEGER NOT NULL,
    began_at      INTEGER NOT NULL
);
INSERT INTO outbox_state VALUES (1, 0, 0, 0, 0);
";

/// Device sessions. Names and values are sealed; `at` is a time by which rows of some kinds are pruned. `seq` counts the
/// changes of a session, and `token` is that of whoever made the last one.
const SLOT_2: &str = "
CREATE TABLE sessions (
    channel    BLOB PRIMARY KEY,
    seq        INTEGER NOT NULL,
    token      INTEGER NOT NULL,
    key_id     TEXT NOT NULL,
    sealed_key BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE session_rows (
    id      INTEGER PRIMARY KEY,
    channel BLOB NOT NULL,
    kind    INTEGER NOT NULL,
    scope   BLOB NOT NULL,
    name    BLOB NOT NULL,
    at      INTEGER NOT NULL,
    value   BLOB NOT NULL
);
CREATE UNIQUE INDEX session_rows_place ON session_rows (channel, kind, scope, name);
";

/// A lease's end is its holder's: one row is renewed, however many leases there are. `leases` rows are never removed,
/// so that a token never comes again.
const BOX_1: &str = "
CREATE TABLE incarnations (
    worker TEXT PRIMARY KEY,
    last   INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE holders (
    worker      TEXT NOT NULL,
    incarnation INTEGER NOT NULL,
    boot_id     TEXT NOT NULL,
    expires_ms  INTEGER NOT NULL,
    lost        INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (worker, incarnation)
) WITHOUT ROWID;
CREATE TABLE leases (
    resource    TEXT PRIMARY KEY,
    token       INTEGER NOT NULL,
    worker      TEXT,
    incarnation INTEGER
) WITHOUT ROWID;
CREATE TABLE layout (
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    shard_count INTEGER NOT NULL,
    epoch       INTEGER NOT NULL,
    before      INTEGER
);
CREATE TABLE swept (
    shard INTEGER PRIMARY KEY,
    epoch INTEGER NOT NULL
);
CREATE TABLE directory (
    channel    BLOB PRIMARY KEY,
    platform   TEXT NOT NULL,
    enabled    INTEGER NOT NULL,
    label      TEXT,
    handler    TEXT NOT NULL,
    url        TEXT,
    token      BLOB,
    secret     BLOB,
    key_id     TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE directory_version (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL
);
INSERT INTO directory_version VALUES (1, 1);
CREATE TABLE event_marks (
    number INTEGER PRIMARY KEY,
    id     BLOB NOT NULL UNIQUE,
    mark   TEXT NOT NULL,
    at_ms  INTEGER NOT NULL
);
CREATE TABLE outbox_notes (
    outbox TEXT NOT NULL,
    key    TEXT NOT NULL,
    note   TEXT NOT NULL,
    PRIMARY KEY (outbox, key)
) WITHOUT ROWID;
";

/// What is kept of a directory that lies elsewhere: its last good answer (`listed`: 0 disabled, 1 enabled, 2 left alone), what
/// jobs of this box set against it while it said `listed`, and which channels it forgot and yet go on.
const BOX_2: &str = "
CREATE TABLE directory_source (
    one    INTEGER PRIMARY KEY CHECK (one = 1),
    source TEXT NOT NULL
);
CREATE TABLE directory_kept (
    channel BLOB PRIMARY KEY,
    listed  INTEGER NOT NULL,
    key_id  TEXT NOT NULL,
    sealed  BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE directory_set (
    channel BLOB PRIMARY KEY,
    enabled INTEGER NOT NULL,
    listed  INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE directory_held (
    channel   BLOB PRIMARY KEY,
    confirmed INTEGER NOT NULL
) WITHOUT ROWID;
";
