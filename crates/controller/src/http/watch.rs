//! Watches: changes as they are published, as lines of JSON or as events for browsers.
//!
//! Approach  A watch has a place in the one history of the view, and no queue. It waits for news, takes
//!           what follows its place, and sends it. A bookmark tells its version while nothing happens.
//! Promises  A watch that falls behind the history ends with the error 410, and the client lists again.

use super::Shared;
use crate::problem::Problem;
use crate::state::{Event, Stored};
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::json;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch::Receiver;

/// A bookmark follows so much silence: it tells the client that the connection lives.
const BOOKMARK_AFTER: Duration = Duration::from_secs(10);

struct Watch<F> {
    shared: Arc<Shared>,
    news: Receiver<u64>,
    wanted: F,
    /// Changes up to this version were sent.
    sent: u64,
    events: bool,
    ended: bool,
}

/// The changes after `from`, or from now on.
pub(super) fn stream<F>(
    shared: &Arc<Shared>,
    from: Option<u64>,
    wanted: F,
    headers: &HeaderMap,
) -> Result<Response, Problem>
where
    F: Fn(&Stored) -> bool + Send + Sync + 'static,
{
    let newest = shared.view.revision();
    let sent = from.unwrap_or(newest);
    if sent > newest {
        let detail = format!("version {sent} is not yet; the newest is {newest}");
        return Err(Problem::new(400, "BadParameter", "query.resourceVersion", detail));
    }
    shared.view.after(sent, |_| false).map_err(|gone| compacted(sent, gone.oldest))?;
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let events = accept.is_some_and(|accept| accept.contains("text/event-stream"));
    shared.metrics.watches.inc();
    let news = shared.view.newest();
    let watch = Watch { shared: Arc::clone(shared), news, wanted, sent, events, ended: false };
    let stream = futures_util::stream::unfold(watch, |mut watch| async move {
        let piece = watch.next().await?;
        Some((Ok::<_, io::Error>(piece), watch))
    });
    let kind = if events { "text/event-stream" } else { "application/x-ndjson" };
    let head = [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-store")];
    Ok((head, Body::from_stream(stream)).into_response())
}

fn compacted(sent: u64, oldest: u64) -> Problem {
    let detail = format!(
        "changes after version {sent} are no longer known, only those after {oldest}: list again and \
         watch from the version of the list"
    );
    Problem::new(410, "Compacted", "query.resourceVersion", detail).with("oldest", oldest)
}

impl<F> Drop for Watch<F> {
    fn drop(&mut self) {
        self.shared.metrics.watches.dec();
    }
}

impl<F: Fn(&Stored) -> bool> Watch<F> {
    /// What is sent next; nothing at the end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.ended || self.shared.stopping.load(Ordering::Relaxed) {
                return None;
            }
            // What is published from here on wakes the wait below.
            self.news.mark_unchanged();
            match self.shared.view.after(self.sent, &self.wanted) {
                Err(gone) => {
                    self.ended = true;
                    let problem = compacted(self.sent, gone.oldest).body().to_string();
                    return Some(self.line("ERROR", self.sent, &problem));
                }
                Ok((events, reached)) if reached > self.sent => {
                    self.sent = reached;
                    if !events.is_empty() {
                        return Some(self.lines(&events));
                    }
                    continue;
                }
                Ok(_) => {}
            }
            match tokio::time::timeout(BOOKMARK_AFTER, self.news.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return None,
                Err(_) => {
                    let at = json!({"metadata": {"resourceVersion": self.sent.to_string()}});
                    return Some(self.line("BOOKMARK", self.sent, &at.to_string()));
                }
            }
        }
    }

    fn lines(&self, events: &[Event]) -> Bytes {
        let mut text = Vec::new();
        for event in events {
            let line = self.line(event.kind.name(), event.revision, &event.stored.json);
            text.extend_from_slice(&line);
        }
        text.into()
    }

    fn line(&self, kind: &str, revision: u64, object: &str) -> Bytes {
        let text = format!(r#"{{"type":"{kind}","object":{object}}}"#);
        match self.events {
            false => format!("{text}\n").into(),
            true => format!("id: {revision}\nevent: {kind}\ndata: {text}\n\n").into(),
        }
    }
}
