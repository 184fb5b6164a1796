//! The whole path of a job, from its queue to its recipient, over the embedded adapters, the queues of some stories over RabbitMQ, and a platform of our own that
//! remembers what its recipients have seen. Processes end in every way a process can end.

// A harness for more stories than are told here.
#[allow(dead_code, unused_imports)]
mod support;

#[cfg(feature = "amqp")]
#[path = "../../../tests/support/servers.rs"]
#[allow(dead_code, reason = "not every suite disturbs its servers")]
mod servers;

mod forwarding;
mod guard;
mod layout;
mod no_jobs;
mod order;
mod outages;
mod poison;
mod retries;
mod simulation;
mod stopping;
mod waiting;
