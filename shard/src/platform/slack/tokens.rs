//! The two tokens of an app: one opens sockets, the other does everything else. They are kept as one secret, a blank or a
//! line between them, so that a directory holds one secret for each channel whatever the platform.

use crate::secret::Secret;

/// An app's tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tokens {
    /// `xapp-…`, with `connections:write`. An app without one gets its events by HTTP and is not held.
    pub app: Option<Secret>,
    /// `xoxb-…`.
    pub bot: Secret,
}

/// A secret that holds no tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadTokens {
    /// Something else is there.
    #[error("holds something that is neither an app token (xapp-…) nor a bot token (xoxb-…)")]
    Stranger,
    /// One of them is there twice.
    #[error("holds two tokens of one kind: expected an app token (xapp-…) and a bot token (xoxb-…)")]
    Twice,
    /// Nothing can be done without it.
    #[error("holds no bot token (xoxb-…)")]
    NoBotToken,
}

impl Tokens {
    /// Takes them apart, in either order. Whether they are good, Slack alone can tell.
    pub fn read(secret: &Secret) -> Result<Self, BadTokens> {
        let (mut app, mut bot) = (None, None);
        for word in secret.expose().split_whitespace() {
            let place = match word {
                _ if !word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') => {
                    return Err(BadTokens::Stranger);
                }
                _ if word.len() > 5 && word.starts_with("xapp-") => &mut app,
                _ if word.len() > 5 && word.starts_with("xoxb-") => &mut bot,
                _ => return Err(BadTokens::Stranger),
            };
            if place.replace(Secret::new(word)).is_some() {
                return Err(BadTokens::Twice);
            }
        }
        Ok(Self { app, bot: bot.ok_or(BadTokens::NoBotToken)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_tokens_in_any_order_one_for_an_app_that_is_not_held_and_nothing_else() {
        let read = |text: &str| Tokens::read(&Secret::new(text));
        let both = Ok(Tokens { app: Some(Secret::new("xapp-1-A-2")), bot: Secret::new("xoxb-1-b") });
        assert_eq!(read("xapp-1-A-2 xoxb-1-b"), both);
        assert_eq!(read("\n xoxb-1-b\nxapp-1-A-2\n"), both);
        assert_eq!(read("xoxb-1-b").map(|tokens| tokens.app), Ok(None));
        assert_eq!(read("xapp-1-A-2"), Err(BadTokens::NoBotToken));
        assert_eq!(read(""), Err(BadTokens::NoBotToken));
        assert_eq!(read("xoxb-1 xoxb-2"), Err(BadTokens::Twice));
        for strange in ["123:abc xoxb-1", "xoxb-", "xoxb-1 xoxp-2", "xoxb-1\r\nHost", "xoxb-ü", "xoxb-a_b"] {
            assert!(read(strange).is_err(), "{strange}");
        }
    }
}
