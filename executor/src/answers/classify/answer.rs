//! The verdict on an answer of an API server that is not the object that was sent.

use std::time::Duration;

use http::StatusCode;

use super::{
    CONTROLLER, LOST, MISSING_REFERENCE, NEVER, ODD, OVERLOAD, Subject, Verdict,
    discovery::kind_patience,
    name, no_namespace,
    status::{Details, Status},
};
use crate::{
    answers::failure::{Cause, Failure, Reason, first_causes},
    core::schedule::Patience,
    mask::{Secrets, Unmasked},
};

/// An answer that is not the object that was sent.
#[derive(Clone, Debug)]
pub(crate) struct Answer<'a> {
    pub(crate) status: StatusCode,
    pub(crate) retry_after: Option<Duration>,
    /// UID of the priority level that the server put the request into, if it said so.
    pub(crate) priority_level: Option<&'a str>,
    pub(crate) body: &'a [u8],
}

/// The verdict on an answer that is not the object that was sent.
pub(crate) fn answered(subject: &Subject<'_>, answer: &Answer<'_>, secrets: &Secrets) -> Verdict {
    let status = Status::read(answer.body);
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
            // An API server that knows the path names what is not there: something that the object refers to, such as the role of
            // a binding. Some versions name the role, others say the role's name and the binding's kind.
            404 if !details.name.is_empty() => Self::again(Reason::NotFound, MISSING_REFERENCE),
            404 => Self::again(Reason::KindUnknown, kind_patience(subject)),
            409 if has_cause("FieldManagerConflict") => Self::refused(Reason::Conflict),
            409 if is_about_another_uid(message) => Self::refused(Reason::Stale),
            409 => Self::again(Reason::Conflict, ODD),
            413 => Self::refused(Reason::TooLarge),
            405 | 415 => Self::refused(Reason::ApplyUnsupported),
            429 => Self::again(Reason::Throttled, OVERLOAD),
            // An object's uid in the cluster is not the one that is meant.
            422 if details.causes.iter().any(|cause| cause.field.is("metadata.uid")) => Self::refused(Reason::Stale),
            400 | 422 if is_immutable(message) => Self::refused(Reason::Immutable),
            500 if message.contains("failed calling webhook") => Self::again(Reason::WebhookUnavailable, OVERLOAD),
            500 if message.contains("conversion webhook") => Self::again(Reason::ConversionUnavailable, OVERLOAD),
            500 if is_the_objects_fault(message) => Self::refused(Reason::Invalid),
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
            Reason::NamespaceNotFound => no_namespace(subject),
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
            Reason::Invalid
                if names_a_version_that_is_gone(|words| text.contains(words)) && text.contains("CR from an") =>
            {
                format!(
                    "{what} is stored in a version that its definition no longer has; bring that version back, migrate the stored \
                     objects, and deploy again: {text}"
                )
            }
            Reason::Invalid if names_a_version_that_is_gone(|words| text.contains(words)) => format!(
                "{what} can no longer be applied, as its managed fields name a version that its definition no longer has; \
                 clear them (a JSON patch that replaces /metadata/managedFields by [{{}}]) and deploy again: {text}"
            ),
            Reason::Invalid if text.contains("Duplicate value") => format!(
                "{what} was refused ({}): {text}; if the design has it once, the other one is in the cluster and of another \
                 manager, such as kubectl: metadata.managedFields says whose",
                code.as_u16()
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

/// Whether a refusal is about an account, a priority or a runtime that may be made a moment later, by a controller or by the
/// design itself (case 288).
fn is_about_what_comes_later(message: &Unmasked) -> bool {
    message.contains("error looking up service account") && message.contains("not found")
        || message.contains("no PriorityClass with name")
        || message.contains("pod rejected: RuntimeClass") && message.contains("not found")
}

/// Whether an API server's 500 is about what it was sent, and would be the same again.
fn is_the_objects_fault(message: &Unmasked) -> bool {
    [
        // What the kind's schema does not know, or has twice, or of another type (case 54).
        "failed to create typed ",
        // A value of the wrong form, such as a quantity or base64 that is none (case 282).
        "unable to convert unstructured object to ",
        "strconv.Parse",
        // Of another kind than the path is for.
        "failed to merge config: expected objects of the same type",
    ]
    .iter()
    .any(|mark| message.contains(mark))
}

/// Whether a conflict is about an object that took the place of the one that is meant, or about that one's absence.
fn is_about_another_uid(message: &Unmasked) -> bool {
    ["UID in precondition", "UID in the precondition", "uid mismatch"].iter().any(|mark| message.contains(mark))
}

/// Whether a refusal is about a field that cannot change (cases 39, 40).
fn is_immutable(message: &Unmasked) -> bool {
    [
        "is immutable",
        "can not be unset",
        "may not be changed",
        "may not change once set",
        "pod updates may not",
        "cannot change roleRef",
    ]
    .iter()
    .any(|mark| message.contains(mark))
        || message.contains("updates to ") && message.contains("are forbidden")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::classify::tests::{assert_again, assert_refused, judge, status, subject};

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

    /// Case 283: nothing that is tried again would help, and only clearing them does.
    #[test]
    fn managed_fields_of_a_version_that_is_gone_are_final_and_say_what_helps() {
        let text = "request to convert CR to an invalid group/version: a.example/v1beta1";
        let verdict = judge(500, &status("InternalError", text, "{}"));
        assert_refused(&verdict, Reason::Invalid);
        assert!(matches!(verdict, Verdict::Refused(failure)
            if !failure.retryable && failure.message.contains("/metadata/managedFields")));
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
