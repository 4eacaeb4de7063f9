//! The closed list of reasons, and the one table from reason to code.

use std::{fmt, str::FromStr};

use tonic::Code;

/// Why an RPC is not served, as a program can read it: the `reason` of the `ErrorInfo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The design has problems; each is a `BadRequest` violation.
    DesignInvalid,
    /// The request, apart from the design or plan in it, is not well formed.
    RequestInvalid,
    /// A registrant advertises an address that cannot be dialled.
    RegistrantAddressInvalid,
    /// An adapter may not be handed the executor's own credentials; each is a `PreconditionFailure` violation.
    AdapterNotAllowed,
    /// The plan contradicts itself or the contract.
    PlanInvalid,
    /// The plan ended before its trailer.
    PlanIncomplete,
    /// The plan is not the one its id was made for.
    PlanDigestMismatch,
    /// The plan says something that this executor does not know; each is a `PreconditionFailure` violation.
    PlanTooNew,
    /// A cluster cannot be worked on; each is a `PreconditionFailure` violation.
    ClusterUnusable,
    /// Another run of this design is going on there.
    RunConflict,
    /// The request id stands for a run of another plan.
    RequestIdReused,
    /// A message is larger than `--max-message-bytes`.
    MessageTooLarge,
    /// The request takes more memory or time than one may, however few others there are.
    RequestTooCostly,
    /// Other requests take what this one needs; it may be served later.
    TooBusy,
    /// As many runs are going on as may.
    TooManyRuns,
    /// No such run is remembered.
    RunUnknown,
    /// The run has not told so many events.
    SequenceUnknown,
    /// There is no such method.
    MethodUnknown,
    /// The caller stopped the run before it began.
    RunCancelled,
    /// The caller's deadline passed; the run was stopped.
    DeadlineExceeded,
    /// The program is going down.
    ShuttingDown,
    /// A bug of ours.
    Internal,
}

/// Every reason with its name on the wire and its code.
const TABLE: [(Reason, &str, Code); 22] = [
    (Reason::DesignInvalid, "DESIGN_INVALID", Code::InvalidArgument),
    (Reason::RequestInvalid, "REQUEST_INVALID", Code::InvalidArgument),
    (Reason::RegistrantAddressInvalid, "REGISTRANT_ADDRESS_INVALID", Code::FailedPrecondition),
    (Reason::AdapterNotAllowed, "ADAPTER_NOT_ALLOWED", Code::FailedPrecondition),
    (Reason::PlanInvalid, "PLAN_INVALID", Code::InvalidArgument),
    (Reason::PlanIncomplete, "PLAN_INCOMPLETE", Code::InvalidArgument),
    (Reason::PlanDigestMismatch, "PLAN_DIGEST_MISMATCH", Code::InvalidArgument),
    (Reason::PlanTooNew, "PLAN_TOO_NEW", Code::FailedPrecondition),
    (Reason::ClusterUnusable, "CLUSTER_UNUSABLE", Code::FailedPrecondition),
    (Reason::RunConflict, "RUN_CONFLICT", Code::Aborted),
    (Reason::RequestIdReused, "REQUEST_ID_REUSED", Code::AlreadyExists),
    (Reason::MessageTooLarge, "MESSAGE_TOO_LARGE", Code::ResourceExhausted),
    (Reason::RequestTooCostly, "REQUEST_TOO_COSTLY", Code::ResourceExhausted),
    (Reason::TooBusy, "TOO_BUSY", Code::ResourceExhausted),
    (Reason::TooManyRuns, "TOO_MANY_RUNS", Code::ResourceExhausted),
    (Reason::RunUnknown, "RUN_UNKNOWN", Code::NotFound),
    (Reason::SequenceUnknown, "SEQUENCE_UNKNOWN", Code::OutOfRange),
    (Reason::MethodUnknown, "METHOD_UNKNOWN", Code::Unimplemented),
    (Reason::RunCancelled, "RUN_CANCELLED", Code::Cancelled),
    (Reason::DeadlineExceeded, "DEADLINE_EXCEEDED", Code::DeadlineExceeded),
    (Reason::ShuttingDown, "SHUTTING_DOWN", Code::Unavailable),
    (Reason::Internal, "INTERNAL", Code::Internal),
];

impl Reason {
    /// Every reason, in the order of the contract.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|(reason, ..)| *reason)
    }

    /// Says how the reason is spelt on the wire.
    pub fn as_str(self) -> &'static str {
        TABLE[self as usize].1
    }

    /// Says which gRPC code a refusal for this reason has.
    pub fn code(self) -> Code {
        TABLE[self as usize].2
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text is no reason of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no such reason")]
pub struct UnknownReason;

impl FromStr for Reason {
    type Err = UnknownReason;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        TABLE.iter().find(|(_, name, _)| *name == text).map(|(reason, ..)| *reason).ok_or(UnknownReason)
    }
}

#[cfg(test)]
mod tests {
    use switchyard_proto::v1::ErrorReason;

    use super::*;

    #[test]
    fn every_reason_stands_at_its_place_in_the_table() {
        for (index, (reason, name, code)) in TABLE.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
            assert_eq!(name.parse(), Ok(reason));
            assert_eq!((reason.as_str(), reason.code()), (name, code));
        }
        assert_eq!(Reason::all().count(), Reason::Internal as usize + 1);
    }

    #[test]
    fn every_reason_is_in_the_contract() {
        let names = (1..).map_while(|value| ErrorReason::try_from(value).ok());
        let mut names: Vec<_> = names.filter_map(|code| code.as_str_name().strip_prefix("ERROR_REASON_")).collect();
        let mut reasons: Vec<_> = Reason::all().map(Reason::as_str).collect();
        names.sort_unstable();
        reasons.sort_unstable();
        assert_eq!(reasons, names);
    }
}
