//! The scripts that run inside the server, where each is one step that nobody else sees half of.

use ::redis::Script;

macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// All of them, each with the common beginning.
        pub(super) struct Scripts {
            $($(#[$doc])* pub(super) $name: Script,)*
        }

        impl Scripts {
            pub(super) fn new() -> Self {
                Self {
                    $($name: Script::new(concat!(
                        include_str!("scripts/common.lua"),
                        include_str!(concat!("scripts/", stringify!($name), ".lua")),
                    )),)*
                }
            }
        }
    };
}

scripts! {
    claim,
    renew,
    release,
    guard,
    lane,
    deaths,
    layout,
    place,
    stored,
    marks,
    note,
    life,
    heartbeat,
    leave,
    unassign,
    events,
}
