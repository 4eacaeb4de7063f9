//! Every answer of a server -> done, refused, try again, or do not know: the one place that classifies.
//!
//! Success is proven, never inferred (D9): only a 2xx whose object is the one that was sent counts, and `apply` looks at
//! that. What comes here did not prove it. An answer is retried only if the same request may do better, and only for as long
//! as its class deserves; all requests the engine sends are repeatable (server-side apply, never POST).

use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;

use crate::{
    mask::{Secrets, Unmasked},
    schedule::Patience,
};

/// Longest message that is passed on, in bytes.
const MAX_TEXT: usize = 4096;
/// Most causes of one failure that are passed on, and the bytes beyond which no further one is added to them (case 248).
const MAX_CAUSES: usize = 20;
const MAX_CAUSES_TEXT: usize = 4096;

/// Why something was not done. The closed list of `Failure.reason` in the contract, as far as the executor uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Conflict,
    Immutable,
    Invalid,
    Forbidden,
    CredentialsRejected,
    NamespaceNotFound,
    NamespaceTerminating,
    KindUnknown,
    ApiUnavailable,
    TooLarge,
    Throttled,
    ServerError,
    Timeout,
    Unreachable,
    AnswerLost,
    WebhookDenied,
    WebhookUnavailable,
    PolicyDenied,
    ConversionUnavailable,
    ApplyUnsupported,
    UnexpectedAnswer,
    DefinitionRejected,
    DefinitionNotServed,
    BeingDeleted,
    ManifestInvalid,
    Internal,
    Cancelled,
    NotOurs,
    OwnedByDesign,
    Stale,
    ForeignContents,
    Protected,
    FinalizersPending,
    NotFound,
    AdapterUnreachable,
    AdapterFailed,
    AdapterTimeout,
    NotGrpc,
    HelmMissing,
    ChartUnfetchable,
    ChartRefused,
    ChartPending,
    ChartConflict,
    ChartFailed,
}

impl Reason {
    /// The reason as the contract spells it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Conflict => "CONFLICT",
            Self::Immutable => "IMMUTABLE",
            Self::Invalid => "INVALID",
            Self::Forbidden => "FORBIDDEN",
            Self::CredentialsRejected => "CREDENTIALS_REJECTED",
            Self::NamespaceNotFound => "NAMESPACE_NOT_FOUND",
            Self::NamespaceTerminating => "NAMESPACE_TERMINATING",
            Self::KindUnknown => "KIND_UNKNOWN",
            Self::ApiUnavailable => "API_UNAVAILABLE",
            Self::TooLarge => "TOO_LARGE",
            Self::Throttled => "THROTTLED",
            Self::ServerError => "SERVER_ERROR",
            Self::Timeout => "TIMEOUT",
            Self::Unreachable => "UNREACHABLE",
            Self::AnswerLost => "ANSWER_LOST",
            Self::WebhookDenied => "WEBHOOK_DENIED",
            Self::WebhookUnavailable => "WEBHOOK_UNAVAILABLE",
            Self::PolicyDenied => "POLICY_DENIED",
            Self::ConversionUnavailable => "CONVERSION_UNAVAILABLE",
            Self::ApplyUnsupported => "APPLY_UNSUPPORTED",
            Self::UnexpectedAnswer => "UNEXPECTED_ANSWER",
            Self::DefinitionRejected => "DEFINITION_REJECTED",
            Self::DefinitionNotServed => "DEFINITION_NOT_SERVED",
            Self::BeingDeleted => "BEING_DELETED",
            Self::ManifestInvalid => "MANIFEST_INVALID",
            Self::Internal => "INTERNAL",
            Self::Cancelled => "CANCELLED",
            Self::NotOurs => "NOT_OURS",
            Self::OwnedByDesign => "OWNED_BY_DESIGN",
            Self::Stale => "STALE",
            Self::ForeignContents => "FOREIGN_CONTENTS",
            Self::Protected => "PROTECTED",
            Self::FinalizersPending => "FINALIZERS_PENDING",
            Self::NotFound => "NOT_FOUND",
            Self::AdapterUnreachable => "ADAPTER_UNREACHABLE",
            Self::AdapterFailed => "ADAPTER_FAILED",
            Self::AdapterTimeout => "ADAPTER_TIMEOUT",
            Self::NotGrpc => "NOT_GRPC",
            Self::HelmMissing => "HELM_MISSING",
            Self::ChartUnfetchable => "CHART_UNFETCHABLE",
            Self::ChartRefused => "CHART_REFUSED",
            Self::ChartPending => "CHART_PENDING",
            Self::ChartConflict => "CHART_CONFLICT",
            Self::ChartFailed => "CHART_FAILED",
        }
    }

    /// Whether the same plan may succeed later without a change to the design.
    fn is_retryable(self) -> bool {
        match self {
            Self::NamespaceTerminating
            | Self::ApiUnavailable
            | Self::Throttled
            | Self::ServerError
            | Self::Timeout
            | Self::Unreachable
            | Self::AnswerLost
            | Self::WebhookUnavailable
            | Self::ConversionUnavailable
            | Self::DefinitionNotServed
            | Self::BeingDeleted
            | Self::FinalizersPending
            | Self::AdapterUnreachable
            | Self::AdapterTimeout
            | Self::ChartUnfetchable
            | Self::ChartPending
            | Self::Cancelled => true,
            Self::Conflict
            | Self::Immutable
            | Self::Invalid
            | Self::Forbidden
            | Self::CredentialsRejected
            | Self::NamespaceNotFound
            | Self::KindUnknown
            | Self::TooLarge
            | Self::WebhookDenied
            | Self::PolicyDenied
            | Self::ApplyUnsupported
            | Self::UnexpectedAnswer
            | Self::DefinitionRejected
            | Self::ManifestInvalid
            | Self::NotOurs
            | Self::OwnedByDesign
            | Self::Stale
            | Self::ForeignContents
            | Self::Protected
            | Self::NotFound
            | Self::AdapterFailed
            | Self::NotGrpc
            | Self::HelmMissing
            | Self::ChartRefused
            | Self::ChartConflict
            | Self::ChartFailed
            | Self::Internal => false,
        }
    }
}

