//! One page of an answer: a list, or an object with the list as `channels` and perhaps a `next`. Pure.

use serde::Deserialize;
use serde_json::Value;
use url::Url;

/// A page's entries, not yet looked at, and where it goes on.
#[derive(Debug, PartialEq)]
pub(super) struct Page {
    pub(super) entries: Vec<Value>,
    pub(super) next: Option<String>,
}

#[derive(Deserialize)]
struct Wrapped {
    channels: Vec<Value>,
    #[serde(default)]
    next: Option<String>,
}

impl Page {
    /// Reads a body; else what is wrong with it, without repeating it.
    pub(super) fn read(body: &[u8]) -> Result<Self, String> {
        match serde_json::from_slice(body) {
            Ok(Value::Array(entries)) => Ok(Self { entries, next: None }),
            Ok(object @ Value::Object(_)) => {
                let wrapped: Wrapped = serde_json::from_value(object)
                    .map_err(|_| "an object without a list `channels`, or with a `next` that is no text".to_owned())?;
                Ok(Self { entries: wrapped.channels, next: wrapped.next.filter(|next| !next.is_empty()) })
            }
            Ok(_) => Err("JSON that is neither a list nor an object".to_owned()),
            Err(error) => Err(format!("no JSON (line {}, column {})", error.line(), error.column())),
        }
    }
}

/// The page that `next` means, seen from `here`: an address of the same server, or else the value of the parameter `cursor`.
pub(super) fn following(here: &Url, next: &str) -> Result<Url, String> {
    let is_address = next.contains("://") || next.starts_with(['/', '?']);
    if is_address {
        let url = here.join(next).map_err(|_| "a `next` that is no address".to_owned())?;
        // The token is for this server alone.
        return if url.origin() == here.origin() { Ok(url) } else { Err("a `next` on another server".to_owned()) };
    }
    let mut url = here.clone();
    let others: Vec<(String, String)> = here
        .query_pairs()
        .filter(|(name, _)| name != "cursor")
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    url.query_pairs_mut().clear().extend_pairs(others).append_pair("cursor", next);
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_bare_or_wrapped_is_a_page_and_nothing_else_is() {
        let read = |body: &str| Page::read(body.as_bytes()).map(|page| (page.entries.len(), page.next));
        assert_eq!(read("[]"), Ok((0, None)));
        assert_eq!(read(r#"["a", 3]"#), Ok((2, None)));
        assert_eq!(read(r#"{"channels": [{}], "next": "x", "total": 9}"#), Ok((1, Some("x".into()))));
        assert_eq!(read(r#"{"channels": [], "next": null}"#), Ok((0, None)));
        for nonsense in ["", "null", "3", "{}", r#"{"channels": {}}"#, r#"{"channels": [], "next": 2}"#, "<html>s3cret"]
        {
            let problem = read(nonsense).expect_err(nonsense);
            assert!(!problem.contains("s3cret"), "{problem}");
        }
    }

    #[test]
    fn what_comes_next_is_an_address_of_the_same_server_or_a_cursor() {
        let here = Url::parse("https://api:8443/internal/v1/channels/active?limit=5&cursor=a").expect("a URL");
        let at = |next: &str| following(&here, next).map(String::from);
        assert_eq!(at("/x?page=2").as_deref(), Ok("https://api:8443/x?page=2"));
        assert_eq!(at("?page=2").as_deref(), Ok("https://api:8443/internal/v1/channels/active?page=2"));
        assert_eq!(at("https://api:8443/y").as_deref(), Ok("https://api:8443/y"));
        let cursor = at("b/c==");
        assert_eq!(cursor.as_deref(), Ok("https://api:8443/internal/v1/channels/active?limit=5&cursor=b%2Fc%3D%3D"));
        for elsewhere in ["https://evil/", "http://api:8443/", "//evil/x", "https://api/"] {
            assert!(at(elsewhere).is_err(), "{elsewhere}");
        }
    }
}
