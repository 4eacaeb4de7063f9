//! An error and what it came from.

use std::{error::Error, iter};

use crate::mask::Unmasked;

/// The error, then what it came from, the innermost last.
pub(crate) fn sources<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    iter::successors(Some(error), |&error| error.source())
}

/// The innermost cause, which is what a person needs to hear: "connection refused", "invalid peer certificate: UnknownIssuer".
///
/// What a peer sends along with the end of a connection (RFC 9113 section 6.8, debug data) is left out: it may be anything.
pub(crate) fn innermost(error: &(dyn Error + 'static)) -> Unmasked {
    let error = sources(error).last().unwrap_or(error);
    match error.downcast_ref::<h2::Error>().and_then(h2::Error::reason) {
        Some(reason) => reason.to_string().into(),
        None => error.to_string().into(),
    }
}
