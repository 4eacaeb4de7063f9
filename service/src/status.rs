//! Building the one kind of error that our RPCs answer: a status with `google.rpc` details.
//!
//! A [`Refusal`] always carries exactly one `ErrorInfo` of domain [`DOMAIN`], and its code follows from its [`Reason`].
//! It is cut to what every client accepts, see [`HEADER_LIST_BYTES`].

mod fit;
mod reason;

use std::{collections::BTreeMap, time::Duration};

use tonic::Status;
use tonic_types::{ErrorDetails, FieldViolation, PreconditionViolation, QuotaViolation, StatusExt};

pub use fit::{HEADER_LIST_BYTES, TEXT_BYTES, capped};
pub use reason::Reason;

/// What a status says, for the log: its reason, and its text with what its details add to it.
pub fn told(status: &Status) -> (String, String) {
    let details = status.get_error_details();
    let reason = details.error_info().map(|info| info.reason.clone()).unwrap_or_default();
    let preconditions = details.precondition_failure().map(|failure| failure.violations.as_slice()).unwrap_or_default();
    let each = preconditions.iter().map(|violation| violation.description.as_str());
    let text = std::iter::once(status.message()).chain(each).collect::<Vec<_>>().join("; ");
    (reason, capped(&text, TEXT_BYTES))
}

/// The domain of every `ErrorInfo` of ours.
pub const DOMAIN: &str = "switchyard";

/// An RPC that is not served, and why. Turn it into a [`Status`] with [`into_status`](Self::into_status) or `?`.
#[derive(Debug, Clone)]
#[must_use]
pub struct Refusal {
    reason: Reason,
    text: String,
    metadata: BTreeMap<String, String>,
    violations: Vec<FieldViolation>,
    preconditions: Vec<PreconditionViolation>,
    quotas: Vec<QuotaViolation>,
    retry_after: Option<Duration>,
}

/// Refuses for `reason`, saying `text`: a sentence a person can act on, without secrets.
pub fn refusal(reason: Reason, text: impl Into<String>) -> Refusal {
    Refusal {
        reason,
        text: text.into(),
        metadata: BTreeMap::new(),
        violations: Vec::new(),
        preconditions: Vec::new(),
        quotas: Vec::new(),
        retry_after: None,
    }
}

impl Refusal {
    /// Adds a value that a program may want to read, to the `ErrorInfo`.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(key.into(), value.into());
        self
    }

    /// Adds a `BadRequest` violation: what is wrong at `field`, a path in the document, and what to do.
    pub fn violation(mut self, field: impl Into<String>, description: impl Into<String>) -> Self {
        self.violations.push(FieldViolation::new(field, description));
        self
    }

    /// Adds a `BadRequest` violation with a reason of its own, in UPPER_SNAKE_CASE.
    pub fn violation_because(
        mut self,
        field: impl Into<String>,
        reason: impl Into<String>,
        description: impl Into<String>,
    ) -> Self {
        let mut violation = FieldViolation::new(field, description);
        violation.reason = reason.into();
        self.violations.push(violation);
        self
    }

    /// Adds a `PreconditionFailure` violation: of what kind, about what, and what to do.
    pub fn precondition(
        mut self,
        kind: impl Into<String>,
        subject: impl Into<String>,
        description: impl Into<String>,
    ) -> Self {
        self.preconditions.push(PreconditionViolation::new(kind, subject, description));
        self
    }

    /// Adds a `QuotaFailure` violation: whose limit, and what the limit is.
    pub fn quota(mut self, subject: impl Into<String>, description: impl Into<String>) -> Self {
        self.quotas.push(QuotaViolation::new(subject, description));
        self
    }

    /// Says that the same call may be worth trying again after `delay`.
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    /// Says for which reason this refuses.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// Makes the status, cut to size: long texts end in an ellipsis, and the last violation says how many were left
    /// out.
    pub fn into_status(self) -> Status {
        let Self { reason, text, metadata, violations, preconditions, quotas, retry_after } = self;
        let text = capped(&text, TEXT_BYTES);
        let mut room = fit::Room::beside_text(&text);
        let mut info: BTreeMap<String, String> = room.take_metadata(metadata);

        let asked = violations.len() + preconditions.len() + quotas.len();
        let violations = room.take(violations);
        let preconditions = room.take(preconditions);
        let quotas = room.take(quotas);
        let left_out = asked - room.taken();
        if left_out > 0 {
            info.insert("left_out".to_owned(), left_out.to_string());
        }

        let mut details = ErrorDetails::new();
        details.set_error_info(reason.as_str(), DOMAIN, info.into_iter().collect::<std::collections::HashMap<_, _>>());
        if !violations.is_empty() {
            details.set_bad_request(violations);
        }
        if !preconditions.is_empty() {
            details.set_precondition_failure(preconditions);
        }
        if !quotas.is_empty() {
            details.set_quota_failure(quotas);
        }
        if retry_after.is_some() {
            details.set_retry_info(retry_after);
        }
        Status::with_error_details(reason.code(), text, details)
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        refusal.into_status()
    }
}

