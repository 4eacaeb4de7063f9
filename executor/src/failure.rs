//! Why a step did not succeed: the closed list of reasons, and what is said of one failure.

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

/// The first causes, and how many more there are.
pub(crate) fn first_causes(mut causes: impl ExactSizeIterator<Item = Cause>) -> Vec<Cause> {
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
}
