//! Directories that lie elsewhere: the platform's API, served by a scripted server, and PostgreSQL.

mod answers;
mod api;
mod care;
#[cfg(feature = "postgres")]
mod postgres;
mod web;

use std::{collections::BTreeMap, path::Path, sync::Arc};

use shard::{
    clock::SystemClock,
    directory::{ChannelSpec, Directory, DirectoryError, Kept, RemoteDirectory, RemoteOptions, Source},
    identity::ChannelId,
    metrics::Metrics,
    store::BoxStore,
};
use uuid::Uuid;

/// A token that must show up nowhere, and the beginning of it by which that is found out.
pub(crate) const TOKEN: &str = "4711:t0p-s3cret-token";

pub(crate) fn id(number: u128) -> ChannelId {
    ChannelId::from_uuid(Uuid::from_u128(number))
}

pub(crate) fn kept(dir: &Path) -> Kept {
    let shared = BoxStore::open(dir, Arc::new(SystemClock)).expect("opened");
    Kept::open(shared, &dir.join("secret.key")).expect("opened")
}

/// A directory that follows a source, asked as often as a test likes.
pub(crate) fn follow(dir: &Path, source: impl Source) -> (RemoteDirectory, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::default());
    let options = RemoteOptions { gap: std::time::Duration::ZERO, ..RemoteOptions::default() };
    (RemoteDirectory::new(Arc::new(source), kept(dir), options, metrics.clone()), metrics)
}

type Asked = Result<Vec<Arc<ChannelSpec>>, DirectoryError>;

/// What is to run, and what not, by number.
pub(crate) fn numbers(specs: &[Arc<ChannelSpec>]) -> BTreeMap<u128, bool> {
    specs.iter().map(|spec| (spec.id.uuid().as_u128(), spec.enabled)).collect()
}

/// The ids of a good answer.
pub(crate) async fn listed(directory: &RemoteDirectory) -> BTreeMap<u128, bool> {
    numbers(&directory.channels().await.expect("a good answer"))
}

/// Why there was no good answer, and what holds meanwhile.
pub(crate) fn stale(asked: Asked) -> (String, BTreeMap<u128, bool>) {
    match asked {
        Err(DirectoryError::Stale { why, last }) => (why, numbers(&last)),
        other => panic!("{other:?}"),
    }
}

/// That numbers run.
pub(crate) fn running(range: impl IntoIterator<Item = u128>) -> BTreeMap<u128, bool> {
    range.into_iter().map(|number| (number, true)).collect()
}
