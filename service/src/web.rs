//! gRPC-Web for pages of named origins, and for nobody else (docs/calling.md).
//!
//! A page can call whatever its browser reaches, so who is not named is refused before the call is looked at. Without origins nothing is
//! spoken but gRPC.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::Either;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use tonic::body::Body;
use tonic_web::GrpcWebLayer;
use tower::{Layer, Service, ServiceExt as _};

/// What all media types of gRPC-Web begin with.
const MEDIA_TYPE: &[u8] = b"application/grpc-web";
/// What a page may send beside what every page may.
const SENT: HeaderValue =
    HeaderValue::from_static("content-type,x-grpc-web,x-user-agent,grpc-timeout,traceparent,tracestate,authorization");
/// What a page may read: statuses that come without a body stand in headers.
const READ: HeaderValue = HeaderValue::from_static("grpc-status,grpc-message,grpc-status-details-bin");
/// How long a browser may remember what it was told, in seconds.
const REMEMBERED: HeaderValue = HeaderValue::from_static("600");
/// What whoever is not let in is told.
const REFUSED: &str = "pages of this origin may not call; --grpc-web-origins names those that may.\n";

/// Translates calls in gRPC-Web.
#[derive(Debug, Clone)]
pub(crate) struct WebLayer(Arc<[HeaderValue]>);

impl WebLayer {
    /// For pages of these origins.
    pub(crate) fn new(origins: &[HeaderValue]) -> Self {
        Self(origins.into())
    }
}

impl<S> Layer<S> for WebLayer {
    type Service = Web<S>;

    fn layer(&self, inner: S) -> Web<S> {
        Web { origins: Arc::clone(&self.0), inner }
    }
}

/// See [`WebLayer`].
#[derive(Debug, Clone)]
pub(crate) struct Web<S> {
    origins: Arc<[HeaderValue]>,
    inner: S,
}

impl<S> Service<Request<Body>> for Web<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Either<S::Future, Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let asks_first = *request.method() == Method::OPTIONS;
        if self.origins.is_empty() || !(asks_first || is_web(request.headers())) {
            return Either::Left(self.inner.call(request));
        }
        let origin = request.headers().get(header::ORIGIN).filter(|origin| self.origins.contains(origin)).cloned();
        let translated = GrpcWebLayer::new().layer(self.inner.clone());
        Either::Right(Box::pin(async move {
            let Some(origin) = origin else {
                tracing::debug!("a call in gRPC-Web is refused for its origin");
                return Ok(plain(StatusCode::FORBIDDEN, REFUSED));
            };
            let mut response =
                if asks_first { plain(StatusCode::NO_CONTENT, "") } else { translated.oneshot(request).await? };
            let headers = response.headers_mut();
            if asks_first {
                headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("POST"));
                headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, SENT);
                headers.insert(header::ACCESS_CONTROL_MAX_AGE, REMEMBERED);
            }
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, READ);
            headers.insert(header::VARY, HeaderValue::from_static("origin"));
            Ok(response)
        }))
    }
}

fn is_web(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|media_type| media_type.as_bytes().starts_with(MEDIA_TYPE))
}

fn plain(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::new(http_body_util::Full::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
