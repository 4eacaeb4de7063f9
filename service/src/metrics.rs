//! Metrics for Prometheus: set up when an address is given (`--metrics-listen`), and otherwise nothing that costs anything.
//!
//! Instruments are made of the global meter when they are first used, which is after this was set up. Labels are closed sets:
//! methods, codes, outcomes; never a name, an id or a text (case 139).

mod process;

use std::{convert::Infallible, io, net::SocketAddr, sync::LazyLock, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use opentelemetry::{
    KeyValue, global,
    metrics::{Counter, Histogram},
};
use opentelemetry_sdk::{Resource, metrics::SdkMeterProvider};
use prometheus::{Encoder, Registry, TextEncoder};
use tokio::{net::TcpListener, task::JoinSet};
use tonic::Code;

pub use crate::attributes::METER;
use crate::{accept::Acceptor, attributes, telemetry::lost};

/// Boundaries of durations in seconds: those that the OpenTelemetry conventions for RPC and HTTP advise, and beyond these what a run
/// may take.
pub const SECONDS: [f64; 20] = [
    0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
    1800.0,
];

/// Connections at once: a Prometheus or two, and somebody who looks.
const CONNECTIONS: usize = 16;
/// How long a request may take to come.
const READ_LIMIT: Duration = Duration::from_secs(5);

/// Why there are no metrics.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel does not give the address.
    #[error("could not listen on {address} for metrics")]
    Bind {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// The exporter could not be set up.
    #[error("could not set up metrics")]
    Exporter(#[source] opentelemetry_sdk::error::OTelSdkError),
}

/// Where Prometheus reads.
pub(crate) struct Endpoint {
    listener: TcpListener,
    registry: Registry,
}

/// Opens the address and makes every instrument of the process count.
pub(crate) async fn open(address: SocketAddr, resource: Resource) -> Result<Endpoint, Error> {
    let bind = |source| Error::Bind { address, source };
    let listener = TcpListener::bind(address).await.map_err(bind)?;
    let registry = Registry::new();
    let exporter = opentelemetry_prometheus::exporter().with_registry(registry.clone()).build();
    let provider =
        SdkMeterProvider::builder().with_reader(exporter.map_err(Error::Exporter)?).with_resource(resource).build();
    global::set_meter_provider(provider);
    lost::show();
    process::show();
    tracing::info!(address = %listener.local_addr().map_err(bind)?, "metrics are served at /metrics");
    Ok(Endpoint { listener, registry })
}

impl Endpoint {
    /// Answers for as long as it is polled.
    pub(crate) async fn serve(self) -> Infallible {
        let Self { listener, registry } = self;
        let mut acceptor = Acceptor::new(listener);
        let mut connections = JoinSet::new();
        loop {
            while connections.len() >= CONNECTIONS {
                connections.join_next().await;
            }
            let stream = tokio::select! {
                (stream, _) = acceptor.next() => stream,
                Some(_) = connections.join_next() => continue,
            };
            let registry = registry.clone();
            let service = service_fn(move |request| {
                let answer = answer(&registry, &request);
                async move { Ok::<_, Infallible>(answer) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(READ_LIMIT)
                .serve_connection(TokioIo::new(stream), service);
            connections.spawn(connection);
        }
    }
}

fn answer(registry: &Registry, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let say = |status, text: &'static str| {
        let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
        *response.status_mut() = status;
        response
    };
    if request.uri().path() != "/metrics" {
        return say(StatusCode::NOT_FOUND, "metrics are at /metrics\n");
    }
    if request.method() != Method::GET {
        return say(StatusCode::METHOD_NOT_ALLOWED, "metrics are read with GET\n");
    }
    let encoder = TextEncoder::new();
    let mut text = Vec::new();
    if encoder.encode(&registry.gather(), &mut text).is_err() {
        return say(StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be written\n");
    }
    let mut response = Response::new(Full::new(Bytes::from(text)));
    if let Ok(value) = encoder.format_type().parse() {
        response.headers_mut().insert(header::CONTENT_TYPE, value);
    }
    response
}

static CALLS: LazyLock<Histogram<f64>> = LazyLock::new(|| {
    global::meter(METER)
        .f64_histogram("rpc.server.call.duration")
        .with_description("How long calls took, to the end of their streams")
        .with_unit("s")
        .with_boundaries(SECONDS.to_vec())
        .build()
});

static REFUSED: LazyLock<Counter<u64>> = LazyLock::new(|| {
    global::meter(METER)
        .u64_counter("switchyard.connections.refused")
        .with_description("Connections that came to nothing, by why")
        .build()
});

/// Counts a connection that came to nothing: `places`, `handshake`, `timeout`, `protocol`.
pub(crate) fn connection_refused(why: &'static str) {
    REFUSED.add(1, &[KeyValue::new("reason", why)]);
}

/// Counts a call that has ended.
pub(crate) fn call_ended(service: &str, method: &str, code: Code, took: Duration) {
    // A method that does not exist is named by the caller, who could make up as many as there is memory for.
    let method = if code == Code::Unimplemented { "" } else { method };
    let labels = [
        KeyValue::new(attributes::RPC_SYSTEM, attributes::GRPC),
        KeyValue::new(attributes::RPC_SERVICE, service.to_owned()),
        KeyValue::new(attributes::RPC_METHOD, method.to_owned()),
        KeyValue::new(attributes::RPC_GRPC_STATUS_CODE, code as i64),
    ];
    CALLS.record(took.as_secs_f64(), &labels);
}
