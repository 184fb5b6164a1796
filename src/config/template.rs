//! A configuration file with every setting, each commented out at its default: what packages install.

use super::keys::{self, Key};

/// The file's text.
pub(crate) fn template() -> String {
    let mut text = String::from(
        "# shardvisor's configuration. Every setting is shown at its default; remove the # to change it.\n\
         # Environment variables beat this file, flags beat both. `shardvisor check-config` says what is wrong with it.\n",
    );
    let mut section = "";
    for key in keys::ALL {
        let (here, name) = key.name.split_once('.').unwrap_or(("", key.name));
        if here != section {
            section = here;
            text.push_str(&format!("\n[{section}]\n"));
        }
        text.push_str(&format!("\n# {}.\n# Accepts {}. Also: {}.\n", key.about, key.accepts, ways(key)));
        text.push_str(&match key.default {
            "" => format!("#{name} =\n"),
            number if number.bytes().all(|byte| byte.is_ascii_digit()) => format!("#{name} = {number}\n"),
            default => format!("#{name} = {default:?}\n"),
        });
    }
    text
}

/// The other ways to give a setting.
fn ways(key: &Key) -> String {
    let mut ways: Vec<String> = key.env.iter().map(ToString::to_string).collect();
    ways.extend(key.flag.map(str::to_owned));
    ways.extend(key.credential.map(|name| format!("credential {name}")));
    ways.join(", ")
}
