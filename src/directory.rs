//! Opens the directory of wanted channels that the configuration chooses: the built-in store, or one that lies elsewhere.

use std::sync::Arc;

#[cfg(feature = "postgres")]
use shard::directory::postgres::PostgresSource;
use shard::{
    directory::{
        Directory, DirectoryError, Kept, RemoteDirectory, RemoteOptions, Source,
        api::{ApiConfig, ApiSource},
        store::StoreDirectory,
    },
    metrics::Metrics,
    store::BoxStore,
};

use crate::{
    config::{Config, DirectoryAt},
    exit::Failure,
};

/// What is asked, where that is not the built-in store. Opens no connection.
pub(crate) fn source(config: &Config) -> Result<Option<Arc<dyn Source>>, Failure> {
    Ok(match &config.directory.at {
        DirectoryAt::Embedded => None,
        DirectoryAt::Api(url) => {
            let api = ApiConfig::new(url.clone(), config.directory.tokens.clone());
            Some(Arc::new(ApiSource::new(api).map_err(failure)?))
        }
        #[cfg(feature = "postgres")]
        DirectoryAt::Postgres(postgres) => Some(Arc::new(PostgresSource::new(*postgres.clone()))),
    })
}

/// What the box keeps of a directory that lies elsewhere.
pub(crate) fn kept(config: &Config, shared: Arc<BoxStore>) -> Result<Kept, Failure> {
    Kept::open(shared, &config.key_file()).map_err(failure)
}

/// The directory for the shard of a slot. Must be called within the runtime.
pub(crate) fn open(
    config: &Config,
    index: u32,
    shared: &Arc<BoxStore>,
    metrics: &Arc<Metrics>,
) -> Result<Arc<dyn Directory>, Failure> {
    let Some(source) = source(config)? else {
        let mut directory = StoreDirectory::open(shared.clone(), &config.key_file()).map_err(failure)?;
        directory.listen(index);
        metrics.directory_source.with_label_values(&["store"]).set(1);
        return Ok(Arc::new(directory));
    };
    let options = RemoteOptions { mass_removal: config.directory.mass_removal, ..RemoteOptions::default() };
    let mut directory = RemoteDirectory::new(source, kept(config, shared.clone())?, options, metrics.clone());
    directory.listen(index);
    Ok(Arc::new(directory))
}

/// Whose fault an error of the directory is.
pub(crate) fn failure(error: DirectoryError) -> Failure {
    match error {
        DirectoryError::Unavailable(_) | DirectoryError::Stale { .. } => Failure::GaveUp(error.to_string()),
        DirectoryError::Nonsense(_) | DirectoryError::Refused(_) => Failure::Config(error.to_string()),
    }
}
