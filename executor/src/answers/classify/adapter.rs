//! The verdict on a call to an adapter that did not come to an OK.

use super::Verdict;
use crate::{
    adapter::Error,
    answers::failure::{Failure, Reason},
    core::schedule::Patience,
};

/// An adapter that has no room has it when its calls end, which may take minutes.
const BUSY: Patience = super::patience(300, 1000);

/// The verdict on a call that was not made, or that the adapter did not act on.
pub(crate) fn adapter_did_nothing(error: &Error) -> Verdict {
    let reason = match error {
        Error::Busy { .. } => {
            let failure = Failure::new(Reason::Throttled, error.to_string());
            return Verdict::Again { failure, after: None, patience: BUSY, lost: false };
        }
        Error::Unreachable { .. } => Reason::AdapterUnreachable,
        Error::TooLarge { .. } => Reason::TooLarge,
        Error::Declaration(_) => Reason::ManifestInvalid,
        Error::Stopped { .. } => Reason::Cancelled,
        Error::NotGrpc { .. } => Reason::NotGrpc,
        Error::NotOffered { .. } | Error::Failed { .. } | Error::Lost { .. } | Error::Late { .. } => {
            Reason::AdapterFailed
        }
    };
    Verdict::Refused(Failure::new(reason, error.to_string()))
}

/// The verdict on a call that was made, where a look at the clusters does not decide; `text` says what they hold.
pub(crate) fn adapter_did_not_finish(error: &Error, text: String) -> Verdict {
    match error {
        Error::Lost { .. } => Verdict::Unknown(Failure::new(Reason::AnswerLost, text)),
        Error::Late { .. } => Verdict::Unknown(Failure::new(Reason::AdapterTimeout, text)),
        _ => Verdict::Refused(Failure::new(Reason::AdapterFailed, text)),
    }
}
