//! What a call looks like in HTTP: the path that names it, and where its status stands.

use http::{HeaderMap, HeaderValue};
use tonic::{Code, Status};

/// The header or trailer that holds the status code.
pub(crate) const GRPC_STATUS: &str = "grpc-status";

/// Splits the path of a call into service and method.
pub(crate) fn split_path(path: &str) -> Option<(&str, &str)> {
    path.strip_prefix('/')?.split_once('/')
}

/// Reads the status code out of headers or trailers, if they hold one.
pub(crate) fn code_of(headers: &HeaderMap) -> Option<Code> {
    headers.get(GRPC_STATUS).map(|value: &HeaderValue| Code::from_bytes(value.as_bytes()))
}

/// Writes a status as trailers.
pub(crate) fn trailers_of(status: &Status) -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(3);
    if status.add_header(&mut trailers).is_err() {
        // Only a text that no header can hold gets here. Texts are percent-encoded, so none does; still, never answer
        // OK.
        trailers.insert(GRPC_STATUS, HeaderValue::from(Code::Internal as i32));
    }
    trailers
}
