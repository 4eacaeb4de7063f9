//! What stood in the way of an answer, read from the types in an error's chain of sources. What errors say is for people, differs
//! between systems and versions, and may quote what a peer sent.

use std::{error::Error, io, iter};

use rustls::AlertDescription;

use super::{breaker::Open, client::TooLate};
use crate::{
    addresses::{Denied, NotResolved},
    answers::classify::Obstacle,
};

/// The innermost obstacle that an error or one of its sources names.
pub(super) fn of(error: &(dyn Error + 'static)) -> Obstacle {
    iter::successors(Some(error), |&error| source(error)).filter_map(named).last().unwrap_or_default()
}

/// What an error came from. The source of an `io::Error` that wraps another is that one's source, so it would be passed over.
fn source<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inner) => Some(inner),
        None => error.source(),
    }
}

/// The obstacle that this very error names.
fn named(error: &(dyn Error + 'static)) -> Option<Obstacle> {
    if let Some(open) = error.downcast_ref::<Open>() {
        return Some(open.obstacle());
    }
    if error.is::<Denied>() {
        return Some(Obstacle::Denied);
    }
    if error.is::<NotResolved>() {
        return Some(Obstacle::NotResolved);
    }
    if error.is::<TooLate>() || error.is::<tokio::time::error::Elapsed>() {
        return Some(Obstacle::Timeout);
    }
    if let Some(error) = error.downcast_ref::<rustls::Error>() {
        return of_tls(error);
    }
    if let Some(error) = error.downcast_ref::<hyper::Error>() {
        if error.is_timeout() {
            return Some(Obstacle::Timeout);
        }
        let ended = error.is_incomplete_message() || error.is_closed() || error.is_canceled();
        return ended.then_some(Obstacle::Reset);
    }
    if let Some(error) = error.downcast_ref::<h2::Error>() {
        // What the peer says, and what became of the connection. An error of our own making has neither.
        let ended = error.is_reset() || error.is_go_away();
        return error.get_io().and_then(|error| named(error)).or(ended.then_some(Obstacle::Reset));
    }
    let error = error.downcast_ref::<io::Error>().filter(|error| error.get_ref().is_none())?;
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Some(Obstacle::Refused),
        io::ErrorKind::TimedOut => Some(Obstacle::Timeout),
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::NotConnected
        | io::ErrorKind::UnexpectedEof => Some(Obstacle::Reset),
        _ => None,
    }
}

/// Whether a certificate is what TLS failed over: the server's for us, or ours for the server.
fn of_tls(error: &rustls::Error) -> Option<Obstacle> {
    let is_about_ours = |alert: AlertDescription| {
        matches!(
            alert,
            AlertDescription::NoCertificate
                | AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnknownCA
                | AlertDescription::CertificateUnobtainable
                | AlertDescription::BadCertificateStatusResponse
                | AlertDescription::BadCertificateHashValue
                | AlertDescription::CertificateRequired
        )
    };
    match error {
        rustls::Error::InvalidCertificate(_)
        | rustls::Error::InvalidCertRevocationList(_)
        | rustls::Error::NoCertificatesPresented
        | rustls::Error::UnsupportedNameType => Some(Obstacle::Certificate),
        rustls::Error::AlertReceived(alert) if is_about_ours(*alert) => Some(Obstacle::Certificate),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use tower::BoxError;

    use super::*;

    /// As connectors wrap what they come upon.
    #[derive(Debug, thiserror::Error)]
    #[error("client error (Connect)")]
    struct Wrapped(#[source] BoxError);

    fn wrapped(error: impl Into<BoxError>) -> BoxError {
        Wrapped(Wrapped(error.into()).into()).into()
    }

    #[test]
    fn obstacle_is_read_from_the_types_of_errors() {
        let io = |kind| io::Error::from(kind);
        let no_such_name = io::Error::other("failed to lookup address information");
        let issuer = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let expired = rustls::Error::AlertReceived(AlertDescription::CertificateExpired);
        let cases: [(BoxError, Obstacle); 10] = [
            (wrapped(io(io::ErrorKind::ConnectionRefused)), Obstacle::Refused),
            (wrapped(io::Error::other(NotResolved::from(no_such_name))), Obstacle::NotResolved),
            (wrapped(io::Error::new(io::ErrorKind::InvalidData, issuer)), Obstacle::Certificate),
            (wrapped(expired), Obstacle::Certificate),
            (wrapped(TooLate), Obstacle::Timeout),
            (wrapped(io(io::ErrorKind::TimedOut)), Obstacle::Timeout),
            (wrapped(io(io::ErrorKind::ConnectionReset)), Obstacle::Reset),
            (wrapped(h2::Error::from(h2::Reason::INTERNAL_ERROR)), Obstacle::Other),
            (wrapped(io::Error::other(Denied)), Obstacle::Denied),
            // Words are nobody's: a peer may have chosen them.
            (wrapped("connection refused: certificate lookup"), Obstacle::Other),
        ];
        for (error, wanted) in cases {
            assert_eq!(of(&*error), wanted, "{error:?}");
        }
    }
}
