//! Bodies that come whole, in part, slowly or not at all.

use std::{
    future::Future as _,
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use tokio::time::{Sleep, sleep};
use tokio_util::sync::CancellationToken;

/// The body of an answer.
pub(crate) type Answer = http_body_util::combinators::BoxBody<Bytes, io::Error>;

/// Time for what was sent before to leave, so that it is a break *after* that.
const BREATH: Duration = Duration::from_millis(50);
const DRIP: Duration = Duration::from_secs(1);

/// How a broken body ends.
pub(crate) enum End {
    /// The answer breaks off.
    Break,
    /// The connection breaks.
    Cut(CancellationToken),
    /// Never.
    Silence,
}

/// The whole body.
pub(crate) fn whole(body: Bytes) -> Answer {
    http_body_util::Full::new(body).map_err(|never| match never {}).boxed()
}

/// A body as it comes.
pub(super) fn passed_on(body: Incoming) -> Answer {
    body.map_err(io::Error::other).boxed()
}

/// The beginning of a body, and then `end`.
pub(crate) fn broken(beginning: Bytes, end: End) -> Answer {
    BodyExt::boxed(Broken { beginning: Some(beginning).filter(|it| !it.is_empty()), end, pause: None })
}

/// The body, byte by byte.
pub(crate) fn dripping(body: Bytes) -> Answer {
    BodyExt::boxed(Dripping { rest: body, pause: Box::pin(sleep(Duration::ZERO)) })
}

/// A body without an end, as fast as it is taken.
pub(crate) fn endless() -> Answer {
    const PIECE: usize = 256 * 1024;
    let piece = Bytes::from(vec![b'x'; PIECE]);
    let pieces = futures::stream::repeat_with(move || Ok(Frame::data(piece.clone())));
    BodyExt::boxed(http_body_util::StreamBody::new(pieces))
}

struct Broken {
    beginning: Option<Bytes>,
    end: End,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Body for Broken {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if let Some(beginning) = self.beginning.take() {
            return Poll::Ready(Some(Ok(Frame::data(beginning))));
        }
        let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(BREATH)));
        if pause.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        match &self.end {
            End::Break => Poll::Ready(Some(Err(io::Error::other("broken off on purpose")))),
            End::Cut(connection) => {
                connection.cancel();
                Poll::Pending
            }
            End::Silence => Poll::Pending,
        }
    }
}

struct Dripping {
    rest: Bytes,
    pause: Pin<Box<Sleep>>,
}

impl Body for Dripping {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        if self.pause.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.pause = Box::pin(sleep(DRIP));
        let drop = self.rest.split_to(1);
        Poll::Ready(Some(Ok(Frame::data(drop))))
    }
}