/// What was refused and why. Holds no secret value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) reason: Reason,
    pub(crate) message: String,
    pub(crate) retryable: bool,
    pub(crate) causes: Vec<Cause>,
}

/// One cause of a failure, as the API server named it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    pub(crate) field: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), retryable: reason.is_retryable(), causes: Vec::new() }
    }
}

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

/// A request that has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// Nothing was sent, because the run cannot prove that it holds its lock on the cluster.
    Fenced,
    /// No connection was made, so nothing was sent.
    NotSent(String),
    /// The connection broke after the request may have been sent.
    Lost(String),
    /// No complete answer within this time.
    Silent(Duration),
}

/// An answer that is not the object that was sent.
#[derive(Clone, Debug)]
pub(crate) struct Answer<'a> {
    pub(crate) status: StatusCode,
    pub(crate) retry_after: Option<Duration>,
    /// UID of the priority level that the server put the request into, if it said so.
    pub(crate) priority_level: Option<&'a str>,
    pub(crate) body: &'a [u8],
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    message: Unmasked,
    reason: Unmasked,
    details: Option<Details>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    name: String,
    kind: String,
    causes: Vec<StatusCause>,
    retry_after_seconds: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StatusCause {
    field: Unmasked,
    reason: Unmasked,
    message: Unmasked,
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

/// The verdict on a request without an answer (cases 50, 51).
pub(crate) fn unanswered(subject: &Subject<'_>, what: &Unanswered) -> Verdict {
    let Subject { cluster, .. } = subject;
    let (reason, message, patience, lost) = match what {
        Unanswered::Fenced => return Verdict::Refused(Failure::new(Reason::Cancelled, lock_lost(cluster))),
        Unanswered::NotSent(why) => (
            Reason::Unreachable,
            format!("cluster {cluster} cannot be reached: {why}; nothing was sent"),
            UNREACHABLE,
            false,
        ),
        Unanswered::Lost(why) => (
            Reason::AnswerLost,
            format!("the answer of cluster {cluster} was lost ({why}); the object may have been applied"),
            LOST,
            true,
        ),
        Unanswered::Silent(limit) => (
            Reason::Timeout,
            format!("no answer from cluster {cluster} in {limit:.1?}; the object may have been applied"),
            LOST,
            true,
        ),
    };
    Verdict::Again { failure: Failure::new(reason, message), after: None, patience, lost }
}

/// Why nothing is written to a cluster whose lock may have gone to another run (case 261).
pub(crate) fn lock_lost(cluster: &str) -> String {
    format!("nothing was written to cluster {cluster}: the run can no longer prove that it holds its lock there")
}

/// The verdict on an answer that is not the object that was sent.
pub(crate) fn answered(subject: &Subject<'_>, answer: &Answer<'_>, secrets: &Secrets) -> Verdict {
    let status: Status = serde_json::from_slice(answer.body).unwrap_or_else(|_| Status {
        message: String::from_utf8_lossy(answer.body).into_owned().into(),
        ..Status::default()
    });
    let details = status.details.unwrap_or_default();
    let mut text = secrets.render(&status.message);
    let class = Class::of(answer.status, &status.reason, &status.message, &details, subject);
    let after = answer
        .retry_after
        .or_else(|| (details.retry_after_seconds > 0).then(|| Duration::from_secs(details.retry_after_seconds)));
    if let (Reason::Throttled, Some(level)) = (class.reason, answer.priority_level) {
        text.push_str(&format!(" (the request's priority level has the uid {level})"));
    }
    let failure = Failure {
        causes: first_causes(details.causes.into_iter().map(|cause| Cause {
            field: secrets.render(&cause.field),
            reason: secrets.render(&cause.reason),
            message: secrets.render(&cause.message),
        })),
        // A race is over when it is run again; a field manager in the way stays there.
        retryable: class.reason.is_retryable() || (class.reason == Reason::Conflict && class.patience.is_some()),
        ..Failure::new(class.reason, class.sentence(subject, answer.status, &text))
    };
    match class.patience {
        None => Verdict::Refused(failure),
        Some(patience) => match after {
            Some(asked) if asked > patience.budget => Verdict::Refused(Failure {
                message: format!(
                    "{}; the server asked to wait {} s, more than the {} s that are worth waiting",
                    failure.message,
                    asked.as_secs(),
                    patience.budget.as_secs()
                ),
                ..failure
            }),
            _ => Verdict::Again { failure, after, patience, lost: class.lost },
        },
    }
}

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

/// The verdict on a read without an answer: nothing can have been changed by it.
pub(crate) fn unread(subject: &Subject<'_>, why: &Unanswered) -> Verdict {
    let (reason, patience) = match why {
        Unanswered::Fenced | Unanswered::NotSent(_) => (Reason::Unreachable, UNREACHABLE),
        Unanswered::Lost(_) | Unanswered::Silent(_) => (Reason::Timeout, ODD),
    };
    let text = format!("cluster {} did not say what {} is: {why}", subject.cluster, name(subject));
    Verdict::Again { failure: Failure::new(reason, text), after: None, patience, lost: false }
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

/// A component of the design that makes this one possible: it defines its kind, is its namespace, or is referred to by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Provider<'a> {
    pub(crate) component: &'a str,
    pub(crate) state: ProviderState,
}

/// How far a provider has come on the cluster in question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProviderState {
    /// It succeeded, or may yet.
    Sound,
    /// It failed, or would.
    Failed,
    /// It ended without success and without a failure of its own: withheld, cancelled, or nobody knows.
    Missing,
}

