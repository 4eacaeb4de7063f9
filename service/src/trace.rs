//! The layer that gives every call to our services one span of kind SERVER.
//!
//! The parent is taken from `traceparent` before the span is entered, and only if it is valid. The span lives until the
//! response stream has ended, so what a handler streams, and what it spawns with `Span::current()`, lies inside.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Frame, SizeHint};
use tonic::{Code, Status, body::Body};
use tower::{Layer, Service};
use tracing::{Instrument, Span, field::Empty};

use crate::{attributes, guard::Watch, metrics, rpc, telemetry};

#[derive(Debug, Clone)]
pub(crate) struct TraceLayer(pub(crate) Arc<Watch>);

impl<S> Layer<S> for TraceLayer {
    type Service = Trace<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Trace { inner, watch: Arc::clone(&self.0) }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Trace<S> {
    inner: S,
    watch: Arc<Watch>,
}

impl<S> Service<Request<Body>> for Trace<S>
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

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // Probes and reflection would drown the rest. Paths that name no service of ours have no span either: their
        // names would be whatever a caller makes up.
        if !self.watch.is_work(request.uri().path()) {
            return Box::pin(self.inner.call(request));
        }
        let mut request = request;
        let span = span_for(&request);
        let has_parent = telemetry::set_parent(&span, request.headers());
        let mut record =
            Record { span: span.clone(), path: request.uri().path().to_owned(), began: Instant::now(), code: None };
        if !has_parent && self.watch.names_parent_later(request.uri().path()) {
            // Entering a span settles its parent, so this one is left to the handler, unentered.
            request.extensions_mut().insert(Unparented(span.clone()));
            let answer = self.inner.call(request);
            return Box::pin(async move {
                let response = answer.await?;
                record.read(response.headers());
                Ok(response.map(|inner| Body::new(TracedBody { inner, record, entered: false })))
            });
        }
        let answer = span.in_scope(|| self.inner.call(request));
        Box::pin(
            async move {
                let response = answer.await?;
                record.read(response.headers());
                Ok(response.map(|inner| Body::new(TracedBody { inner, record, entered: true })))
            }
            .instrument(span),
        )
    }
}

/// The span of a call that named no parent in its metadata and may name one in its first message: an extension of the request.
///
/// The handler gives it that parent with [`telemetry::set_parent_from_plan`], or none, and only then enters it.
#[derive(Debug, Clone)]
pub struct Unparented(pub Span);

fn span_for(request: &Request<Body>) -> Span {
    let path = request.uri().path();
    let (service, method) = rpc::split_path(path).unwrap_or_default();
    tracing::info_span!(
        "rpc",
        { attributes::OTEL_NAME } = path.trim_start_matches('/'),
        { attributes::OTEL_KIND } = "server",
        { attributes::OTEL_STATUS_CODE } = Empty,
        { attributes::RPC_SYSTEM } = attributes::GRPC,
        { attributes::RPC_SERVICE } = service,
        { attributes::RPC_METHOD } = method,
        { attributes::RPC_GRPC_STATUS_CODE } = Empty,
    )
}

/// Writes down the status of a call when it is over, whichever way it ends.
struct Record {
    span: Span,
    path: String,
    began: Instant,
    code: Option<Code>,
}

impl Record {
    fn read(&mut self, headers: &HeaderMap) {
        self.code = self.code.or_else(|| rpc::code_of(headers));
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        // No status was sent: the caller has gone away, or its deadline has passed.
        let code = self.code.unwrap_or(Code::Cancelled);
        self.span.record(attributes::RPC_GRPC_STATUS_CODE, code as i32);
        let (service, method) = rpc::split_path(&self.path).unwrap_or_default();
        metrics::call_ended(service, method, code, self.began.elapsed());
        if is_our_fault(code) {
            self.span.record(attributes::OTEL_STATUS_CODE, "ERROR");
        }
    }
}

/// Says whether a code makes a SERVER span an error; those that blame the caller do not. The list is that of the
/// conventions.
fn is_our_fault(code: Code) -> bool {
    matches!(
        code,
        Code::Unknown
            | Code::DeadlineExceeded
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
    )
}

struct TracedBody {
    inner: Body,
    record: Record,
    /// Whether the span was entered before; if not, its parent is not settled yet.
    entered: bool,
}

impl http_body::Body for TracedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let frame = if this.entered {
            ready!(this.record.span.in_scope(|| Pin::new(&mut this.inner).poll_frame(cx)))
        } else {
            ready!(Pin::new(&mut this.inner).poll_frame(cx))
        };
        if let Some(Ok(frame)) = &frame
            && let Some(trailers) = frame.trailers_ref()
        {
            this.record.read(trailers);
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
