//! The layer that stands between every call and the services: counts calls, refuses them while draining, cuts them when
//! the time is over, and turns panics and tonic's own size errors into statuses of the contract.
//!
//! It works on HTTP bodies, so it holds for a response stream until its end and not only until the handler has returned
//! it.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures::FutureExt;
use http::{HeaderMap, Request, Response};
use http_body::{Frame, SizeHint};
use tokio_util::{
    sync::{CancellationToken, WaitForCancellationFutureOwned},
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};
use tonic::{Code, Status, body::Body};
use tower::{Layer, Service};

use crate::{
    budget::Budget,
    connection::{OpenCall, after},
    received::{self, Received},
    rpc,
    shutdown::Shutdown,
    status::{self, Reason, refusal},
};

/// What the guard needs to know; shared by all calls.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Names of the services that do the program's work; health and reflection are not among them.
    pub(crate) services: Vec<&'static str>,
    /// Paths of methods whose first message may name the parent of the call's span.
    pub(crate) parent_later: Vec<&'static str>,
    /// Paths of methods that are served to the end: who waits for a drain has to see what it waits for, and be able to stop it.
    pub(crate) to_the_end: Vec<&'static str>,
    pub(crate) shutdown: Shutdown,
    /// Holds one token for each call to one of `services` until its response has ended.
    pub(crate) calls: TaskTracker,
    /// Cancelled when whatever is still open is to end.
    pub(crate) closing: CancellationToken,
    pub(crate) max_message_bytes: usize,
    /// Of all requests.
    pub(crate) budget: Budget,
}

#[derive(Debug, Clone)]
pub(crate) struct GuardLayer(pub(crate) Arc<Watch>);

impl<S> Layer<S> for GuardLayer {
    type Service = Guard<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Guard { inner, watch: Arc::clone(&self.0) }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Guard<S> {
    inner: S,
    watch: Arc<Watch>,
}

impl<S> Service<Request<Body>> for Guard<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Send,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let watch = Arc::clone(&self.watch);
        let token = match watch.admit(request.uri().path()) {
            Ok(token) => token,
            Err(status) => return Box::pin(std::future::ready(Ok(status.into_http()))),
        };
        let path = request.uri().path().to_owned();
        let timeout = rpc::timeout(request.headers());
        // Held until the response has ended, as the token is.
        let open = request.extensions_mut().remove::<OpenCall>();
        // A message that is whole, and the beginning of the next.
        let (request, received) = Received::count(request, watch.budget.share(2 * watch.max_message_bytes));
        // A handler may panic before its first await too, which is here.
        let answer = catch_unwind(AssertUnwindSafe(|| self.inner.call(request)));
        Box::pin(async move {
            let Ok(answer) = answer else { return Ok(panicked().into_http()) };
            let response = tokio::select! {
                // Cut first: when both are ready the time is over.
                biased;
                () = watch.closing.cancelled() => return Ok(status::shutting_down().into_status().into_http()),
                answer = AssertUnwindSafe(answer).catch_unwind() => match answer {
                    Ok(response) => response?,
                    Err(_) => return Ok(panicked().into_http()),
                },
                () = received.overdue() => return Ok(received::overdue().into_http()),
                () = after(timeout) => return Ok(late().into_http()),
            };
            Ok(guarded(response, &watch, (token, open), &path))
        })
    }
}

impl Watch {
    /// Lets a call in and counts it, or refuses it. Health and reflection are let in to the end and not counted.
    fn admit(&self, path: &str) -> Result<Option<TaskTrackerToken>, Status> {
        if !self.is_work(path) {
            return Ok(None);
        }
        // The token comes first: a drain that starts in between then waits for this call or is seen by it.
        let token = self.calls.token();
        let refused = self.shutdown.is_draining() && !self.to_the_end.contains(&path);
        if refused { Err(status::shutting_down().into()) } else { Ok(Some(token)) }
    }

    /// Says whether a call does the program's work, by its path.
    pub(crate) fn is_work(&self, path: &str) -> bool {
        rpc::split_path(path).is_some_and(|(service, _)| self.services.contains(&service))
    }

