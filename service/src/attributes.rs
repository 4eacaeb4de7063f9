//! Names of span attributes, so that both programs spell them alike.
//!
//! Those of RPC, network and service follow the OpenTelemetry semantic conventions. In span macros they are used as
//! `info_span!("…", { attributes::RPC_METHOD } = method)`.

/// Name of the meter that all instruments are made of.
pub const METER: &str = "switchyard";
/// The remote procedure call system: always [`GRPC`] here.
pub const RPC_SYSTEM: &str = "rpc.system";
/// The full name of the called service, package included.
pub const RPC_SERVICE: &str = "rpc.service";
/// The name of the called method, without the service.
pub const RPC_METHOD: &str = "rpc.method";
/// The numeric gRPC status code a call ended with.
pub const RPC_GRPC_STATUS_CODE: &str = "rpc.grpc.status_code";
/// The host that a client calls.
pub const SERVER_ADDRESS: &str = "server.address";
/// The port that a client calls.
pub const SERVER_PORT: &str = "server.port";
/// The address of the peer of a connection.
pub const NETWORK_PEER_ADDRESS: &str = "network.peer.address";
/// The method of an HTTP request.
pub const HTTP_REQUEST_METHOD: &str = "http.request.method";
/// The status code of an HTTP response.
pub const HTTP_RESPONSE_STATUS_CODE: &str = "http.response.status_code";
/// How often an HTTP request has been sent again.
pub const HTTP_REQUEST_RESEND_COUNT: &str = "http.request.resend_count";
/// What class of error ended an operation: a code, never a text.
pub const ERROR_TYPE: &str = "error.type";
/// The name of the program.
pub const SERVICE_NAME: &str = "service.name";
/// The version of the program.
pub const SERVICE_VERSION: &str = "service.version";
/// A name for this one process.
pub const SERVICE_INSTANCE_ID: &str = "service.instance.id";

/// The span name that OpenTelemetry sees, where it is not the one in the source.
pub const OTEL_NAME: &str = "otel.name";
/// The span kind: `server`, `client`, `internal`.
pub const OTEL_KIND: &str = "otel.kind";
/// The span status: `OK` or `ERROR`.
pub const OTEL_STATUS_CODE: &str = "otel.status_code";
/// What a span of status `ERROR` says about it.
pub const OTEL_STATUS_DESCRIPTION: &str = "otel.status_description";

/// The value of [`RPC_SYSTEM`].
pub const GRPC: &str = "grpc";
