//! Where a Redis is: the addresses that are understood, shown without what is secret in them.
//!
//! | form                                                             | reaches                                        |
//! |------------------------------------------------------------------|------------------------------------------------|
//! | `redis://[[user]:password@]host[:6379][/db]`                     | a server                                       |
//! | `rediss://…`                                                     | the same over TLS                              |
//! | `redis+unix:///path[?db=1&user=u&password=p]`                    | a server's socket                              |
//! | `redis+sentinel://[[user]:password@]host[:26379],…/service[/db]` | the primary of a service, as its Sentinels say |
//!
//! `rediss+sentinel:` speaks TLS to the Sentinels and to the servers alike. `?sentinel_user=` and `?sentinel_password=`
//! are what the Sentinels themselves ask for. A cluster is refused once it is connected to: a registry's keys are judged
//! together, so that they would all lie on one of its nodes.

use std::{fmt, path::PathBuf, str::FromStr};

use crate::secret::Secret;

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// The address of a Redis. Displays without credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisUrl {
    pub(super) target: Target,
    pub(super) tls: bool,
    pub(super) login: Login,
    pub(super) db: i64,
}

/// What is connected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Server(Host),
    Socket(PathBuf),
    Sentinel { hosts: Vec<Host>, service: String, login: Login },
}

/// A host and its port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) port: u16,
}

/// As whom.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Login {
    pub(super) user: Option<String>,
    pub(super) password: Option<Secret>,
}

/// A text that is no address of a Redis. Says nothing of the text, which may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not the address of a Redis: {0}")]
pub struct RedisUrlError(&'static str);

impl FromStr for RedisUrl {
    type Err = RedisUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refused = |what| Err(RedisUrlError(what));
        let Some((scheme, rest)) = text.split_once("://") else {
            return refused("expected redis://, rediss://, redis+unix:// or redis+sentinel://");
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        if rest.contains('#') {
            return refused("a # must be written as %23");
        }
        let mut query = Query::read(query)?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if path.contains('@') {
            return refused("a / in the password must be written as %2F");
        }
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Login::read(login)?, hosts),
            None => (Login::default(), authority),
        };
        let (tls, target, db) = match scheme {
            "redis" | "rediss" => (scheme == "rediss", Target::Server(Host::read(hosts, PORT)?), db(path)?),
            "redis+unix" | "unix" => {
                if !authority.is_empty() || path.is_empty() {
                    return refused("a socket needs a path: redis+unix:///run/redis/redis.sock");
                }
                let found = query.take("db");
                let login = Login { user: query.take("user"), password: query.take("password").map(Secret::new) };
                let target = Target::Socket(PathBuf::from(format!("/{}", decoded(path)?)));
                query.is_used_up()?;
                return Ok(Self { target, tls: false, login, db: db(found.as_deref().unwrap_or_default())? });
            }
            "redis+sentinel" | "rediss+sentinel" => {
                let (service, rest) = path.split_once('/').unwrap_or((path, ""));
                if service.is_empty() {
                    return refused("a Sentinel address needs the service: redis+sentinel://host,host/service");
                }
                let hosts = hosts.split(',').map(|host| Host::read(host, SENTINEL_PORT)).collect::<Result<_, _>>()?;
                let login = Login {
                    user: query.take("sentinel_user"),
                    password: query.take("sentinel_password").map(Secret::new),
                };
                let target = Target::Sentinel { hosts, service: decoded(service)?, login };
                (scheme == "rediss+sentinel", target, db(rest)?)
            }
            _ => return refused("expected redis://, rediss://, redis+unix:// or redis+sentinel://"),
        };
        query.is_used_up()?;
        Ok(Self { target, tls, login, db })
    }
}

fn db(path: &str) -> Result<i64, RedisUrlError> {
    match path {
        "" => Ok(0),
        digits if digits.len() <= 6 && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().map_err(|_| RedisUrlError("the database must be a number"))
        }
        _ => Err(RedisUrlError("the database must be a number")),
    }
}

impl Host {
    fn read(text: &str, default_port: u16) -> Result<Self, RedisUrlError> {
        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => rest.split_once(']').ok_or(RedisUrlError("a [ without ]"))?,
            None => text.find(':').map_or((text, ""), |at| text.split_at(at)),
        };
        if name.is_empty() {
            return Err(RedisUrlError("a host is missing"));
        }
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => default_port,
            Some(digits) => digits.parse().map_err(|_| RedisUrlError("a port must be a number up to 65535"))?,
            None => return Err(RedisUrlError("a port is separated by a colon")),
        };
        Ok(Self { name: name.to_owned(), port })
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

