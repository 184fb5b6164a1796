//! Many requests, few questions to the source.
//!
//! At most one question is under way for each part; all who come meanwhile share the next one. Nobody is answered by a
//! question that was put before the request came: a client that reads counters through two shards in turn would
//! otherwise see them go back.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::FutureExt;
use tokio::{sync::oneshot, time::timeout};

use super::view::{Part, View, ViewSource};

type Answer = Option<Arc<View>>;

#[derive(Default)]
struct Line {
    asking: bool,
    waiting: Vec<oneshot::Sender<Answer>>,
}

struct Inner {
    source: Arc<dyn ViewSource>,
    limit: Duration,
    lines: [Mutex<Line>; 3],
}

/// Asks a [`ViewSource`] on behalf of all requests.
#[derive(Clone)]
pub(super) struct Coalesced(Arc<Inner>);

impl Coalesced {
    pub(super) fn new(source: Arc<dyn ViewSource>, limit: Duration) -> Self {
        Self(Arc::new(Inner { source, limit, lines: Default::default() }))
    }

    /// The view, if it comes within the limit.
    pub(super) async fn view(&self, part: Part) -> Answer {
        let (answer, answered) = oneshot::channel();
        {
            let mut line = self.0.lines[part as usize].lock().expect("line");
            line.waiting.push(answer);
            if !line.asking {
                line.asking = true;
                // A task of its own: it goes on when the client that caused it hangs up.
                tokio::spawn(ask(self.0.clone(), part));
            }
        }
        timeout(self.0.limit, answered).await.ok()?.ok()?
    }
}

async fn ask(inner: Arc<Inner>, part: Part) {
    loop {
        let waiting = {
            let mut line = inner.lines[part as usize].lock().expect("line");
            line.waiting.retain(|answer| !answer.is_closed());
            if line.waiting.is_empty() {
                line.asking = false;
                return;
            }
            std::mem::take(&mut line.waiting)
        };
        let question = AssertUnwindSafe(inner.source.view(part)).catch_unwind();
        let answer = timeout(inner.limit, question).await.ok().and_then(Result::ok).flatten().map(Arc::new);
        for one in waiting {
            // Who has hung up meanwhile needs no answer.
            let _ = one.send(answer.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use async_trait::async_trait;
    use tokio::sync::Semaphore;

    use super::*;

    /// Answers with the number of the question, once it is let.
    struct Numbered {
        asked: AtomicU64,
        let_through: Semaphore,
    }

    #[async_trait]
    impl ViewSource for Numbered {
        async fn view(&self, _: Part) -> Option<View> {
            let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
            if number == 13 {
                panic!("question 13");
            }
            self.let_through.acquire().await.ok()?.forget();
            Some(View { ready: true, reasons: vec![number.to_string()], ..View::default() })
        }
    }

    fn numbered(asked: u64, let_through: usize) -> (Arc<Numbered>, Coalesced) {
        let source = Arc::new(Numbered { asked: AtomicU64::new(asked), let_through: Semaphore::new(let_through) });
        (source.clone(), Coalesced::new(source, Duration::from_secs(1)))
    }

    fn number(answer: Answer) -> Option<u64> {
        answer.map(|view| view.reasons[0].parse().expect("number"))
    }

    async fn settle() {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_come_together_share_one_question() {
        let (source, views) = numbered(0, 100);
        let all = futures_util::future::join_all((0..50).map(|_| views.view(Part::Ready))).await;
        assert!(all.into_iter().all(|answer| number(answer) == Some(1)));
        assert_eq!(source.asked.load(Ordering::SeqCst), 1);
    }

    /// Contract: H2.
    #[tokio::test(start_paused = true)]
    async fn nobody_gets_an_answer_to_a_question_older_than_his_request() {
        let (source, views) = numbered(0, 0);
        let early = tokio::spawn({
            let views = views.clone();
            async move { views.view(Part::Metrics).await }
        });
        settle().await;
        let late: Vec<_> = (0..20)
            .map(|_| {
                tokio::spawn({
                    let views = views.clone();
                    async move { views.view(Part::Metrics).await }
                })
            })
            .collect();
        settle().await;
        source.let_through.add_permits(2);
        assert_eq!(number(early.await.expect("task")), Some(1));
        for one in late {
            assert_eq!(number(one.await.expect("task")), Some(2));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_source_costs_each_request_its_limit_and_no_more() {
        let (source, views) = numbered(0, 0);
        let start = tokio::time::Instant::now();
        let first = tokio::spawn({
            let views = views.clone();
            async move { views.view(Part::Status).await }
        });
        tokio::time::advance(Duration::from_millis(600)).await;
        assert_eq!(number(views.view(Part::Status).await), None);
        assert_eq!(start.elapsed().as_millis(), 1600);
        assert_eq!(number(first.await.expect("task")), None);
        source.let_through.add_permits(1);
        assert_eq!(number(views.view(Part::Status).await), Some(source.asked.load(Ordering::SeqCst)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_panics_is_asked_again() {
        let (_, views) = numbered(12, 100);
        assert_eq!(number(views.view(Part::Ready).await), None);
        assert_eq!(number(views.view(Part::Ready).await), Some(14));
    }
}
