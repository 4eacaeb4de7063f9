//! The client stack: kube's configuration and authentication over a connection of our own.
//!
//! kube's own connector speaks HTTP/1.1 without `TCP_NODELAY`: a TLS handshake a connection and 40 ms stalls, together half
//! of what a server can do. This one speaks HTTP/2 on one connection. A server that cannot is spoken to in HTTP/1.1. kube's
//! client hands each request to a task of its own; here it goes straight to the connection.

use std::{
    panic::AssertUnwindSafe,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt, StreamExt, future::BoxFuture};
use http::{Request, Response, Uri};
use hyper::{body::Incoming, rt::Executor};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client as HyperClient, connect::HttpConnector},
    rt::TokioTimer,
};
use kube::client::{Body, ConfigExt};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt, layer::layer_fn, util::BoxCloneSyncService};

use super::{
    access::Way,
    breaker::{Breaker, Open},
    obstacle,
    plugin::{self, WithToken},
};
use crate::{
    addresses::{Reach, Resolver},
    mask::{Unmasked, sources},
    together::{Spawner, Together},
};

/// How long a connection may take, TLS included. A cluster across an ocean needs about one second.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Which HTTP is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Http1,
    Http2,
}

/// Sends requests to one cluster, with its credentials.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    service: BoxCloneSyncService<Request<Body>, Response<Incoming>, BoxError>,
    version: Version,
}

impl Client {
    /// Sends one request.
    pub(crate) fn send(
        &self,
        request: Request<Body>,
    ) -> impl Future<Output = Result<Response<Incoming>, BoxError>> + use<> {
        self.service.clone().oneshot(request)
    }

    /// Which HTTP it speaks.
    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// kube's own client over the same connection, for what it can do and this one cannot.
    pub(crate) fn kube(&self) -> kube::Client {
        kube::Client::new(self.service.clone(), "default")
    }
}

/// A client for the cluster that `config` names. Connects on the first request.
pub(crate) fn client(
    Way { config, plugin, reach, .. }: &Way,
    version: Version,
    breaker: Arc<Breaker>,
) -> Result<Client, kube::Error> {
    let mut http = reach.connector();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let mut builder = HttpsConnectorBuilder::new().with_tls_config(config.rustls_client_config()?).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = name.clone().try_into().map_err(|error| kube::Error::Service(Box::new(error)))?;
        builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let https = match version {
        Version::Http1 => builder.enable_http1().wrap_connector(http),
        Version::Http2 => builder.enable_http2().wrap_connector(http),
    };
    let mut hyper = HyperClient::builder(OneTask::start());
    hyper.pool_timer(TokioTimer::new()).timer(TokioTimer::new());
    if version == Version::Http2 {
        hyper
            .http2_only(true)
            // Answers are larger than what was sent; small windows would make the server wait for us.
            .http2_initial_stream_window_size(1 << 20)
            .http2_initial_connection_window_size(1 << 24)
            .http2_keep_alive_interval(Duration::from_secs(20))
            .http2_keep_alive_timeout(Duration::from_secs(10));
    }
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(config.extra_headers_layer()?)
        .option_layer(config.auth_layer()?)
        .option_layer(plugin.clone().map(|plugin| layer_fn(move |inner| WithToken { inner, plugin: plugin.clone() })))
        .map_err(BoxError::from)
        .service(hyper.build::<_, Body>(Dial { https, reach: *reach, breaker }));
    Ok(Client { service: BoxCloneSyncService::new(service), version })
}

/// Where hyper spawns what a client's connections are made of: all in one task. hyper splits the work of an HTTP/2 connection among
/// futures, one that takes requests in, one that reads and writes, two for each request. As tasks of their own they wake threads
/// for one another, several times a request.
#[derive(Clone, Debug)]
struct OneTask(Spawner<()>);

impl OneTask {
    /// Starts the task, which ends when the connections have ended and nobody can make new ones.
    fn start() -> Self {
        let mut together = Together::new();
        let spawner = together.spawner();
        tokio::spawn(async move { while together.next().await.is_some() {} });
        Self(spawner)
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for OneTask {
    fn execute(&self, future: F) {
        // As with tasks, a panic ends the one future.
        self.0.spawn(AssertUnwindSafe(future).catch_unwind().map(drop).boxed());
    }
}

/// No connection within [`CONNECT_TIMEOUT`].
#[derive(Debug, thiserror::Error)]
#[error("no connection within {} s", CONNECT_TIMEOUT.as_secs())]
pub(super) struct TooLate;

/// Dials, unless the breaker says that dialling is useless for now, and tells the breaker how it went (case 90).
#[derive(Clone)]
struct Dial {
    https: HttpsConnector<HttpConnector<Resolver>>,
    reach: Reach,
    breaker: Arc<Breaker>,
}

impl Service<Uri> for Dial {
    type Response = <HttpsConnector<HttpConnector<Resolver>> as Service<Uri>>::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.https.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        if let Err(denied) = self.reach.check(uri.host().unwrap_or_default()) {
            return Box::pin(async move { Err(denied.into()) });
        }
        if let Err(open) = self.breaker.permit() {
            return Box::pin(async move { Err(open.into()) });
        }
        let dialling = self.https.call(uri);
        let breaker = self.breaker.clone();
        Box::pin(async move {
            let outcome = match tokio::time::timeout(CONNECT_TIMEOUT, dialling).await {
                Ok(outcome) => outcome,
                Err(_) => Err(TooLate.into()),
            };
            match &outcome {
                Ok(_) => breaker.closed(),
                Err(error) => breaker.failed(obstacle::of(&**error), innermost(&**error)),
            }
            outcome
        })
    }
}

/// The innermost cause, in words; of a connection that is not tried for the moment, why.
pub(crate) fn innermost(error: &(dyn std::error::Error + 'static)) -> Unmasked {
    let open = sources::sources(error).last().and_then(|error| error.downcast_ref::<Open>());
    open.map_or_else(|| sources::innermost(error), Open::why)
}

/// Whether nothing can have been carried out: no connection was made, or the server said that it did not look at the request
/// (RFC 9113 sections 6.8 and 8.7), as one does that sends its clients elsewhere.
pub(crate) fn was_not_sent(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut source = Some(error);
    while let Some(error) = source {
        // Without credentials nothing is sent.
        if error.is::<plugin::Error>() {
            return true;
        }
        if let Some(error) = error.downcast_ref::<hyper_util::client::legacy::Error>()
            && error.is_connect()
        {
            return true;
        }
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            let refused = error.reason() == Some(h2::Reason::REFUSED_STREAM);
            let goes_away = error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR);
            return error.is_remote() && (refused || goes_away);
        }
        source = error.source();
    }
    false
}
