//! The part of a request's body that its handler does not read.
//!
//! Problem   A handler may refuse a request before it has read the body: for a header, for the token.
//!           hyper closes the connection then. A client that is still sending gets an error of its
//!           connection instead of the answer.
//! Approach  The controller goes on reading after the answer, and throws away what it reads.
//! Promises  It throws away at most [`BODY_MOST`] octets, in at most [`BODY_TIME`].

use super::{BODY_MOST, BODY_TIME};
use axum::body::{Body, Bytes};
use axum::extract::Request;
use http_body_util::BodyExt as _;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::runtime::Handle;

/// The same request: its body is read to its end whatever the handler does with it.
pub(super) fn read_to_end(request: Request) -> Request {
    request.map(|body| Body::new(ToTheEnd(body)))
}

struct ToTheEnd(Body);

impl HttpBody for ToTheEnd {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.0).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

impl Drop for ToTheEnd {
    fn drop(&mut self) {
        if self.0.is_end_stream() {
            return;
        }
        let rest = mem::take(&mut self.0);
        // There is no runtime while the process ends.
        if let Ok(runtime) = Handle::try_current() {
            drop(runtime.spawn(tokio::time::timeout(BODY_TIME, discard(rest))));
        }
    }
}

async fn discard(mut rest: Body) {
    let mut room = BODY_MOST;
    while let Some(Ok(frame)) = rest.frame().await {
        let length = frame.data_ref().map_or(0, Bytes::len);
        let Some(left) = room.checked_sub(length) else { return };
        room = left;
    }
}
