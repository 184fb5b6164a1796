//! PostgreSQL: the documented view, read as it is filled, and its notifications. Without a server's programs it is skipped.

use shard::{
    directory::{
        Directory, Handler,
        postgres::{PostgresConfig, PostgresSource},
    },
    keyring::Keyring,
    secret::Secret,
};

use super::{TOKEN, care::Logged, follow, id, listed, running, stale};
use crate::{
    embedded::data_dir,
    postgres::{PASSWORD, Postgres},
    suites::{nothing, within},
};

/// A table as a platform may have it, the view as documentation asks for it, and a trigger that tells of each change.
const VIEW: &str = "
    CREATE TABLE bots (id uuid PRIMARY KEY, platform text NOT NULL, token text, handler text, enabled boolean DEFAULT true);
    CREATE VIEW shardvisor_channels AS SELECT *, 'a label'::text AS label, now() AS updated_at FROM bots;
    CREATE FUNCTION told() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN NOTIFY shardvisor_channels; RETURN NULL; END $$;
    CREATE TRIGGER told AFTER INSERT OR UPDATE OR DELETE ON bots FOR EACH STATEMENT EXECUTE FUNCTION told();";

fn add(server: &Postgres, number: u128) {
    server.sql(&format!("INSERT INTO bots VALUES ('{}', 'telegram', '{TOKEN}', 'echo')", id(number)));
}

fn source(server: &Postgres) -> PostgresSource {
    PostgresSource::new(PostgresConfig::new(&server.url).expect("an address"))
}

/// Contract: C2.
#[tokio::test]
async fn a_row_is_a_channel_and_a_notification_is_heard_at_once() {
    let Some(server) = Postgres::start() else { return };
    server.sql(VIEW);
    add(&server, 1);
    let dir = data_dir();
    let (directory, _) = follow(dir.path(), source(&server));
    let specs = directory.channels().await.expect("listed");
    assert_eq!(specs.len(), 1);
    assert_eq!((&specs[0].token, &specs[0].handler), (&Some(Secret::new(TOKEN)), &Handler::Echo));
    assert_eq!(specs[0].label.as_deref(), Some("a label"));
    within("the beginning: something may have changed before", directory.changed()).await;
    nothing("before a change", directory.changed()).await;
    add(&server, 2);
    within("a new row", directory.changed()).await;
    assert_eq!(listed(&directory).await, running(1..3));
    server.sql(&format!("UPDATE bots SET enabled = false WHERE id = '{}'", id(1)));
    within("a changed row", directory.changed()).await;
    assert_eq!(listed(&directory).await, [(1, false), (2, true)].into());
    server.sql(&format!("DELETE FROM bots WHERE id = '{}'", id(1)));
    within("a row that is gone", directory.changed()).await;
    assert_eq!(listed(&directory).await, running([2]));
}

/// Contract: C2.
#[tokio::test]
async fn a_server_that_stops_stops_nothing_and_is_heard_again_when_it_is_back() {
    let Some(server) = Postgres::start() else { return };
    let (_log, logged) = Logged::new();
    server.sql(VIEW);
    add(&server, 1);
    let dir = data_dir();
    let (directory, _) = follow(dir.path(), source(&server));
    assert_eq!(listed(&directory).await, running([1]));
    within("the beginning", directory.changed()).await;
    server.down();
    nothing("while it is away", directory.changed()).await;
    for _ in 0..2 {
        let (why, last) = stale(directory.channels().await);
        assert!(why.contains("no connection"), "{why}");
        assert_eq!(last, running([1]));
    }
    server.up();
    within("its return", directory.changed()).await;
    add(&server, 2);
    within("a new row", directory.changed()).await;
    assert_eq!(listed(&directory).await, running(1..3));
    assert_eq!((logged.count("are not heard"), logged.count("are heard again")), (1, 1), "{}", logged.text());
    server.sql("DELETE FROM bots");
    assert_eq!(listed(&directory).await, running(1..3), "an empty table is a mistake until it is confirmed");
}

/// Contract: C2. Whatever the database says, no password and no token is repeated.
#[tokio::test]
async fn what_is_wrong_with_a_database_is_one_line_without_secrets() {
    let Some(server) = Postgres::start() else { return };
    let (_log, logged) = Logged::new();
    let dir = data_dir();
    let mut told = String::new();
    let mut problem = async |directory: &shard::directory::RemoteDirectory, says: &str| {
        let error = directory.channels().await.expect_err("wrong").to_string();
        assert!(error.contains(says) && !error.contains('\n'), "{error}");
        told += &error;
    };
    problem(&follow(dir.path(), source(&server)).0, "\"shardvisor_channels\" does not exist").await;
    let wrong = server.url.replace(PASSWORD, "wr0ng-hunter2");
    let stranger = PostgresSource::new(PostgresConfig::new(&wrong).expect("an address"));
    problem(&follow(dir.path(), stranger).0, "password authentication failed").await;
    server.sql(&format!("CREATE VIEW shardvisor_channels AS SELECT '{TOKEN}'::text::int AS id"));
    problem(&follow(dir.path(), source(&server)).0, "SQLSTATE 22P02").await;
    server.sql(
        "DROP VIEW shardvisor_channels; CREATE VIEW shardvisor_channels AS
        SELECT gen_random_uuid() AS id, 'msn'::text AS platform, 'p0stgres-hunter2'::text AS token",
    );
    let (directory, metrics) = follow(dir.path(), source(&server));
    assert_eq!(listed(&directory).await, running([]));
    assert_eq!(metrics.directory_refused.get(), 1);
    told += &logged.text();
    assert!(told.contains("platform: expected"), "{told}");
    assert!(!told.contains("s3cret") && !told.contains("hunter2") && !told.contains("postgres://"), "{told}");
}

/// Contract: C2. The database need not hold a token in the open.
#[tokio::test]
async fn a_token_may_be_sealed_by_the_key_file() {
    let Some(server) = Postgres::start() else { return };
    let dir = data_dir();
    let keys = Keyring::open(&dir.path().join("secret.key")).expect("made");
    let hex = |number: u128| {
        let sealed = keys.seal(id(number), "token", &Secret::new(TOKEN)).expect("sealed");
        sealed.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    server
        .sql("CREATE TABLE shardvisor_channels (id uuid, platform text, token bytea, handler text, handler_url text)");
    for (row, number) in [(1, 1), (2, 2), (3, 1)] {
        // The third is sealed for another channel.
        let row = format!("('{}', 'telegram', '\\x{}', 'agent', 'https://agent/')", id(row), hex(number));
        server.sql(&format!("INSERT INTO shardvisor_channels VALUES {row}"));
    }
    let (directory, metrics) = follow(dir.path(), source(&server));
    let specs = directory.channels().await.expect("listed");
    assert_eq!(specs.iter().map(|spec| spec.token.clone()).collect::<Vec<_>>(), vec![Some(Secret::new(TOKEN)); 2]);
    assert_eq!(metrics.directory_refused.get(), 1);
}
