//! A view of a PostgreSQL database as a directory: `shardvisor_channels`, a channel a row, only ever read.
//!
//! A row is an entry like one of the API's, with `handler_url` and `handler_secret` as columns of their own; a token in a column of
//! bytes is sealed by the key file. Each question has a connection of its own, which costs little at intervals and survives
//! failovers and poolers; one more listens for `NOTIFY shardvisor_channels`.

mod listen;

use std::{fmt, time::Duration};

use async_trait::async_trait;
use futures_util::TryStreamExt;
use sqlx::{
    ConnectOptions, Connection, Executor, Row,
    postgres::{PgConnectOptions, PgConnection, PgRow},
};
use tokio::time::timeout;
use url::Url;

use self::listen::Ear;
use super::{Answer, BadEntry, DirectoryError, Entry, Source};
use crate::keyring::Keyring;

/// How long a connection may take, and an answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The most rows of an answer, and the most bytes.
const MOST_ENTRIES: usize = 100_000;
const MOST_BYTES: usize = 64 << 20;

/// The server sees to it that nothing is written and that a question nobody waits for ends, and writes bytes in one form.
const BEFORE: &str = "BEGIN READ ONLY; SET LOCAL statement_timeout = 10000; SET LOCAL bytea_output = 'hex'";
const ASK: &str = "SELECT to_jsonb(c)::text FROM (SELECT * FROM shardvisor_channels LIMIT 100001) c";

/// Which database, and as whom.
#[derive(Clone)]
pub struct PostgresConfig {
    options: PgConnectOptions,
    shown: String,
}

impl PostgresConfig {
    /// Reads `postgres://user:password@host:port/database?sslmode=verify-full`; what is wrong is told without it.
    pub fn new(text: &str) -> Result<Self, String> {
        let url = Url::parse(text).map_err(|error| error.to_string())?;
        if !matches!(url.scheme(), "postgres" | "postgresql") {
            return Err("no postgres: URL".to_owned());
        }
        if url.path().trim_matches('/').is_empty() {
            return Err("names no database".to_owned());
        }
        let options: PgConnectOptions =
            text.parse().map_err(|_| "has a parameter that is not understood".to_owned())?;
        let options = options.application_name("shardvisor").extra_float_digits(None).disable_statement_logging();
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let shown = format!("postgres://{}{port}{}", url.host_str().unwrap_or_default(), url.path());
        Ok(Self { options, shown })
    }

    /// The address without credentials.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// Whether a URL holds a password.
    pub fn holds_password(text: &str) -> bool {
        Url::parse(text).is_ok_and(|url| {
            url.password().is_some() || url.query_pairs().any(|(name, _)| name.eq_ignore_ascii_case("password"))
        })
    }
}

impl fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PostgresConfig").field(&self.shown).finish()
    }
}

/// The database.
pub struct PostgresSource {
    config: PostgresConfig,
    ear: Ear,
}

impl PostgresSource {
    /// Opens no connection yet.
    pub fn new(config: PostgresConfig) -> Self {
        Self { ear: Ear::new(config.options.clone()), config }
    }

    async fn rows(&self, keys: &Keyring) -> Result<Vec<Result<Entry, BadEntry>>, DirectoryError> {
        let late = |_| DirectoryError::Unavailable(format!("no connection within {CONNECT_TIMEOUT:?}"));
        let connected = timeout(CONNECT_TIMEOUT, PgConnection::connect_with(&self.config.options));
        let mut connection = connected.await.map_err(late)?.map_err(unavailable)?;
        connection.execute(sqlx::raw_sql(BEFORE)).await.map_err(unavailable)?;
        let mut entries = Vec::new();
        let mut bytes = 0;
        {
            let mut rows = connection.fetch(sqlx::raw_sql(ASK));
            while let Some(row) = rows.try_next().await.map_err(unavailable)? {
                let text = text(&row)?;
                bytes += text.len();
                if entries.len() == MOST_ENTRIES || bytes > MOST_BYTES {
                    return Err(DirectoryError::Nonsense(format!(
                        "more than {MOST_ENTRIES} rows, or {MOST_BYTES} bytes"
                    )));
                }
                let value = serde_json::from_str(text)
                    .map_err(|_| DirectoryError::Nonsense("a row that can't be read".to_owned()))?;
                entries.push(Entry::read(entries.len() + 1, &value, keys));
            }
        }
        // The answer is there: how the connection ends changes nothing about it.
        let _ = connection.close().await;
        Ok(entries)
    }
}

fn text(row: &PgRow) -> Result<&str, DirectoryError> {
    row.try_get(0).map_err(|_| DirectoryError::Nonsense("a row that can't be read".to_owned()))
}

/// Classes of errors whose text names relations, users and conditions of the server; others may repeat what a row holds.
const PLAIN: [&str; 6] = ["08", "28", "3D", "42", "53", "57"];

/// What the server or the network said, without a password or a row.
fn unavailable(error: sqlx::Error) -> DirectoryError {
    let what = match &error {
        sqlx::Error::Database(refused) => {
            let code = refused.code().unwrap_or_default();
            if PLAIN.iter().any(|class| code.starts_with(class)) {
                refused.message().to_owned()
            } else {
                format!("the view can't be read (SQLSTATE {code})")
            }
        }
        sqlx::Error::Io(broken) => format!("no connection: {broken}"),
        sqlx::Error::Tls(broken) => format!("no secure connection: {broken}"),
        _ => "the connection broke".to_owned(),
    };
    DirectoryError::Unavailable(what)
}

#[async_trait]
impl Source for PostgresSource {
    fn kind(&self) -> &'static str {
        "postgres"
    }

    fn name(&self) -> String {
        self.config.shown.clone()
    }

    async fn ask(&self, keys: &Keyring) -> Result<Answer, DirectoryError> {
        let late = |_| DirectoryError::Unavailable(format!("no answer within {ANSWER_TIMEOUT:?}"));
        Ok(Answer::of(timeout(ANSWER_TIMEOUT, self.rows(keys)).await.map_err(late)??))
    }

    async fn changed(&self) {
        self.ear.heard().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_credentials_and_refused_without_repeating_it() {
        let url = "postgres://me:hunter2@db:5433/platform?sslmode=verify-full";
        let config = PostgresConfig::new(url).expect("read");
        assert_eq!(config.shown(), "postgres://db:5433/platform");
        assert!(!format!("{config:?}").contains("hunter2"));
        assert!(PostgresConfig::holds_password(url) && PostgresConfig::holds_password("postgres://db/x?password=p"));
        assert!(!PostgresConfig::holds_password("postgres://me@db/x"));
        for wrong in ["postgres://me:hunter2@db", "postgres://me:hunter2@db/x?sslmode=hunter2", "mysql://a:hunter2@b/c"]
        {
            let problem = PostgresConfig::new(wrong).expect_err(wrong);
            assert!(!problem.contains("hunter2"), "{problem}");
        }
    }
}
