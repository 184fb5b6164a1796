//! What the benchmarks share. Those of platforms: subjects that hold the same bots, measured one after the other beside the same
//! simulator, and their figures side by side. Those of jobs: a stand of private servers, and a storm over it.

pub mod chaos;
#[cfg(feature = "whatsapp")]
pub mod linked;
pub mod measure;
pub mod process;
pub mod stand;
pub mod subject;
pub mod table;
