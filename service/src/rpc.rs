//! What a call looks like in HTTP: the path that names it, the time that its caller gives it, and where its status stands.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use tonic::{Code, Status};

/// The header or trailer that holds the status code.
pub(crate) const GRPC_STATUS: &str = "grpc-status";

/// Splits the path of a call into service and method.
pub(crate) fn split_path(path: &str) -> Option<(&str, &str)> {
    path.strip_prefix('/')?.split_once('/')
}

/// Reads how long the caller is willing to wait, counted from when the call came (`grpc-timeout`, gRPC over HTTP/2).
pub fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 = number.parse().ok().filter(|_| number.len() <= 8)?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

/// Reads the status code out of headers or trailers, if they hold one.
pub(crate) fn code_of(headers: &HeaderMap) -> Option<Code> {
    headers.get(GRPC_STATUS).map(|value: &HeaderValue| Code::from_bytes(value.as_bytes()))
}

/// Says whether a status has no text.
pub(crate) fn is_silent(headers: &HeaderMap) -> bool {
    headers.get("grpc-message").is_none_or(|text| text.is_empty())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_call_is_read_as_grpc_spells_it() {
        let of = |text: &'static str| {
            timeout(&HeaderMap::from_iter([("grpc-timeout".parse().unwrap(), text.parse().unwrap())]))
        };
        assert_eq!(of("2S"), Some(Duration::from_secs(2)));
        assert_eq!(of("99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
        assert_eq!(of("1500m"), Some(Duration::from_millis(1500)));
        for bad in ["", "S", "2", "123456789S", "-1S"] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
