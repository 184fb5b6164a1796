//! Making a connection: which server it is, who we are, and whether it can be a registry at all.
//!
//! A replica, and a server that still loads, are no use now; a cluster and a version before 6 never are. A server that
//! may evict keys, or keeps nothing on disk, works, and is spoken of.

use std::{collections::HashMap, time::Duration};

use ::redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo, RedisError,
    aio::{MultiplexedConnection, PubSub},
    cmd,
    io::tcp::TcpSettings,
};

use super::{
    trouble::Trouble,
    url::{Host, Login, RedisUrl, Target},
};

/// How long a server may take to accept a connection.
const ACCEPT: Duration = Duration::from_secs(2);
/// How long one of several Sentinels may take to answer before the next is asked.
const SENTINEL: Duration = Duration::from_secs(1);
/// For so long what was sent over an older connection is told by its number.
const SESSION_SECONDS: u32 = 3600;
const OLDEST_MAJOR: u32 = 6;

/// A connection that may be used, and what is to be said of its server.
#[derive(Clone)]
pub(super) struct Opened {
    pub(super) connection: MultiplexedConnection,
    pub(super) report: Report,
}

/// What is to be said of a server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Report {
    pub(super) version: String,
    /// What it keeps on disk.
    pub(super) kept: String,
    pub(super) warnings: Vec<String>,
}

/// Connects, logs in and looks at the server; from then on commands of connections with a lower number are refused.
pub(super) async fn open(url: &RedisUrl, session_key: &str, number: u64) -> Result<Opened, Trouble> {
    let mut connection = connect(address(url).await?, &url.login).await?;
    if url.db != 0 {
        () = cmd("SELECT").arg(url.db).query_async(&mut connection).await.map_err(sorted)?;
    }
    let report = look(&mut connection).await?;
    let () = cmd("SET")
        .arg(session_key)
        .arg(number)
        .arg("EX")
        .arg(SESSION_SECONDS)
        .query_async(&mut connection)
        .await
        .map_err(sorted)?;
    Ok(Opened { connection, report })
}

/// A connection that hears what is told on channels.
pub(super) async fn subscribe(url: &RedisUrl, channels: &[String]) -> Result<PubSub, Trouble> {
    let info = address(url).await?.into_connection_info().map_err(sorted)?;
    let mut login = RedisConnectionInfo::default().set_skip_set_lib_name();
    if let Some(user) = &url.login.user {
        login = login.set_username(user);
    }
    if let Some(password) = &url.login.password {
        login = login.set_password(password.expose());
    }
    let client = Client::open(info.set_redis_settings(login)).map_err(sorted)?;
    let mut connection = client.get_async_pubsub().await.map_err(sorted)?;
    connection.subscribe(channels).await.map_err(sorted)?;
    Ok(connection)
}

/// Where the server is just now.
async fn address(url: &RedisUrl) -> Result<ConnectionAddr, Trouble> {
    Ok(match &url.target {
        Target::Server(host) => tcp(host, url.tls),
        Target::Socket(path) => ConnectionAddr::Unix(path.clone()),
        Target::Sentinel { hosts, service, login } => tcp(&primary(hosts, service, login, url.tls).await?, url.tls),
    })
}

fn sorted(error: RedisError) -> Trouble {
    Trouble::of(&error).0
}

fn tcp(host: &Host, tls: bool) -> ConnectionAddr {
    let (host, port) = (host.name.clone(), host.port);
    if tls {
        ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None }
    } else {
        ConnectionAddr::Tcp(host, port)
    }
}

async fn connect(address: ConnectionAddr, login: &Login) -> Result<MultiplexedConnection, Trouble> {
    let info = address.into_connection_info().map_err(sorted)?;
    let info = info
        .set_tcp_settings(TcpSettings::default().set_nodelay(true))
        .set_redis_settings(RedisConnectionInfo::default().set_skip_set_lib_name());
    // The caller of a command decides how long it waits.
    let config = AsyncConnectionConfig::new().set_connection_timeout(Some(ACCEPT)).set_response_timeout(None);
    let client = Client::open(info).map_err(sorted)?;
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await.map_err(sorted)?;
    if let Some(password) = &login.password {
        let mut auth = cmd("AUTH");
        if let Some(user) = &login.user {
            auth.arg(user);
        }
        let answer: Result<(), _> = auth.arg(password.expose()).query_async(&mut connection).await;
        if let Err(error) = answer {
            let trouble = sorted(error);
            return Err(if matches!(trouble, Trouble::Unavailable(_)) { trouble } else { Trouble::login() });
        }
    }
    Ok(connection)
}

