//! What an answer means: done, refused, try again, or do not know. The one place that classifies.
//!
//! Success is proven, never inferred (D9): only a 2xx whose object is the one that was sent counts, and `apply` looks at
//! that. What comes here did not prove it. An answer is retried only if the same request may do better, and only for as long
//! as its class deserves; all requests the engine sends are repeatable (server-side apply, never POST).

mod adapter;
mod answer;
mod discovery;
mod helm;
mod provided;
#[cfg(test)]
mod refusals;
mod status;
mod unanswered;

use std::time::Duration;

use http::StatusCode;

pub(crate) use self::{
    adapter::{adapter_did_not_finish, adapter_did_nothing},
    answer::{Answer, answered},
    discovery::{discovery_failed, kind_unknown, no_version},
    helm::{helm_failed, in_helms_way},
    provided::{Provided, Provider, ProviderState, Referred, in_light_of, in_light_of_rehearsal},
    status::Status,
    unanswered::{Obstacle, Unanswered, lock_lost, unanswered, unread},
};
use crate::{
    answers::failure::{Failure, Reason, capped},
    core::schedule::Patience,
};

/// What an attempt came to, when it did not prove success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Not done, and the same request would be refused again.
    Refused(Failure),
    /// Not done, or not known to be done, and worth another try.
    Again { failure: Failure, after: Option<Duration>, patience: Patience, lost: bool },
    /// Nobody can tell: a write that could not be checked, or a dry run of what another component would make possible.
    Unknown(Failure),
}

impl Verdict {
    /// Why success was not proven.
    pub(crate) fn failure(&self) -> &Failure {
        match self {
            Self::Refused(failure) | Self::Again { failure, .. } | Self::Unknown(failure) => failure,
        }
    }

    /// The same verdict in other words.
    pub(crate) fn with_message(mut self, message: String) -> Self {
        let (Self::Refused(failure) | Self::Again { failure, .. } | Self::Unknown(failure)) = &mut self;
        failure.message = message;
        self
    }
}

/// What a request was about, for messages and for how patient to be.
#[derive(Clone, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) cluster: &'a str,
    pub(crate) api_version: &'a str,
    pub(crate) kind: &'a str,
    /// Empty for cluster-scoped kinds.
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// Whether a component of the design defines the kind: then "not served" means "not yet".
    pub(crate) kind_in_design: bool,
    /// Whether a component of the design is the namespace.
    pub(crate) namespace_in_design: bool,
}

const fn patience(seconds: u64, tries: u32) -> Patience {
    Patience { budget: Duration::from_secs(seconds), tries }
}

/// Overload and start-up pass, whether they show in a write, in discovery or in a conversion; half a minute is what a person
/// would wait before looking.
const OVERLOAD: Patience = patience(30, 100);
/// A kind that nothing in the design defines may come from a controller (case 25), or be a spelling mistake (case 26).
const UNKNOWN_KIND: Patience = patience(4, 100);
/// An API server that restarts is back within seconds.
const UNREACHABLE: Patience = patience(15, 100);
/// A lost answer is worth five more requests: each proves by itself what became of the first. A connection that is cut takes the
/// answers of all that is in flight on it along, so a few cuts in a row say nothing of this request.
const LOST: Patience = patience(300, 6);
/// Not worth another try, and no proof that an attempt before it, whose answer was lost, was refused too.
const NEVER: Patience = patience(0, 1);
/// What an object refers to may be applied beside it: a role beside its binding (case 81).
const MISSING_REFERENCE: Patience = patience(10, 100);
/// What a controller of the cluster does within seconds.
const CONTROLLER: Patience = patience(10, 100);
/// Errors that say nothing of how long they last.
const ODD: Patience = patience(10, 3);

/// The verdict on a 2xx that does not show the object (202, 204): sending it again proves what became of it.
pub(crate) fn unproven(subject: &Subject<'_>, status: StatusCode) -> Verdict {
    let failure = Failure::new(
        Reason::UnexpectedAnswer,
        format!("cluster {} answered {status} without the object, which proves nothing", subject.cluster),
    );
    Verdict::Again { failure, after: None, patience: patience(30, 2), lost: true }
}

/// The verdict on a refusal after an attempt whose answer was lost and that nobody can look into: it says nothing of that one.
pub(crate) fn in_doubt(refused: Failure) -> Verdict {
    let message =
        format!("an attempt before may have been carried out, though its answer was lost; then {}", refused.message);
    Verdict::Unknown(Failure { message, retryable: true, ..refused })
}

/// The verdict on an object whose name makes no path.
pub(crate) fn no_path(error: &http::Error) -> Verdict {
    Verdict::Refused(Failure::new(Reason::ManifestInvalid, format!("the object has no usable path: {error}")))
}

/// The verdict on a success that does not show the object.
pub(crate) fn odd(subject: &Subject<'_>, what: &str) -> Verdict {
    let text = format!("cluster {} answered something else than {}: {what}", subject.cluster, name(subject));
    Verdict::Refused(Failure::new(Reason::UnexpectedAnswer, text))
}

/// The verdict on a definition or namespace that cannot be looked into: what is in it is not put at risk.
pub(crate) fn contents_unknown(subject: &Subject<'_>, why: &str) -> Verdict {
    let text = format!("{} is kept: what it holds outside the design cannot be told: {}", name(subject), capped(why));
    Verdict::Refused(Failure::new(Reason::ApiUnavailable, text))
}

/// How an object is called in messages.
pub(crate) fn name(subject: &Subject<'_>) -> String {
    let Subject { cluster, namespace, kind, name, .. } = subject;
    if namespace.is_empty() {
        format!("{kind} {name} on cluster {cluster}")
    } else {
        format!("{kind} {namespace}/{name} on cluster {cluster}")
    }
}

