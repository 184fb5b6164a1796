//! shardvisor.toml(5): every setting, from the table that is read.

use super::roff::Page;
use crate::config::keys::{self, Key};

pub(super) fn text() -> String {
    let mut page = Page::new("shardvisor.toml", 5, "configuration of the shardvisor daemon");
    page.section("DESCRIPTION");
    page.text(
        "/etc/shardvisor/shardvisor.toml is read by the daemon and by every command; --config and SHARDVISOR_CONFIG name \
         another file. Environment variables beat the file, flags beat both. A key that is no setting is an error that \
         names the nearest one. shardvisor check-config tells all errors at once.",
    );
    page.text(
        "A duration is a number and ms, s, m, h or d; a size a whole number and M or G. A secret is never written into the \
         file: settings that end with _file name a file that holds it, and a systemd credential does the same.",
    );
    page.section("SETTINGS");
    let mut section = None;
    for key in keys::ALL {
        let (here, _) = key.name.split_once('.').unwrap_or(("", key.name));
        if section != Some(here) {
            section = Some(here);
            page.subsection(&if here.is_empty() { "At the top".to_owned() } else { format!("[{here}]") });
        }
        page.term(key.name, &meaning(key));
    }
    page.section("SEE ALSO");
    page.text("shardvisor(1), shardvisor(8)");
    page.done()
}

fn meaning(key: &Key) -> String {
    let default = if key.default.is_empty() { "none".to_owned() } else { key.default.to_owned() };
    let mut ways = key.env.join(", ");
    if let Some(flag) = key.flag {
        ways.push_str(&format!(", {flag}"));
    }
    if let Some(name) = key.credential {
        ways.push_str(&format!(", credential {name}"));
    }
    format!("{}.\nAccepts {}. Default: {default}. Also: {ways}.", key.about, key.accepts)
}
