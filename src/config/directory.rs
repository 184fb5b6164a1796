//! Which channels are wanted: `directory.url`, or the file that holds it, and what the platform's API is shown.

use serde::{Serialize, Serializer};
#[cfg(feature = "postgres")]
use shard::directory::postgres::PostgresConfig;
use shard::{directory::MassRemoval, secret::Secret};
use url::Url;

use super::{
    address, keys,
    problem::Problem,
    reader::Reader,
    secrets, shown_secrets,
    sources::Sources,
    stores::{Given, url},
};

/// Where it is kept which channels are wanted.
#[derive(Debug, Clone)]
pub(crate) enum DirectoryAt {
    /// The built-in store in the data directory.
    Embedded,
    /// The platform's API.
    Api(Url),
    /// A database.
    #[cfg(feature = "postgres")]
    Postgres(Box<PostgresConfig>),
}

impl DirectoryAt {
    /// How it is named in logs.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Embedded => "embedded".to_owned(),
            Self::Api(url) => address::without_credentials(url.as_str()),
            #[cfg(feature = "postgres")]
            Self::Postgres(config) => config.shown().to_owned(),
        }
    }
}

/// `[directory]`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct DirectorySettings {
    /// What is behind it.
    #[serde(rename = "url", serialize_with = "shown")]
    pub(crate) at: DirectoryAt,
    /// What the API is shown, the newest first.
    #[serde(rename = "token", serialize_with = "shown_secrets")]
    pub(crate) tokens: Vec<Secret>,
    /// What becomes of a removal of many.
    #[serde(serialize_with = "shown_removal")]
    pub(crate) mass_removal: MassRemoval,
}

fn shown<S: Serializer>(at: &DirectoryAt, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&at.describe())
}

fn shown_removal<S: Serializer>(removal: &MassRemoval, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match removal {
        MassRemoval::Hold => "hold",
        MassRemoval::Accept => "accept",
    })
}

/// Reads `[directory]`.
pub(super) fn directory(read: &mut Reader<'_>, sources: &Sources) -> DirectorySettings {
    let open = read.value(&keys::DIRECTORY_URL).is_some();
    let at = match url(read, &keys::DIRECTORY_URL, &keys::DIRECTORY_URL_FILE, sources) {
        None => DirectoryAt::Embedded,
        Some(given) => at(read, &given, open),
    };
    let tokens = secrets::read(&keys::DIRECTORY_TOKEN, read, sources);
    if let (Some(value), false) = (read.value(&keys::DIRECTORY_TOKEN), matches!(at, DirectoryAt::Api(_))) {
        let (origin, value) = (value.origin.clone(), value.text.clone());
        let expected = "nothing, unless directory.url is an http: or https: URL".to_owned();
        read.problems.push(Problem::Unfit { origin, value, expected });
    }
    let mass_removal = read.read(&keys::DIRECTORY_REMOVAL, |text| match text {
        "hold" => Some(MassRemoval::Hold),
        "accept" => Some(MassRemoval::Accept),
        _ => None,
    });
    DirectorySettings { at, tokens, mass_removal }
}

/// A password stands in no setting that others may read: there is a file for it.
fn at(read: &mut Reader<'_>, given: &Given, open: bool) -> DirectoryAt {
    if given.scheme_is(&["http", "https"]) {
        match address::web(&given.text).filter(|url| url.query().is_none() && url.fragment().is_none()) {
            Some(url) if url.username().is_empty() && url.password().is_none() => return DirectoryAt::Api(url),
            Some(_) => {
                let expected = format!("no user here: the API is shown the token of {}", keys::DIRECTORY_TOKEN.name);
                read.problems.push(given.refused(expected));
            }
            None => read.problems.push(given.refused(keys::DIRECTORY_URL.accepts.to_owned())),
        }
    } else if given.scheme_is(&["postgres", "postgresql"]) {
        #[cfg(feature = "postgres")]
        match PostgresConfig::new(&given.text) {
            Ok(_) if open && PostgresConfig::holds_password(&given.text) => {
                let file = keys::DIRECTORY_URL_FILE.name;
                let expected = format!("no password here: put the URL into the file that {file} names");
                read.problems.push(given.refused(expected));
            }
            Ok(config) => return DirectoryAt::Postgres(Box::new(config)),
            Err(problem) => {
                read.problems.push(given.refused(format!("{} ({problem})", keys::DIRECTORY_URL.accepts)));
            }
        }
        #[cfg(not(feature = "postgres"))]
        {
            let _ = open;
            read.problems.push(given.not_built_in(&keys::DIRECTORY_URL));
        }
    } else {
        read.problems.push(given.unknown(&keys::DIRECTORY_URL));
    }
    DirectoryAt::Embedded
}