    /// Says whether the call's first message may name the parent of its span.
    pub(crate) fn names_parent_later(&self, path: &str) -> bool {
        self.parent_later.contains(&path)
    }

    /// Says in the contract's terms what tonic says in its own about a message that it does not take: one above the limit, and one
    /// that is none.
    fn translate(&self, headers: &HeaderMap) -> Option<Status> {
        let code = rpc::code_of(headers)?;
        if !matches!(code, Code::OutOfRange | Code::ResourceExhausted | Code::Internal) {
            return None;
        }
        let status = Status::from_header_map(headers)?;
        // tonic has no other mark for these than their texts; a test fails when they change.
        let begins = |texts: &[&str]| texts.iter().any(|text| status.message().starts_with(text));
        if code == Code::Internal {
            let unreadable = begins(&["failed to decode Protobuf message", "Unexpected EOF decoding stream"]);
            return unreadable.then(|| unreadable_message(status.message()).into_status());
        }
        let too_large = begins(&["Error, decoded message length too large", "Error decompressing: size limit"]);
        too_large.then(|| too_large_a_message(self.max_message_bytes).into_status())
    }
}

/// `why` names fields and says how they are encoded, and no value.
fn unreadable_message(why: &str) -> status::Refusal {
    let text = format!("a message cannot be read: {why}");
    refusal(Reason::RequestInvalid, &text).violation("", text)
}

fn too_large_a_message(limit: usize) -> status::Refusal {
    let text =
        format!("the message is larger than the {limit} bytes this server reads; --max-message-bytes raises the limit");
    refusal(Reason::MessageTooLarge, text.as_str()).metadata("limit_bytes", limit.to_string()).quota("message", text)
}

fn late() -> Status {
    refusal(Reason::DeadlineExceeded, "the caller's deadline has passed").into_status()
}

/// Answers what tonic leaves without a word (case 334).
fn no_such_method(path: &str) -> Status {
    let path = status::capped(path, 128);
    let text = format!("this server has no method {path}; reflection lists those that it has");
    refusal(Reason::MethodUnknown, text).into_status()
}

fn panicked() -> Status {
    // The panic hook has written message and place already; the message may hold anything, so it is not repeated.
    tracing::error!("a call ended in a panic");
    status::internal().into()
}

/// Puts the guard around a response.
fn guarded(response: Response<Body>, watch: &Arc<Watch>, token: Tokens, path: &str) -> Response<Body> {
    if rpc::code_of(response.headers()) == Some(Code::Unimplemented) && rpc::is_silent(response.headers()) {
        return no_such_method(path).into_http();
    }
    if let Some(status) = watch.translate(response.headers()) {
        return status.into_http();
    }
    response.map(|inner| {
        let closing = Box::pin(watch.closing.clone().cancelled_owned());
        Body::new(GuardedBody { inner, closing, watch: Arc::clone(watch), _token: token })
    })
}

struct GuardedBody {
    inner: Body,
    closing: Pin<Box<WaitForCancellationFutureOwned>>,
    watch: Arc<Watch>,
    _token: Tokens,
}

/// What counts a call as open: among all that do the program's work, and among those of its connection.
type Tokens = (Option<TaskTrackerToken>, Option<OpenCall>);

impl GuardedBody {
    /// Ends the stream with `status`. The inner body is dropped at once, so that its sender learns of it.
    fn end_with(&mut self, status: &Status) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.inner = Body::empty();
        Poll::Ready(Some(Ok(Frame::trailers(rpc::trailers_of(status)))))
    }
}

impl http_body::Body for GuardedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.inner.is_end_stream() {
            return Poll::Ready(None);
        }
        if self.closing.as_mut().poll(cx).is_ready() {
            return self.end_with(&status::shutting_down().into());
        }
        let Ok(polled) = catch_unwind(AssertUnwindSafe(|| Pin::new(&mut self.inner).poll_frame(cx))) else {
            return self.end_with(&panicked());
        };
        let frame = ready!(polled);
        if let Some(Ok(frame)) = &frame
            && let Some(trailers) = frame.trailers_ref()
            && let Some(status) = self.watch.translate(trailers)
        {
            return self.end_with(&status);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // A stream that may be cut has no known size.
        SizeHint::default()
    }
}
