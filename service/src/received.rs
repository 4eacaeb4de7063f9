//! The bytes of a request that have come in and that nobody has taken out yet, in the budget of all requests (cases 247, 323).
//!
//! A message that is still coming in is held by the transport, which counts nothing. So they are counted here, frame by frame, for
//! every call, until the handler says that it has taken a message out, or the request is done with.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::Request;
use http_body::{Body as _, Frame, SizeHint};
use tokio::time::{Duration, sleep};
use tonic::{Status, body::Body};

use crate::{
    budget::{Exceeded, Share},
    status::{self, Reason, refusal},
};

/// How long the request of a call that is not a stream may take to come in, in one message: 16 MiB over a line of 1 Mbit/s.
const WHOLE_REQUEST: Duration = Duration::from_secs(150);
/// What of a request is taken in though there is no room: probes, and calls that list runs and stop them, have to get through
/// then above all. It is less than an open call takes anyway.
const ALWAYS: usize = 4 * 1024;

/// What has come in of a request: an extension of the request.
#[derive(Debug, Clone)]
pub struct Received(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    share: Mutex<Share>,
    /// Whether all has come in.
    ended: AtomicBool,
}

impl Received {
    /// Has the request's bytes counted in `share`.
    pub(crate) fn count(request: Request<Body>, share: Share) -> (Request<Body>, Self) {
        let received = Self(Arc::new(Inner { share: Mutex::new(share), ended: AtomicBool::new(false) }));
        let mut request = request.map(|inner| {
            received.0.ended.store(inner.is_end_stream(), Ordering::Relaxed);
            Body::new(CountedBody { inner, received: received.clone() })
        });
        request.extensions_mut().insert(received.clone());
        (request, received)
    }

    /// Says that the message which came in is now the handler's, who counts it by itself.
    pub fn taken_out(&self) {
        let mut share = self.share();
        let held = share.held();
        share.give_back(held);
    }

    /// Comes to an end if the request has not come in within the time that it has.
    pub(crate) async fn overdue(&self) {
        sleep(WHOLE_REQUEST).await;
        if self.0.ended.load(Ordering::Relaxed) {
            std::future::pending().await
        }
    }

    fn hold(&self, bytes: usize) -> Result<(), Exceeded> {
        let mut share = self.share();
        if share.held() + bytes <= ALWAYS {
            share.take_anyway(bytes);
            return Ok(());
        }
        share.take(bytes)
    }

    fn share(&self) -> MutexGuard<'_, Share> {
        self.0.share.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Refuses a request that came in too slowly.
pub(crate) fn overdue() -> Status {
    let text = format!("the request had not come in after {} s", WHOLE_REQUEST.as_secs());
    refusal(Reason::DeadlineExceeded, text).into_status()
}

fn refuse(exceeded: Exceeded) -> Status {
    let text = exceeded.to_string();
    let refusal = match exceeded {
        Exceeded::Request { .. } => refusal(Reason::MessageTooLarge, text.as_str()).quota("message", text),
        Exceeded::All { .. } => status::too_busy("max-held-bytes", text),
    };
    refusal.into_status()
}

struct CountedBody {
    inner: Body,
    received: Received,
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Self { inner, received } = &mut *self;
        let frame = ready!(Pin::new(&mut *inner).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
            && let Err(exceeded) = received.hold(data.len())
        {
            *inner = Body::empty();
            return Poll::Ready(Some(Err(refuse(exceeded))));
        }
        if !matches!(frame, Some(Ok(_))) || inner.is_end_stream() {
            received.0.ended.store(true, Ordering::Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for CountedBody {
    fn drop(&mut self) {
        self.received.taken_out();
    }
}
