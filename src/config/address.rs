//! URLs in the configuration, and how one is shown without its credentials.

use url::Url;

/// Reads an `http:` or `https:` URL with a host.
pub(super) fn web(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    (matches!(url.scheme(), "http" | "https") && url.has_host()).then_some(url)
}

/// Whether a text is an `http:` or `https:` URL with a host.
pub(crate) fn is_web(text: &str) -> bool {
    web(text).is_some()
}

/// A URL, or what somebody took for one, without what may be a secret: user, password, query, fragment, and for the web
/// also the path, where hooks carry their tokens.
pub(crate) fn without_credentials(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let (rest, mut cut) = match rest.find(['?', '#']) {
        Some(at) => (&rest[..at], "?…"),
        None => (rest, ""),
    };
    // The last `@` of the whole rest: a password may hold a slash that nobody escaped.
    let mut shown = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    if scheme.to_ascii_lowercase().starts_with("http")
        && let Some((host, path)) = shown.split_once('/')
    {
        shown = host;
        cut = if path.is_empty() && cut.is_empty() { "/" } else { "/…" };
    }
    format!("{scheme}://{shown}{cut}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Contract: I4. Field report R23.
    #[test]
    fn credentials_are_left_out_of_what_is_shown() {
        for (url, shown) in [
            ("amqp://user:pass@rabbit:5672/vhost", "amqp://rabbit:5672/vhost"),
            ("redis://:p/a@ss@redis/0", "redis://redis/0"),
            ("https://u@host/services/T0/t0ken", "https://host/…"),
            ("https://host:81/", "https://host:81/"),
            ("https://host?token=x", "https://host?…"),
            ("sqlite:", "sqlite:"),
        ] {
            assert_eq!(without_credentials(url), shown);
        }
    }
}