/// Refuses a call because the program is going down.
pub fn shutting_down() -> Refusal {
    // A pod that is being replaced has a successor within seconds.
    refusal(Reason::ShuttingDown, "this server is shutting down; call again and another one will answer")
        .retry_after(Duration::from_secs(1))
}

/// Refuses a call for which other requests leave no room now. `limit` names what bounds them together.
pub fn too_busy(limit: impl Into<String>, text: impl Into<String>) -> Refusal {
    let text = text.into();
    refusal(Reason::TooBusy, text.as_str()).quota(limit, text).retry_after(Duration::from_secs(1))
}

/// Answers a call that met a bug of ours. What went wrong belongs in the log, not here.
pub fn internal() -> Refusal {
    refusal(Reason::Internal, "something went wrong inside this server; its log says what")
}

/// Reads back for which reason a status of ours refuses.
pub fn reason_of(status: &Status) -> Option<Reason> {
    let info = status.get_details_error_info()?;
    if info.domain == DOMAIN { info.reason.parse().ok() } else { None }
}

/// Puts an error and its sources into one line.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let sources = std::iter::successors(error.source(), |error| error.source());
    sources.fold(error.to_string(), |text, source| format!("{text}: {source}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    fn header_list_bytes(status: &Status) -> usize {
        let response: http::Response<()> = status.clone().into_http();
        let status_line = ":status".len() + "200".len() + 32;
        let headers: usize =
            response.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum();
        status_line + headers
    }

    #[test]
    fn a_refusal_carries_its_code_reason_and_details() {
        let status = refusal(Reason::DesignInvalid, "the design has a problem")
            .metadata("design", "guestbook")
            .violation_because("components[2].name", "NAME_EMPTY", "give the component a name")
            .into_status();

        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(status.message(), "the design has a problem");
        assert_eq!(reason_of(&status), Some(Reason::DesignInvalid));
        let info = status.get_details_error_info().unwrap();
        assert_eq!((info.domain.as_str(), info.reason.as_str()), ("switchyard", "DESIGN_INVALID"));
        assert_eq!(info.metadata["design"], "guestbook");
        let violations = status.get_details_bad_request().unwrap().field_violations;
        assert_eq!(violations.len(), 1);
        assert_eq!(violations[0].field, "components[2].name");
        assert_eq!(violations[0].reason, "NAME_EMPTY");
        assert!(status.get_details_precondition_failure().is_none());
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let status = refusal(Reason::PlanInvalid, "ü".repeat(5_000)).into_status();
        assert!(status.message().len() < 1024);
        assert!(status.message().ends_with('…'));
        assert!(status.message().trim_end_matches('…').chars().all(|c| c == 'ü'));
    }

    #[test]
    fn too_many_violations_end_in_one_that_counts_the_rest() {
        let mut wanted = refusal(Reason::DesignInvalid, "the design has 1000 problems");
        for n in 0..1000 {
            wanted = wanted
                .violation(format!("components[{n}].dependsOn[0]"), format!("component c{n} needs what is not there"));
        }

        let status = wanted.into_status();

        assert!(header_list_bytes(&status) <= HEADER_LIST_BYTES);
        let violations = status.get_details_bad_request().unwrap().field_violations;
        let kept = violations.len() - 1;
        assert!(kept > 20, "only {kept} fitted");
        assert_eq!(violations[0].field, "components[0].dependsOn[0]");
        let last = violations.last().unwrap();
        assert!(last.description.contains(&format!("{} more", 1000 - kept)), "{}", last.description);
        assert_eq!(status.get_details_error_info().unwrap().metadata["left_out"], (1000 - kept).to_string());
    }

    #[test]
    fn nothing_that_is_put_in_exceeds_what_clients_accept() {
        for text in ["x".repeat(10_000), "ü".repeat(10_000), "\u{1}<>{}".repeat(4_000), String::new()] {
            for count in [0, 1, 3, 400] {
                let mut wanted = refusal(Reason::ClusterUnusable, text.clone()).retry_after(Duration::MAX);
                for n in 0..count {
                    wanted = wanted
                        .metadata(format!("{n}{text}"), text.clone())
                        .violation_because(text.clone(), text.clone(), text.clone())
                        .precondition(text.clone(), text.clone(), text.clone())
                        .quota(text.clone(), text.clone());
                }
                let status = wanted.into_status();
                let bytes = header_list_bytes(&status);
                assert!(bytes <= HEADER_LIST_BYTES, "{bytes} bytes for {count} of {} bytes", text.len());
                assert_eq!(reason_of(&status), Some(Reason::ClusterUnusable));
            }
        }
    }

    #[test]
    fn reasons_of_others_are_not_ours() {
        let foreign =
            Status::with_error_details(Code::Internal, "x", ErrorDetails::with_error_info("INTERNAL", "elsewhere", []));
        assert_eq!(reason_of(&foreign), None);
        assert_eq!(reason_of(&Status::internal("plain")), None);
    }
}