/// Asks the Sentinels, one after another, for the primary of a service.
async fn primary(hosts: &[Host], service: &str, login: &Login, tls: bool) -> Result<Host, Trouble> {
    let mut trouble = Trouble::Unavailable("no Sentinel is named".to_owned());
    for host in hosts {
        let asked = tokio::time::timeout(SENTINEL, async {
            let mut connection = connect(tcp(host, tls), login).await?;
            let mut question = cmd("SENTINEL");
            question.arg("GET-MASTER-ADDR-BY-NAME").arg(service);
            let found: Option<(String, u16)> = question.query_async(&mut connection).await.map_err(sorted)?;
            found.ok_or_else(|| Trouble::Refused(format!("Sentinel {host} knows no service {service}")))
        });
        match asked.await {
            Ok(Ok((name, port))) => return Ok(Host { name, port }),
            Ok(Err(why)) => trouble = why,
            Err(_) => trouble = Trouble::Unavailable(format!("Sentinel {host} does not answer")),
        }
    }
    Err(trouble)
}

async fn look(connection: &mut MultiplexedConnection) -> Result<Report, Trouble> {
    let info: Result<String, RedisError> = cmd("INFO").query_async(connection).await;
    let info = match info {
        Ok(info) => info,
        Err(error) if error.code() == Some("NOPERM") => {
            let blind = "this user may not INFO: its eviction policy, its role and whether it lost data are not seen";
            return Ok(Report { warnings: vec![blind.to_owned()], ..Report::default() });
        }
        Err(error) => return Err(sorted(error)),
    };
    let lines = info.lines().filter_map(|line| line.split_once(':'));
    let facts: HashMap<&str, &str> = lines.collect();
    let fsync: Result<Vec<String>, _> = cmd("CONFIG").arg("GET").arg("appendfsync").query_async(connection).await;
    judge(&facts, fsync.ok().and_then(|pair| pair.get(1).cloned()).as_deref())
}

/// Whether a server with these facts can be a registry, and what is to be said of it.
fn judge(facts: &HashMap<&str, &str>, fsync: Option<&str>) -> Result<Report, Trouble> {
    let fact = |name: &str| facts.get(name).copied().unwrap_or_default();
    let version = fact("redis_version");
    if fact("loading") == "1" {
        return Err(Trouble::Unavailable("it is loading its data".to_owned()));
    }
    if fact("cluster_enabled") == "1" {
        let why =
            "it is a cluster, on one of whose nodes all keys of a registry would lie: use one primary, or Sentinel";
        return Err(Trouble::Refused(why.to_owned()));
    }
    if fact("role") == "slave" {
        return Err(Trouble::Unavailable("it is a replica".to_owned()));
    }
    if version.split('.').next().and_then(|major| major.parse().ok()).is_some_and(|major: u32| major < OLDEST_MAJOR) {
        return Err(Trouble::Refused(format!("it is version {version}: {OLDEST_MAJOR} or newer is needed")));
    }
    let mut warnings = Vec::new();
    let policy = fact("maxmemory_policy");
    if fact("maxmemory") != "0" && !policy.is_empty() && policy != "noeviction" {
        let why =
            "may evict leases and the send guard: channels would be held twice and messages sent twice; set noeviction";
        warnings.push(format!("maxmemory-policy {policy} {why}"));
    }
    let kept = match (fact("aof_enabled"), fsync) {
        ("1", Some(fsync)) => format!("append-only file, fsync {fsync}"),
        ("1", None) => "append-only file".to_owned(),
        _ => "no append-only file".to_owned(),
    };
    if fact("aof_enabled") != "1" {
        let why = "a server that dies forgets what was sent since its last snapshot";
        warnings.push(format!("appendonly is off: {why}"));
    }
    Ok(Report { version: version.to_owned(), kept, warnings })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(changes: &[(&'static str, &'static str)]) -> Result<Report, Trouble> {
        let mut facts: HashMap<&str, &str> = [
            ("redis_version", "7.0.15"),
            ("role", "master"),
            ("maxmemory", "0"),
            ("maxmemory_policy", "allkeys-lru"),
            ("aof_enabled", "1"),
        ]
        .into();
        facts.extend(changes.iter().copied());
        judge(&facts, Some("everysec"))
    }

    #[test]
    fn a_server_that_may_forget_is_spoken_of() {
        let report = judged(&[]).expect("good");
        assert_eq!((report.kept.as_str(), report.warnings.len()), ("append-only file, fsync everysec", 0));
        let evicting = judged(&[("maxmemory", "1000")]).expect("works");
        assert!(evicting.warnings[0].starts_with("maxmemory-policy allkeys-lru may evict"), "{evicting:?}");
        assert_eq!(
            judged(&[("maxmemory", "1000"), ("maxmemory_policy", "noeviction")]).expect("good").warnings.len(),
            0
        );
        assert!(judged(&[("aof_enabled", "0")]).expect("works").warnings[0].contains("appendonly"));
    }

    #[test]
    fn a_server_that_can_not_be_a_registry_is_told_apart() {
        for passing in [("loading", "1"), ("role", "slave")] {
            assert!(matches!(judged(&[passing]), Err(Trouble::Unavailable(_))), "{passing:?}");
        }
        for lasting in [("cluster_enabled", "1"), ("redis_version", "5.0.7")] {
            assert!(matches!(judged(&[lasting]), Err(Trouble::Refused(_))), "{lasting:?}");
        }
    }
}
