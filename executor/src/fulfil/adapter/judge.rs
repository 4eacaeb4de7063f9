//! What an adapter said and what was seen -> the verdict on its work (D26). Pure.

use switchyard_proto::v1;

use super::{Task, look::Look};
use crate::{
    adapter::Error,
    answers::{
        classify::{self, Verdict},
        failure::{Failure, Reason},
    },
    cluster::Change,
    mask::Unmasked,
};

/// What an attempt came to.
#[derive(Debug, PartialEq)]
pub(super) struct Judged {
    pub(super) result: Result<v1::Change, Verdict>,
    pub(super) warnings: Vec<String>,
}

impl Judged {
    pub(super) fn done(change: v1::Change) -> Self {
        Self { result: Ok(change), warnings: Vec::new() }
    }

    pub(super) fn not(verdict: Verdict) -> Self {
        Self { result: Err(verdict), warnings: Vec::new() }
    }

    fn refused(reason: Reason, message: String) -> Self {
        Self::not(Verdict::Refused(Failure::new(reason, message)))
    }

    fn unknown(reason: Reason, message: String) -> Self {
        Self::not(Verdict::Unknown(Failure::new(reason, message)))
    }

    fn with_warning(self, warning: String) -> Self {
        Self { warnings: vec![warning], ..self }
    }
}

/// The verdict on a call that was not made, or that the adapter did not act on.
pub(super) fn not_called(error: &Error) -> Judged {
    Judged::not(classify::adapter_did_nothing(error))
}

/// The verdict on a call that was made.
pub(super) fn judge(task: Task<'_>, said: &Result<Unmasked, Error>, looks: &[Look]) -> Judged {
    if task.removes { removed(task.address, said, looks) } else { written(task.address, said, looks) }
}

fn removed(address: &str, said: &Result<Unmasked, Error>, looks: &[Look]) -> Judged {
    let removed = || Judged::done(Change::Removed.into());
    match said {
        Ok(_) if looks.iter().all(Look::is_absent) => removed(),
        Ok(_) if looks.iter().all(|look| look.is_absent() || look.is_unknown()) => acknowledged(address, looks),
        Ok(_) => {
            let text = format!("the adapter at {address} said that it removed the component, but {}", holds(looks));
            Judged::refused(Reason::AdapterFailed, text)
        }
        // Gone is gone, whatever is said of it (D18).
        Err(error) if looks.iter().all(Look::is_absent) => removed().with_warning(with_holds(error, looks)),
        Err(error) => not_done(error, looks),
    }
}

/// The verdict on a call that was made without an OK, where the look does not decide.
fn not_done(error: &Error, looks: &[Look]) -> Judged {
    Judged::not(classify::adapter_did_not_finish(error, with_holds(error, looks)))
}

fn written(address: &str, said: &Result<Unmasked, Error>, looks: &[Look]) -> Judged {
    let changes: Option<Vec<_>> = looks.iter().map(Look::as_declared).collect();
    match (said, changes) {
        (Ok(_), Some(changes)) => Judged::done(overall(&changes).into()),
        (Ok(_), None) if looks.iter().all(|look| look.is_unknown() || look.as_declared().is_some()) => {
            acknowledged(address, looks)
        }
        (Ok(_), None) => {
            Judged::unknown(Reason::AdapterFailed, format!("the adapter at {address} said OK, but {}", holds(looks)))
        }
        // Only what was written since the look before the call can be this call's work.
        (Err(error @ (Error::Lost { .. } | Error::Late { .. })), Some(changes))
            if !changes.contains(&Change::Unchanged) =>
        {
            Judged::done(overall(&changes).into()).with_warning(with_holds(error, looks))
        }
        (Err(error), _) => not_done(error, looks),
    }
}

/// OK that could not be checked everywhere.
fn acknowledged(address: &str, looks: &[Look]) -> Judged {
    let warning = format!("the adapter at {address} said OK, which could not be checked everywhere: {}", holds(looks));
    Judged::done(v1::Change::Acknowledged).with_warning(warning)
}

/// What became of the component on all clusters together.
fn overall(changes: &[Change]) -> Change {
    match changes {
        [first, rest @ ..] if rest.iter().all(|change| change == first) => *first,
        _ => Change::Configured,
    }
}

fn holds(looks: &[Look]) -> String {
    looks.iter().map(Look::tell).collect::<Vec<_>>().join("; ")
}

fn with_holds(error: &Error, looks: &[Look]) -> String {
    format!("{error}; {}", holds(looks))
}

#[cfg(test)]
mod tests;
