//! The connection to an adapter.

use hyper_util::rt::TokioIo;
use switchyard_service::attributes as common;
use tokio::time::{Duration, Instant};
use tonic::transport::{Channel, Endpoint};
use tower::ServiceExt;
use tracing::{Instrument, field::Empty};

use super::{
    Adapter, Call, Error, answer,
    greeting::{Greeting, Peer},
};
use crate::{mask::Unmasked, user_agent};

/// How long a connection may take. An adapter that is black-holed shows nothing at all (case 124).
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an address that could not be reached is not dialled again by the same run (case 123).
const REST: Duration = Duration::from_secs(5);

/// The line to an adapter.
#[derive(Default)]
pub(super) struct Line {
    channel: Option<Channel>,
    /// What the peer of the connection began with.
    greeting: Greeting,
    rest: Option<Rest>,
}

/// Why the last dial failed, and for whom it is not repeated until when.
struct Rest {
    run_id: String,
    until: Instant,
    why: Unmasked,
}

impl Line {
    pub(super) fn is_open(&self) -> bool {
        self.channel.is_some()
    }

    pub(super) fn close(&mut self) {
        self.channel = None;
    }

    /// A failure in the light of what the peer has shown itself to be.
    pub(super) fn explain(&self, adapter: &Adapter, error: Error) -> Error {
        // The other failures say nothing of the connection.
        if !error.may_have_acted() && !matches!(error, Error::Unreachable { .. }) {
            return error;
        }
        let address = adapter.address.clone();
        match self.greeting.peer() {
            Some(Peer::Stranger(what)) => Error::NotGrpc { address, what: what.into() },
            Some(Peer::Silent) => {
                let why = "it ended the connection without a word, as what speaks TLS may do (--adapter-ca)";
                Error::Unreachable { address, why: why.into() }
            }
            Some(Peer::Http2) | None => error,
        }
    }

    pub(super) async fn dial(&mut self, adapter: &Adapter, call: &Call<'_>) -> Result<Channel, Error> {
        if let Some(channel) = &self.channel {
            return Ok(channel.clone());
        }
        let unreachable = |why: String| Error::Unreachable { address: adapter.address.clone(), why };
        if let Some(Rest { run_id, until, why }) = &self.rest
            && run_id == call.run_id
            && Instant::now() < *until
        {
            return Err(self.explain(adapter, unreachable(call.render(why))));
        }
        let span = tracing::info_span!(
            "connect",
            { common::OTEL_NAME } = "connect to adapter",
            { common::OTEL_KIND } = "client",
            { common::OTEL_STATUS_CODE } = Empty,
            { common::ERROR_TYPE } = Empty,
            { common::SERVER_ADDRESS } = adapter.host,
            { common::SERVER_PORT } = i64::from(adapter.port),
        );
        self.greeting = Greeting::default();
        let why = match connect(adapter, self.greeting.clone(), call.deadline).instrument(span.clone()).await {
            Ok(channel) => {
                self.rest = None;
                self.channel = Some(channel.clone());
                return Ok(channel);
            }
            Err(why) => why,
        };
        let told = call.render(&why);
        span.record(common::OTEL_STATUS_CODE, "error");
        span.record(common::ERROR_TYPE, "unreachable");
        span.in_scope(|| tracing::warn!(address = adapter.address, why = told, "adapter cannot be reached"));
        self.rest = Some(Rest { run_id: call.run_id.to_owned(), until: Instant::now() + REST, why });
        Err(self.explain(adapter, unreachable(told)))
    }
}

/// Connects, or says in words why that failed.
async fn connect(adapter: &Adapter, greeting: Greeting, deadline: Instant) -> Result<Channel, Unmasked> {
    adapter.reach.check(&adapter.host).map_err(|denied| Unmasked::from(denied.to_string()))?;
    let scheme = if adapter.tls.is_some() { "https" } else { "http" };
    let endpoint = Endpoint::from_shared(format!("{scheme}://{}", adapter.address))
        .and_then(|endpoint| match adapter.tls.clone() {
            Some(tls) => endpoint.tls_config(tls),
            None => Ok(endpoint),
        })
        .and_then(|endpoint| endpoint.user_agent(user_agent::program()))
        .map_err(|error| crate::mask::sources::innermost(&error))?
        // For the dials that the channel makes by itself when its connection is gone. The first dial is bound below, and
        // should end there, where it is named.
        .connect_timeout(CONNECT_TIMEOUT + Duration::from_secs(1));
    let mut http = adapter.reach.connector();
    http.enforce_http(false);
    http.set_nodelay(true);
    let is_plain = adapter.tls.is_none();
    let connector = tower::service_fn(move |uri: http::Uri| {
        let (http, greeting) = (http.clone(), greeting.clone());
        async move {
            let io = http.oneshot(uri).await?.into_inner();
            // What is inside TLS is not seen here; that it is TLS the handshake tells.
            let io = if is_plain { greeting.watch(io) } else { Greeting::watch_not(io) };
            Ok::<_, tower::BoxError>(TokioIo::new(io))
        }
    });
    // The bound stands here and not only on the endpoint: a lazy or custom connector would lose it.
    let by = deadline.min(Instant::now() + CONNECT_TIMEOUT);
    match tokio::time::timeout_at(by, endpoint.connect_with_connector(connector)).await {
        Ok(Ok(channel)) => Ok(channel),
        Ok(Err(error)) => Err(answer::why_no_connection(&error)),
        Err(_) => Err(answer::no_answer()),
    }
}