/// The verdict on a conflict over an object that has gone since.
pub(crate) fn gone_meanwhile(conflict: Failure) -> Verdict {
    Verdict::Again { failure: conflict, after: Some(Duration::ZERO), patience: ODD, lost: false }
}

/// The verdict on an object of another design (L1). `differs` are fields that are not as asked, where that was looked at.
pub(crate) fn owned_by_design(subject: &Subject<'_>, design: &str, differs: &[&str], conflict: Failure) -> Verdict {
    let unlike = match differs {
        [] => String::new(),
        fields => format!(", and it is not as asked: {}", fields.join(", ")),
    };
    let text = format!(
        "{} belongs to design {design}{unlike}; take the component out of one of the two, undeploy that design, or set \
         `existing` to EXISTING_TAKE_OVER",
        name(subject)
    );
    Verdict::Refused(Failure { causes: conflict.causes, ..Failure::new(Reason::OwnedByDesign, text) })
}

/// The verdict on an object that was there before and carries no design's mark, where such are to be left alone.
pub(crate) fn unmarked(subject: &Subject<'_>) -> Verdict {
    let text = format!(
        "{} was there before and carries no design's mark; delete it, or set `existing` to EXISTING_REFUSE to have it adopted",
        name(subject)
    );
    Verdict::Refused(Failure::new(Reason::NotOurs, text))
}

/// The verdict on an object that was applied while it is on its way out: it will be gone (case 42).
pub(crate) fn being_deleted(subject: &Subject<'_>) -> Verdict {
    let Subject { cluster, kind, name, .. } = subject;
    let failure = Failure::new(
        Reason::BeingDeleted,
        format!("{kind} {name} on cluster {cluster} is being deleted; wait until it is gone and deploy again"),
    );
    Verdict::Again { failure, after: None, patience: OVERLOAD, lost: false }
}

/// The verdict on an object whose namespace is not there.
pub(crate) fn namespace_not_found(subject: &Subject<'_>) -> Verdict {
    Verdict::Refused(Failure::new(Reason::NamespaceNotFound, no_namespace(subject)))
}

fn no_namespace(Subject { cluster, namespace, .. }: &Subject<'_>) -> String {
    format!(
        "namespace {namespace} not found on cluster {cluster}; create it, add it to the design, or set create_namespaces"
    )
}

/// The verdict on an object whose missing namespace has been created meanwhile.
pub(crate) fn namespace_created(missing: Failure) -> Verdict {
    Verdict::Again { failure: missing, after: Some(Duration::ZERO), patience: ODD, lost: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mask::Secrets;

    pub(super) fn subject() -> Subject<'static> {
        Subject {
            cluster: "east",
            api_version: "apps/v1",
            kind: "Deployment",
            namespace: "shop",
            name: "web",
            kind_in_design: false,
            namespace_in_design: false,
        }
    }

    pub(super) fn judge(code: u16, body: &str) -> Verdict {
        let status = StatusCode::from_u16(code).unwrap();
        answered(
            &subject(),
            &Answer { status, retry_after: None, priority_level: None, body: body.as_bytes() },
            &Secrets::default(),
        )
    }

    pub(super) fn status(reason: &str, message: &str, details: &str) -> String {
        format!(r#"{{"kind":"Status","reason":"{reason}","message":"{message}","details":{details}}}"#)
    }

    #[track_caller]
    pub(super) fn assert_refused(verdict: &Verdict, reason: Reason) {
        assert!(matches!(verdict, Verdict::Refused(failure) if failure.reason == reason), "{verdict:?}");
    }

    #[track_caller]
    pub(super) fn assert_again(verdict: &Verdict, wanted: Reason, was_lost: bool) {
        let fits =
            matches!(verdict, Verdict::Again { failure, lost, .. } if failure.reason == wanted && *lost == was_lost);
        assert!(fits, "{verdict:?}");
    }

    #[test]
    fn answers_that_may_follow_a_commit_are_lost() {
        assert_again(&judge(504, ""), Reason::Timeout, true);
        assert_again(&judge(500, &status("", "etcdserver: request timed out", "{}")), Reason::Timeout, true);
        assert_again(
            &unanswered(&subject(), &Unanswered::Lost(Obstacle::Reset, "reset".into())),
            Reason::AnswerLost,
            true,
        );
        assert_again(
            &unanswered(&subject(), &Unanswered::NotSent(Obstacle::Refused, "refused".into())),
            Reason::Unreachable,
            false,
        );
        let untrusted = Unanswered::NotSent(Obstacle::Certificate, "invalid peer certificate".into());
        assert_refused(&unanswered(&subject(), &untrusted), Reason::Unreachable);
        assert_again(&unproven(&subject(), StatusCode::NO_CONTENT), Reason::UnexpectedAnswer, true);
    }

    /// Case 266: trouble that passes is worth as much patience before a write as in its answer.
    #[test]
    fn discovery_and_conversion_deserve_the_patience_of_an_overloaded_write() {
        let patience = |verdict| match verdict {
            Verdict::Again { patience, .. } => patience,
            other => panic!("{other:?}"),
        };
        let overloaded = patience(judge(503, ""));
        assert_eq!(patience(discovery_failed(&subject(), "it answered 503")), overloaded);
        let conversion = "conversion webhook for a.b/v1, Kind=C failed: connection refused";
        assert_eq!(patience(judge(500, &status("InternalError", conversion, "{}"))), overloaded);
    }
}
