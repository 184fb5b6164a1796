//! From the control socket's tasks into the loop.

use tokio::sync::{mpsc, oneshot};

use crate::control::{Handler, Request, Response};

/// A question and where its answer goes.
pub(super) enum Asked {
    Status(oneshot::Sender<Response>),
    Reload(oneshot::Sender<Response>),
}

/// Puts questions to the loop.
pub(super) struct Questions(pub(super) mpsc::Sender<Asked>);

impl Handler for Questions {
    type Request = Request;
    type Response = Response;

    async fn answer(&self, request: Request) -> Response {
        let (answer, answered) = oneshot::channel();
        let asked = match request {
            Request::Status => Asked::Status(answer),
            Request::Reload => Asked::Reload(answer),
        };
        let gone = || Response::Failed { reason: "the primary has ended".to_owned() };
        if self.0.send(asked).await.is_err() {
            return gone();
        }
        answered.await.unwrap_or_else(|_| gone())
    }
}