impl Login {
    fn read(text: &str) -> Result<Self, RedisUrlError> {
        let (user, password) = match text.split_once(':') {
            Some((user, password)) => (user, Some(Secret::new(decoded(password)?))),
            None => (text, None),
        };
        Ok(Self { user: Some(decoded(user)?).filter(|user| !user.is_empty()), password })
    }
}

/// What stands after the question mark.
struct Query(Vec<(String, String)>);

impl Query {
    fn read(text: &str) -> Result<Self, RedisUrlError> {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').ok_or(RedisUrlError("a parameter has no value"))?;
            Ok((name.to_owned(), decoded(value)?))
        };
        pairs.map(pair).collect::<Result<_, _>>().map(Self)
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(found, _)| found == name)?;
        Some(self.0.remove(at).1)
    }

    fn is_used_up(&self) -> Result<(), RedisUrlError> {
        if self.0.is_empty() { Ok(()) } else { Err(RedisUrlError("a parameter that is not known here")) }
    }
}

/// Reads `%2F` and the like.
fn decoded(text: &str) -> Result<String, RedisUrlError> {
    let refused = RedisUrlError("a % is not followed by two hexadecimal digits of UTF-8");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = after.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok()).ok_or(refused.clone())?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| refused.clone())?);
        rest = &after[2..];
    }
    String::from_utf8(bytes).map_err(|_| refused)
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tls = if self.tls { "s" } else { "" };
        match &self.target {
            Target::Server(host) => write!(f, "redis{tls}://{host}")?,
            Target::Socket(path) => write!(f, "redis+unix://{}", path.display())?,
            Target::Sentinel { hosts, service, .. } => {
                let hosts: Vec<_> = hosts.iter().map(ToString::to_string).collect();
                write!(f, "redis{tls}+sentinel://{}/{service}", hosts.join(","))?;
            }
        }
        match (self.db, &self.target) {
            (0, _) => Ok(()),
            (db, Target::Socket(_)) => write!(f, "?db={db}"),
            (db, _) => write!(f, "/{db}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> RedisUrl {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// Contract: I4. Field report R23.
    #[test]
    fn addresses_are_shown_without_their_secrets() {
        for (text, shown) in [
            ("redis://h", "redis://h:6379"),
            ("rediss://me:hush@h:1/3", "rediss://h:1/3"),
            ("redis://:hu%2Fs@h@[::1]:7/0", "redis://[::1]:7"),
            ("redis+unix:///run/r%20s.sock?db=2&password=hush", "redis+unix:///run/r s.sock?db=2"),
            ("redis+sentinel://u:hush@a,b:7/main/4?sentinel_password=hush", "redis+sentinel://a:26379,b:7/main/4"),
            ("rediss+sentinel://a/main", "rediss+sentinel://a:26379/main"),
        ] {
            assert_eq!(read(text).to_string(), shown);
            assert!(!format!("{:?}", read(text)).contains("hush"));
        }
    }

    #[test]
    fn credentials_are_decoded() {
        let url = read("redis://a%40b:p%3A%2F@h/2");
        assert_eq!((url.login.user.as_deref(), url.db), (Some("a@b"), 2));
        assert_eq!(url.login.password.expect("given").expose(), "p:/");
        assert_eq!(read("redis://:x@h").login.user, None);
        let Target::Sentinel { hosts, service, login } =
            read("redis+sentinel://a,[::2]:9/m?sentinel_user=s&sentinel_password=%25").target
        else {
            panic!("a Sentinel")
        };
        assert_eq!((hosts.len(), hosts[1].port, service.as_str()), (2, 9, "m"));
        assert_eq!(login.password.expect("given").expose(), "%");
    }

    #[test]
    fn what_is_no_address_is_refused_without_being_repeated() {
        for text in [
            "hush",
            "http://hush",
            "redis://",
            "redis://hush@",
            "redis://h:hush",
            "redis://h/hush",
            "redis://h/-1",
            "redis://:hu/sh@h",
            "redis://h?hush=1",
            "redis://h#hush",
            "redis://%zz:hush@h",
            "redis+unix://hush",
            "redis+sentinel://h",
            "redis+sentinel://h,/m",
            "redis://[::1",
        ] {
            let error = text.parse::<RedisUrl>().expect_err(text);
            assert!(!error.to_string().contains("hush"), "{error}");
        }
    }
}