/// Something that a component refers to by name, and the component that is it.
#[derive(Clone, Debug)]
pub(crate) struct Referred<'a> {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) by: Provider<'a>,
}

impl Referred<'_> {
    /// Whether the API server's words miss this very one.
    fn is_missed(&self, message: &str) -> bool {
        let Self { kind, name, .. } = self;
        match kind.as_str() {
            "ServiceAccount" => message.contains(&format!("serviceaccount \"{name}\"")),
            "PriorityClass" => message.contains(&format!("PriorityClass with name {name} ")),
            _ => message.contains(name.as_str()),
        }
    }
}

/// What the design itself brings along for a component.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Provided<'a> {
    pub(crate) kind: Option<Provider<'a>>,
    pub(crate) namespace: Option<Provider<'a>>,
    /// What it refers to by name.
    pub(crate) referred: &'a [Referred<'a>],
    /// Whether a chart is installed before the component, which may bring its kind or its namespace.
    pub(crate) chart: bool,
    /// Whether an adapter is asked for it, which may bring its kind or its namespace along, or be the only one that knows them.
    pub(crate) adapter: bool,
    /// Whether the run creates a missing namespace by itself.
    pub(crate) creates_namespaces: bool,
    pub(crate) dry_run: bool,
}

/// The verdict in the light of what the design brings along. Nothing is waited for that will not come; and in a dry run, what
/// fails only because nothing was created before it cannot be told (D20).
pub(crate) fn in_light_of(provided: Provided<'_>, verdict: Verdict, subject: &Subject<'_>) -> Verdict {
    let (Verdict::Refused(failure) | Verdict::Again { failure, .. } | Verdict::Unknown(failure)) = &verdict;
    let Subject { cluster, kind, namespace, .. } = subject;
    let (provider, what) = match failure.reason {
        Reason::KindUnknown => (provided.kind, format!("kind {kind} is defined by")),
        Reason::NamespaceNotFound => (provided.namespace, format!("namespace {namespace} is created by")),
        // The API server's words name the one that it misses.
        Reason::NotFound => match provided.referred.iter().find(|it| it.is_missed(&failure.message)) {
            Some(Referred { kind, name, by }) => (Some(*by), format!("{kind} {name} is created by")),
            None => (None, String::new()),
        },
        // A webhook with side effects says so instead of deciding (case 83).
        _ if provided.dry_run && failure.message.contains("does not support dry run") => {
            return cannot_tell(failure, &failure.message);
        }
        _ => return verdict,
    };
    let failure = failure.clone();
    match provider {
        Some(Provider { component, state: ProviderState::Failed }) => {
            let how = if provided.dry_run { "would fail itself" } else { "failed" };
            refused(failure, format!("{what} component {component}, which {how} on cluster {cluster}"))
        }
        Some(Provider { component, .. }) if provided.dry_run => {
            cannot_tell(&failure, &format!("{what} component {component}"))
        }
        Some(Provider { component, state: ProviderState::Missing }) => {
            refused(failure, format!("{what} component {component}, which did not succeed on cluster {cluster}"))
        }
        Some(Provider { state: ProviderState::Sound, .. }) => verdict,
        None if provided.dry_run && failure.reason == Reason::NamespaceNotFound && provided.creates_namespaces => {
            cannot_tell(&failure, &format!("namespace {namespace} would be created first"))
        }
        None if provided.dry_run && provided.chart => {
            cannot_tell(&failure, &format!("{}; the chart that it needs would be installed first", failure.message))
        }
        None if provided.dry_run && provided.adapter && failure.reason != Reason::NotFound => {
            cannot_tell(&failure, &format!("{}; its adapter may see to that", failure.message))
        }
        None if provided.dry_run => Verdict::Refused(failure),
        None => verdict,
    }
}

