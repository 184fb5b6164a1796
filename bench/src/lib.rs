//! What all benchmarks of platforms share: subjects that hold the same bots, measured one after the other beside the same
//! simulator, and their figures side by side.

pub mod measure;
pub mod process;
pub mod subject;
pub mod table;
