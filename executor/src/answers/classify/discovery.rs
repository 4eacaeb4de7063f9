//! The verdict on a kind that cannot be found.

use super::{OVERLOAD, Subject, UNKNOWN_KIND, Verdict};
use crate::{
    answers::failure::{Failure, Reason, capped},
    core::schedule::Patience,
};

/// The verdict on a kind that discovery does not know.
///
/// `near` is a kind of a similar name in the same version, `elsewhere` another version of the group that serves the kind:
/// then waiting for the one asked for is in vain.
pub(crate) fn kind_unknown(subject: &Subject<'_>, near: Option<&str>, elsewhere: Option<&str>) -> Verdict {
    let hint = match (subject.kind_in_design, near) {
        _ if let Some(version) = elsewhere => format!("; it serves it as {version}"),
        (true, _) => "; its definition is part of the design but is not served yet".into(),
        (false, Some(near)) => format!("; did you mean {near}?"),
        (false, None) => "; install what defines it, or add its definition to the design".into(),
    };
    let Subject { cluster, api_version, kind, .. } = subject;
    let failure = Failure::new(
        Reason::KindUnknown,
        format!("cluster {cluster} does not serve kind {kind} of {api_version}{hint}"),
    );
    match elsewhere {
        Some(_) => Verdict::Refused(failure),
        None => Verdict::Again { failure, after: None, patience: kind_patience(subject), lost: false },
    }
}

/// The verdict on an object whose apiVersion can be none.
pub(crate) fn no_version(subject: &Subject<'_>) -> Verdict {
    let Subject { api_version, kind, .. } = subject;
    let text = format!("{kind} cannot be sent: {api_version:?} is no apiVersion, such as `v1` or `apps/v1`");
    Verdict::Refused(Failure::new(Reason::ManifestInvalid, text))
}

/// The verdict on a group that cannot be discovered (case 20).
pub(crate) fn discovery_failed(subject: &Subject<'_>, why: &str) -> Verdict {
    let Subject { cluster, api_version, .. } = subject;
    let failure = Failure::new(
        Reason::ApiUnavailable,
        format!("cluster {cluster} does not say which kinds {api_version} has: {}", capped(why)),
    );
    Verdict::Again { failure, after: None, patience: OVERLOAD, lost: false }
}

/// How long to wait for a kind that is not served.
pub(super) fn kind_patience(subject: &Subject<'_>) -> Patience {
    if subject.kind_in_design { OVERLOAD } else { UNKNOWN_KIND }
}