fn refused(failure: Failure, message: String) -> Verdict {
    Verdict::Refused(Failure { message, ..failure })
}

fn cannot_tell(failure: &Failure, because: &str) -> Verdict {
    Verdict::Unknown(Failure { message: format!("cannot tell in a dry run: {because}"), ..failure.clone() })
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

/// The verdict on an object whose missing namespace has been created meanwhile.
pub(crate) fn namespace_created(missing: Failure) -> Verdict {
    Verdict::Again { failure: missing, after: Some(Duration::ZERO), patience: ODD, lost: false }
}

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

/// The verdict on a group that cannot be discovered (case 20).
pub(crate) fn discovery_failed(subject: &Subject<'_>, why: &str) -> Verdict {
    let Subject { cluster, api_version, .. } = subject;
    let failure = Failure::new(
        Reason::ApiUnavailable,
        format!("cluster {cluster} does not say which kinds {api_version} has: {}", capped(why)),
    );
    Verdict::Again { failure, after: None, patience: OVERLOAD, lost: false }
}

fn kind_patience(subject: &Subject<'_>) -> Patience {
    if subject.kind_in_design { OVERLOAD } else { UNKNOWN_KIND }
}

struct Class {
    reason: Reason,
    patience: Option<Patience>,
    lost: bool,
}

impl Class {
    fn refused(reason: Reason) -> Self {
        Self { reason, patience: None, lost: false }
    }

    fn again(reason: Reason, patience: Patience) -> Self {
        Self { reason, patience: Some(patience), lost: false }
    }

    fn lost(reason: Reason) -> Self {
        Self { reason, patience: Some(LOST), lost: true }
    }

    fn of(code: StatusCode, reason: &Unmasked, message: &Unmasked, details: &Details, subject: &Subject<'_>) -> Self {
        // A webhook's refusal carries whatever code the webhook chose (case 48).
        if message.contains("admission webhook") && message.contains("denied the request") {
            return Self::refused(Reason::WebhookDenied);
        }
        // So does a policy's (case 289), whose words name policy and binding.
        if (message.contains("AdmissionPolicy '") || message.contains("with binding '"))
            && message.contains("denied request")
        {
            return Self::refused(Reason::PolicyDenied);
        }
        let has_cause = |wanted: &str| details.causes.iter().any(|cause| cause.reason.is(wanted));
        match code.as_u16() {
            401 => Self::again(Reason::CredentialsRejected, NEVER),
            403 if has_cause("NamespaceTerminating") => Self::again(Reason::NamespaceTerminating, OVERLOAD),
            403 if is_about_what_comes_later(message) => Self::again(Reason::NotFound, MISSING_REFERENCE),
            // The quota is there and nobody has counted yet what it limits.
            403 if message.contains("status unknown for quota") => Self::again(Reason::ApiUnavailable, CONTROLLER),
            403 => Self::refused(Reason::Forbidden),
            404 if details.kind == "namespaces" && subject.namespace_in_design => {
                Self::again(Reason::NamespaceNotFound, ODD)
            }
            404 if details.kind == "namespaces" => Self::refused(Reason::NamespaceNotFound),
            404 if !details.name.is_empty() && details.name != subject.name => {
                Self::again(Reason::NotFound, MISSING_REFERENCE)
            }
            404 => Self::again(Reason::KindUnknown, kind_patience(subject)),
            409 if has_cause("FieldManagerConflict") => Self::refused(Reason::Conflict),
            409 if message.contains("UID in precondition") => Self::refused(Reason::Stale),
            409 => Self::again(Reason::Conflict, ODD),
            413 => Self::refused(Reason::TooLarge),
            415 => Self::refused(Reason::ApplyUnsupported),
            429 => Self::again(Reason::Throttled, OVERLOAD),
            400 | 422 if is_immutable(message) => Self::refused(Reason::Immutable),
            500 if message.contains("failed calling webhook") => Self::again(Reason::WebhookUnavailable, OVERLOAD),
            500 if message.contains("conversion webhook") => Self::again(Reason::ConversionUnavailable, OVERLOAD),
            // What a kind's schema does not know is refused like this, though it is the object's fault (case 54).
            500 if message.contains("failed to create typed patch object") => Self::refused(Reason::Invalid),
            // So is a value of the wrong form, such as a quantity or base64 that is none (case 282).
            500 if message.contains("unable to convert unstructured object to ") => Self::refused(Reason::Invalid),
            500 if names_a_version_that_is_gone(|words| message.contains(words)) => Self::refused(Reason::Invalid),
            500 if message.contains("request is too large") => Self::refused(Reason::TooLarge),
            500 if reason.is("Timeout") || message.contains("request timed out") => Self::lost(Reason::Timeout),
            500 => Self::again(Reason::ServerError, ODD),
            502 | 504 => Self::lost(Reason::Timeout),
            503 => Self::again(Reason::ApiUnavailable, OVERLOAD),
            505..=599 => Self::again(Reason::ServerError, ODD),
            400..=499 => Self::refused(Reason::Invalid),
            _ => Self::refused(Reason::UnexpectedAnswer),
        }
    }

    fn sentence(&self, subject: &Subject<'_>, code: StatusCode, text: &str) -> String {
        let Subject { cluster, namespace, kind, .. } = subject;
        let what = name(subject);
        match self.reason {
            Reason::CredentialsRejected => format!("the credentials are no longer accepted by cluster {cluster}"),
            Reason::Forbidden => format!("{what} is forbidden: {text}"),
            Reason::NamespaceNotFound => format!(
                "namespace {namespace} not found on cluster {cluster}; create it, add it to the design, or set create_namespaces"
            ),
            Reason::NamespaceTerminating => {
                format!("namespace {namespace} on cluster {cluster} is being terminated; wait until it is gone: {text}")
            }
            Reason::KindUnknown => format!("{what}: the API server does not serve this path (yet): {text}"),
            Reason::NotFound => format!("{what} refers to what does not exist there: {text}"),
            Reason::PolicyDenied => format!("{what} was denied by a policy of the cluster: {text}"),
            Reason::Stale => format!("{what} has been made anew by somebody meanwhile: {text}"),
            Reason::Conflict if self.patience.is_some() => {
                format!("{what} could not be written beside another write at the same moment: {text}")
            }
            Reason::Conflict => {
                format!(
                    "{what} conflicts with another field manager: {text}; set force_conflicts to take the fields over"
                )
            }
            Reason::Invalid if names_a_version_that_is_gone(|words| text.contains(words)) => format!(
                "{what} can no longer be applied, as its managed fields name a version that its definition no longer has; \
                 clear them (a JSON patch that replaces /metadata/managedFields by [{{}}]) and deploy again: {text}"
            ),
            Reason::Immutable => format!("{what} changes an immutable field, which takes deleting it first: {text}"),
            Reason::TooLarge => format!("{what} is too large for the API server: {text}"),
            Reason::Throttled => format!("cluster {cluster} is throttling: {text}"),
            Reason::ApplyUnsupported => format!("{what}: this API does not accept server-side apply: {text}"),
            Reason::WebhookUnavailable => format!("{what}: a webhook could not be called: {text}"),
            Reason::ConversionUnavailable => {
                format!("{what}: the conversion webhook of {kind} could not be called: {text}")
            }
            Reason::Timeout => format!("{what}: the API server ran out of time and may have applied it: {text}"),
            _ => format!("{what} was refused ({}): {text}", code.as_u16()),
        }
    }
}

/// Whether an object could not be converted because its managed fields name a version that its definition no longer has
/// (case 283).
fn names_a_version_that_is_gone(says: impl Fn(&str) -> bool) -> bool {
    says("request to convert CR") && says("invalid group/version")
}

/// Whether a refusal is about an account or a priority that may be made a moment later, by a controller or by the design itself
/// (case 288).
fn is_about_what_comes_later(message: &Unmasked) -> bool {
    message.contains("error looking up service account") && message.contains("not found")
        || message.contains("no PriorityClass with name")
}

/// Whether a refusal is about a field that cannot change (cases 39, 40).
fn is_immutable(message: &Unmasked) -> bool {
    ["is immutable", "field is immutable", "can not be unset", "may not be changed", "updates to statefulset spec"]
        .iter()
        .any(|mark| message.contains(mark))
}

/// The first causes, and how many more there are.
fn first_causes(mut causes: impl ExactSizeIterator<Item = Cause>) -> Vec<Cause> {
    let mut first: Vec<Cause> = Vec::new();
    let mut size = 0;
    while first.len() < MAX_CAUSES
        && size < MAX_CAUSES_TEXT
        && let Some(cause) = causes.next()
    {
        let cause = Cause { reason: switchyard_service::status::capped(&cause.reason, 128), ..cause };
        size += cause.field.len() + cause.reason.len() + cause.message.len();
        first.push(cause);
    }
    if causes.len() > 0 {
        let message = format!("and {} more", causes.len());
        first.push(Cause { field: String::new(), reason: String::new(), message });
    }
    first
}

/// Cuts a message of ours to a length that is fit to be passed on. Texts from outside are rendered instead.
pub(crate) fn capped(text: &str) -> String {
    switchyard_service::status::capped(text.trim(), MAX_TEXT)
}

#[cfg(test)]
mod tests {
    use switchyard_proto::v1::FailureReason;

    use super::*;

    const ALL: [Reason; 44] = [
        Reason::Conflict,
        Reason::Immutable,
        Reason::Invalid,
        Reason::Forbidden,
        Reason::CredentialsRejected,
        Reason::NamespaceNotFound,
        Reason::NamespaceTerminating,
        Reason::KindUnknown,
        Reason::ApiUnavailable,
        Reason::TooLarge,
        Reason::Throttled,
        Reason::ServerError,
        Reason::Timeout,
        Reason::Unreachable,
        Reason::AnswerLost,
        Reason::WebhookDenied,
        Reason::WebhookUnavailable,
        Reason::PolicyDenied,
        Reason::ConversionUnavailable,
        Reason::ApplyUnsupported,
        Reason::UnexpectedAnswer,
        Reason::DefinitionRejected,
        Reason::DefinitionNotServed,
        Reason::BeingDeleted,
        Reason::ManifestInvalid,
        Reason::Internal,
        Reason::Cancelled,
        Reason::NotOurs,
        Reason::OwnedByDesign,
        Reason::Stale,
        Reason::ForeignContents,
        Reason::Protected,
        Reason::FinalizersPending,
        Reason::NotFound,
        Reason::AdapterUnreachable,
        Reason::AdapterFailed,
        Reason::AdapterTimeout,
        Reason::NotGrpc,
        Reason::HelmMissing,
        Reason::ChartUnfetchable,
        Reason::ChartRefused,
        Reason::ChartPending,
        Reason::ChartConflict,
        Reason::ChartFailed,
    ];

    #[test]
    fn every_reason_is_in_the_contract() {
        let names = (1..).map_while(|value| FailureReason::try_from(value).ok());
        let mut names: Vec<_> = names.filter_map(|code| code.as_str_name().strip_prefix("FAILURE_REASON_")).collect();
        let mut reasons = ALL.map(Reason::as_str);
        names.sort_unstable();
        reasons.sort_unstable();
        assert_eq!(reasons[..], names[..]);
    }

    fn subject() -> Subject<'static> {
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

    fn judge(code: u16, body: &str) -> Verdict {
        let status = StatusCode::from_u16(code).unwrap();
        answered(
            &subject(),
            &Answer { status, retry_after: None, priority_level: None, body: body.as_bytes() },
            &Secrets::default(),
        )
    }

    fn status(reason: &str, message: &str, details: &str) -> String {
        format!(r#"{{"kind":"Status","reason":"{reason}","message":"{message}","details":{details}}}"#)
    }

    #[track_caller]
    fn assert_refused(verdict: &Verdict, reason: Reason) {
        assert!(matches!(verdict, Verdict::Refused(failure) if failure.reason == reason), "{verdict:?}");
    }

    #[track_caller]
    fn assert_again(verdict: &Verdict, wanted: Reason, was_lost: bool) {
        let fits =
            matches!(verdict, Verdict::Again { failure, lost, .. } if failure.reason == wanted && *lost == was_lost);
        assert!(fits, "{verdict:?}");
    }

    #[test]
    fn no_answer_but_the_object_is_success() {
        // There is no variant for success here; this pins that refusals which other engines swallow stay refusals (case 40).
        let immutable =
            status("Invalid", "Service web is invalid: spec.clusterIPs[0]: primary clusterIP can not be unset", "{}");
        assert_refused(&judge(422, &immutable), Reason::Immutable);
        let field = status("Invalid", "spec.selector: Invalid value: field is immutable", "{}");
        assert_refused(&judge(422, &field), Reason::Immutable);
        assert_again(&judge(409, &status("AlreadyExists", "already exists", "{}")), Reason::Conflict, false);
    }

    #[test]
    fn conflict_with_another_manager_is_final_and_a_race_is_not() {
        let causes = r#"{"causes":[{"reason":"FieldManagerConflict","message":"conflict with \"kubectl\"","field":".spec.replicas"}]}"#;
        let verdict = judge(409, &status("Conflict", "Apply failed with 1 conflict", causes));
        let Verdict::Refused(failure) = &verdict else { panic!("{verdict:?}") };
        assert_eq!(failure.reason, Reason::Conflict);
        assert_eq!(failure.causes[0].field, ".spec.replicas");
        let race = judge(409, &status("Conflict", "object has been modified", "{}"));
        assert_again(&race, Reason::Conflict, false);
        assert!(
            matches!(&race, Verdict::Again { failure, .. }
            if failure.retryable && !failure.message.contains("force_conflicts")),
            "{race:?}"
        );
    }

    /// Case 285: only a conflict over fields is one with a field manager.
    #[test]
    fn conflicts_are_told_apart() {
        let quota = "Operation cannot be fulfilled on resourcequotas: the object has been modified";
        let quota = judge(409, &status("Conflict", quota, r#"{"kind":"resourcequotas","name":"q"}"#));
        assert_again(&quota, Reason::Conflict, false);
        assert!(matches!(&quota, Verdict::Again { failure, .. }
            if failure.retryable && failure.message.contains("resourcequotas") && !failure.message.contains("manager")));
        let anew = "Precondition failed: UID in precondition: a, UID in object meta: b";
        assert_refused(&judge(409, &status("Conflict", anew, "{}")), Reason::Stale);
    }

    #[test]
    fn missing_namespace_and_missing_kind_are_told_apart() {
        let namespace = status("NotFound", "namespaces shop not found", r#"{"kind":"namespaces","name":"shop"}"#);
        assert_refused(&judge(404, &namespace), Reason::NamespaceNotFound);
        assert_again(&judge(404, "404 page not found"), Reason::KindUnknown, false);
    }

    #[test]
    fn terminating_namespace_is_waited_for_and_missing_rights_are_not() {
        let terminating = status("Forbidden", "being terminated", r#"{"causes":[{"reason":"NamespaceTerminating"}]}"#);
        assert_again(&judge(403, &terminating), Reason::NamespaceTerminating, false);
        assert_refused(&judge(403, &status("Forbidden", "no rights", "{}")), Reason::Forbidden);
    }

    #[test]
    fn webhook_that_says_no_is_final_and_one_that_is_away_is_not() {
        let denied = "admission webhook \\\"a.b\\\" denied the request: no latest tag";
        assert_refused(&judge(400, &status("", denied, "{}")), Reason::WebhookDenied);
        let away = "Internal error occurred: failed calling webhook \\\"a.b\\\": connection refused";
        assert_again(&judge(500, &status("InternalError", away, "{}")), Reason::WebhookUnavailable, false);
    }

    /// Case 289, in the words of 1.37; the code is the one that the policy chose.
    #[test]
    fn policy_that_denies_is_final_whatever_code_it_chose() {
        let denied =
            "configmaps \\\"a\\\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no";
        for code in [403, 413, 422] {
            assert_refused(&judge(code, &status("Invalid", denied, "{}")), Reason::PolicyDenied);
        }
    }

    /// Case 288.
    #[test]
    fn what_controllers_make_in_a_moment_is_waited_for() {
        let account = "pods \\\"a\\\" is forbidden: error looking up service account shop/default: serviceaccount \\\"default\\\" not found";
        assert_again(&judge(403, &status("Forbidden", account, "{}")), Reason::NotFound, false);
        let priority = "pods \\\"a\\\" is forbidden: no PriorityClass with name high was found";
        assert_again(&judge(403, &status("Forbidden", priority, "{}")), Reason::NotFound, false);
        let quota = "pods \\\"a\\\" is forbidden: status unknown for quota: q, resources: pods";
        assert_again(&judge(403, &status("Forbidden", quota, "{}")), Reason::ApiUnavailable, false);
        let quota = "pods \\\"a\\\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1";
        assert_refused(&judge(403, &status("Forbidden", quota, "{}")), Reason::Forbidden);
    }

    #[test]
    fn answers_that_may_follow_a_commit_are_lost() {
        assert_again(&judge(504, ""), Reason::Timeout, true);
        assert_again(&judge(500, &status("", "etcdserver: request timed out", "{}")), Reason::Timeout, true);
        assert_again(&unanswered(&subject(), &Unanswered::Lost("reset".into())), Reason::AnswerLost, true);
        assert_again(&unanswered(&subject(), &Unanswered::NotSent("refused".into())), Reason::Unreachable, false);
        assert_again(&unproven(&subject(), StatusCode::NO_CONTENT), Reason::UnexpectedAnswer, true);
    }

    #[test]
    fn retry_after_is_heeded_within_the_budget_only() {
        let ask = |seconds| {
            answered(
                &subject(),
                &Answer {
                    status: StatusCode::TOO_MANY_REQUESTS,
                    retry_after: Some(Duration::from_secs(seconds)),
                    priority_level: Some("0a1b"),
                    body: b"",
                },
                &Secrets::default(),
            )
        };
        assert!(matches!(ask(2), Verdict::Again { after: Some(after), .. } if after.as_secs() == 2));
        let refused = ask(3600);
        assert_refused(&refused, Reason::Throttled);
        assert!(matches!(refused, Verdict::Refused(failure)
            if failure.message.contains("3600 s") && failure.message.contains("uid 0a1b")));
    }

    #[test]
    fn nothing_is_waited_for_that_will_not_come() {
        let unknown = || kind_unknown(&Subject { kind_in_design: true, ..subject() }, None, None);
        let told = |state, dry_run| {
            let kind = Some(Provider { component: "definition", state });
            in_light_of(Provided { kind, dry_run, ..Provided::default() }, unknown(), &subject())
        };
        let adapter = Provided { adapter: true, dry_run: true, ..Provided::default() };
        assert!(matches!(in_light_of(adapter, unknown(), &subject()), Verdict::Unknown(_)));
        let nobody = Provided { dry_run: true, ..Provided::default() };
        assert_refused(&in_light_of(nobody, unknown(), &subject()), Reason::KindUnknown);
        assert_again(&told(ProviderState::Sound, false), Reason::KindUnknown, false);
        for state in [ProviderState::Failed, ProviderState::Missing] {
            let verdict = told(state, false);
            assert_refused(&verdict, Reason::KindUnknown);
            assert!(matches!(verdict, Verdict::Refused(failure) if failure.message.contains("component definition")));
        }
        assert!(matches!(told(ProviderState::Sound, true), Verdict::Unknown(_)));
        assert!(matches!(told(ProviderState::Missing, true), Verdict::Unknown(_)));
        assert_refused(&told(ProviderState::Failed, true), Reason::KindUnknown);
    }

    /// Case 283: nothing that is tried again would help, and only clearing them does.
    #[test]
    fn managed_fields_of_a_version_that_is_gone_are_final_and_say_what_helps() {
        let text = "request to convert CR to an invalid group/version: a.example/v1beta1";
        let verdict = judge(500, &status("InternalError", text, "{}"));
        assert_refused(&verdict, Reason::Invalid);
        assert!(matches!(verdict, Verdict::Refused(failure)
            if !failure.retryable && failure.message.contains("/metadata/managedFields")));
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

    #[test]
    fn each_limit_of_the_server_has_its_reason() {
        assert_refused(&judge(413, "too big"), Reason::TooLarge);
        assert_refused(&judge(500, &status("", "etcdserver: request is too large", "{}")), Reason::TooLarge);
        assert_refused(&judge(415, ""), Reason::ApplyUnsupported);
        assert_again(&judge(401, ""), Reason::CredentialsRejected, false);
        assert_refused(&judge(422, &status("Invalid", "spec.x: Required value", "{}")), Reason::Invalid);
        let unknown = "failed to create typed patch object (shop/web; apps/v1, Kind=Deployment): .x: field not declared in schema";
        assert_refused(&judge(500, &status("", unknown, "{}")), Reason::Invalid);
        let wrong = "failed to convert new object (shop/web; apps/v1, Kind=Deployment) to proper version: unable to convert \
                     unstructured object to apps/v1, Kind=Deployment: quantities must match the regular expression";
        assert_refused(&judge(500, &status("", wrong, "{}")), Reason::Invalid);
        assert_refused(&judge(302, ""), Reason::UnexpectedAnswer);
        assert_again(&judge(503, ""), Reason::ApiUnavailable, false);
    }
}
