//! The broker's errors in the queue port's words.

use super::super::QueueError;
use crate::amqp::error::Cause;

impl Cause {
    /// The same for a queue.
    pub(crate) fn of(self, queue: impl ToString) -> QueueError {
        let queue = queue.to_string();
        match self {
            Self::Unavailable(cause) => QueueError::Unavailable { queue, cause },
            Self::Refused(cause) => QueueError::Refused { queue, cause },
            Self::Missing => QueueError::Missing { queue },
        }
    }
}
