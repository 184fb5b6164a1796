//! Fetches files that shall be sent, from public addresses only: the URL is whatever a producer or an agent wrote, and a file
//! behind the wall must not be shown to whoever asks for it.

use std::{
    error::Error,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use reqwest::{
    Response,
    dns::{Addrs, Name, Resolve, Resolving},
    redirect::Policy,
};
use url::{Host, Url};

use super::refused;
use crate::platform::Failed;

/// How long the server may take to begin.
const BEGIN: Duration = Duration::from_secs(30);
/// How long it may be silent after that.
const SILENCE: Duration = Duration::from_secs(30);
/// So many redirects are followed.
const REDIRECTS: usize = 5;

/// The client for URLs of others.
#[derive(Debug)]
pub(super) struct Fetcher {
    client: reqwest::Client,
    private: bool,
}

/// Resolves names to public addresses only.
struct Public;

impl Resolve for Public {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> = found.filter(|address| is_public(address.ip())).collect();
            if public.is_empty() {
                return Err("it has no public address".into());
            }
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

impl Fetcher {
    pub(super) fn new(private: bool) -> reqwest::Result<Self> {
        let policy = Policy::custom(move |attempt| match may_be_asked(attempt.url(), private) {
            Ok(()) if attempt.previous().len() <= REDIRECTS => attempt.follow(),
            Ok(()) => attempt.error("too many redirects"),
            Err(problem) => attempt.error(problem),
        });
        let mut client = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(5))
            .read_timeout(SILENCE)
            .pool_max_idle_per_host(0)
            .redirect(policy)
            .user_agent(concat!("shardvisor/", env!("CARGO_PKG_VERSION")));
        if !private {
            client = client.dns_resolver(Arc::new(Public));
        }
        Ok(Self { client: client.build()?, private })
    }

    /// Begins to fetch. What the answer's host and status say decides whether it is worth another try.
    pub(super) async fn fetch(&self, url: Url) -> Result<Response, Failed> {
        may_be_asked(&url, self.private).map_err(|problem| refused("rejected", problem))?;
        let retry = |error: String| Failed::Retry { error: format!("the file's server: {error}"), after: None };
        let asked = tokio::time::timeout(BEGIN, self.client.get(url).send()).await;
        let response = match asked {
            Err(_) => return Err(retry("no answer in time".to_owned())),
            Ok(Err(error)) if error.is_redirect() => {
                return Err(refused("rejected", "the file's server sends us on to where we don't go"));
            }
            Ok(Err(error)) => return Err(retry(cause(error))),
            Ok(Ok(response)) => response,
        };
        match response.status() {
            status if status.is_success() => Ok(response),
            status if status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429) => {
                Err(retry(format!("HTTP {}", status.as_u16())))
            }
            status => Err(refused("rejected", &format!("the file's server: HTTP {}", status.as_u16()))),
        }
    }
}

/// What went wrong, without the address.
pub(super) fn cause(error: reqwest::Error) -> String {
    let error = error.without_url();
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    let mut cause: &dyn Error = &error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// Names are looked at when they are resolved.
fn may_be_asked(url: &Url, private: bool) -> Result<(), &'static str> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err("the file's URL is neither http nor https");
    }
    let address = match url.host() {
        Some(Host::Ipv4(address)) => IpAddr::V4(address),
        Some(Host::Ipv6(address)) => IpAddr::V6(address),
        Some(Host::Domain(_)) => return Ok(()),
        None => return Err("the file's URL has no host"),
    };
    if private || is_public(address) { Ok(()) } else { Err("the file's URL leads to a private address") }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let shared = a == 100 && (64..128).contains(&b);
    let special = (a, b, c) == (192, 0, 0) || (a, b, c) == (192, 88, 99) || (a == 198 && (18..20).contains(&b));
    !(address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || address.is_multicast()
        || a == 0
        || a >= 240
        || shared
        || special)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(v4) = address.to_ipv4_mapped() {
        return is_public_v4(v4);
    }
    let [first, second, ..] = address.segments();
    // Only 2000::/3 is given out; in it lie the forms that carry an IPv4 address, and examples.
    first & 0xe000 == 0x2000 && first != 0x2002 && !(first == 0x2001 && (second < 0x200 || second == 0xdb8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_asked() {
        for public in ["1.1.1.1", "203.0.114.1", "2606:4700::1", "::ffff:1.1.1.1"] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for other in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "198.18.0.1",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "fd00::1",
            "ff02::1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "2002:a00:1::",
            "2001:db8::1",
            "2001::1",
        ] {
            assert!(!is_public(other.parse().unwrap()), "{other}");
        }
        let asked = |url: &str| may_be_asked(&url.parse().unwrap(), false);
        assert!(asked("https://files.test/x").is_ok());
        for other in
            ["file:///etc/passwd", "http://127.0.0.1/", "http://2130706433/", "http://[::1]/", "http://0x7f.1/"]
        {
            assert!(asked(other).is_err(), "{other}");
        }
    }

    #[tokio::test]
    async fn a_name_that_leads_to_a_private_address_is_not_asked() {
        let resolved = Public.resolve("localhost".parse().unwrap()).await;
        assert!(resolved.is_err());
    }
}
