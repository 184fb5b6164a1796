//! The health port: `/healthz`, `/readyz`, `/metrics`, `/status`.
//!
//! Every shard of a box listens on the same port, on a thread of its own, and shows what the primary composed for the
//! whole box. `/healthz` alone is answered without asking anybody.

mod coalesce;
mod connections;
mod group;
mod port;
mod report;
mod routes;
mod sockopt;
mod steering;
#[cfg(test)]
mod tests;
mod thread;
mod usage;
mod view;

pub use connections::Limits;
pub use group::Group;
pub use port::{PortClaim, PortError};
pub use report::{Family, Histogram, Kind, Report, ReportFacts, Sample, SampleValue};
pub use steering::SteerError;
pub use thread::{HttpConfig, HttpError, HttpThread, Left, Sharing};
pub use usage::{Usage, UsageSampler};
pub use view::{Part, View, ViewSource};
