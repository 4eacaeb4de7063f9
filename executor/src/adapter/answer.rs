//! What a call that did not come to an OK came to. Pure.

use std::{error::Error as StdError, io};

use tonic::{Code, Status};

use super::{Adapter, Call, Error, dial::CONNECT_TIMEOUT};
use crate::mask::{
    Secrets, Unmasked,
    sources::{innermost, sources},
};

/// Why a call did not come to an OK. `late` says that its time is over: then the adapter, which knows the deadline too, may have
/// cut it before we did.
pub(super) fn judge(adapter: &Adapter, status: &Status, call: &Call<'_>, late: bool) -> Error {
    let address = adapter.address.clone();
    if was_not_sent(status) {
        return Error::Unreachable { address, why: call.render(&why_no_connection(status)) };
    }
    let why = match status.message() {
        "" => "it gave no reason".to_owned(),
        text => call.render(&text.into()),
    };
    if let Some(http) = http_status(status) {
        let what = format!("it answers HTTP status {http} without a gRPC status");
        // Gateways speak so of a server behind them that has the request and gave no answer.
        let is_of_a_gateway = http >= 500 || http == 408;
        return if is_of_a_gateway { Error::Lost { address, why: what } } else { Error::NotGrpc { address, what } };
    }
    match code(status) {
        Code::Unimplemented => Error::NotOffered { address, methods: "ProcessOAM" },
        Code::DeadlineExceeded => Error::Late { address, why },
        Code::Cancelled if late => Error::Late { address, why },
        Code::Unavailable | Code::Cancelled => Error::Lost { address, why },
        // What the transport says of itself: the adapter's own statuses have no source.
        Code::Unknown | Code::Internal if status.source().is_some() => Error::Lost { address, why },
        Code::ResourceExhausted => Error::Busy { address, why },
        code => Error::Failed { address, code, why },
    }
}

/// The code of a status. When our time for the call is over tonic says that the call was cancelled.
pub(super) fn code(status: &Status) -> Code {
    match status.code() {
        Code::Cancelled if sources(status).any(|error| error.is::<tonic::TimeoutExpired>()) => Code::DeadlineExceeded,
        code => code,
    }
}

impl Call<'_> {
    /// An adapter's own text without the credentials and secret values that it was given (D25).
    pub(super) fn render(&self, text: &Unmasked) -> String {
        let of_kubeconfigs = self.kubeconfigs.iter().map(|kubeconfig| Secrets::of_kubeconfig(kubeconfig));
        of_kubeconfigs.fold(Secrets::of_declaration(self.declaration), Secrets::and).render(text)
    }
}

/// The HTTP status of an answer that has no gRPC status: tonic makes one of it, and says so.
fn http_status(status: &Status) -> Option<u16> {
    status.message().strip_prefix("grpc-status header missing, mapped from HTTP status code ")?.parse().ok()
}

pub(super) fn no_answer() -> Unmasked {
    format!("no answer within {} s", CONNECT_TIMEOUT.as_secs()).into()
}

/// Why a dial failed, in words that say so.
pub(super) fn why_no_connection(error: &(dyn StdError + 'static)) -> Unmasked {
    let is_late = |error: &(dyn StdError + 'static)| {
        error.is::<tokio::time::error::Elapsed>()
            || error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
    };
    if sources(error).any(is_late) { no_answer() } else { innermost(error) }
}

/// Whether no connection took the request, so that the adapter cannot have seen it.
fn was_not_sent(status: &Status) -> bool {
    // hyper cancels only what it still holds; what was sent ends with another error.
    sources(status)
        .any(|error| error.is::<tonic::ConnectError>() || error.downcast_ref().is_some_and(hyper::Error::is_canceled))
}

#[cfg(test)]
mod tests {
    use switchyard_proto::v1::AdapterProtocol;
    use tokio::time::Instant;

    use super::*;
    use crate::adapter::Adapters;

    fn judged(status: &Status) -> Error {
        judged_in_time(status, false)
    }

    fn judged_in_time(status: &Status, late: bool) -> Error {
        let kubeconfigs =
            [r#"{"users": [{"name": "u", "user": {"client-key-data": "a2V5LTdmMS1jYW5hcnk="}}]}"#.to_owned()];
        let call = Call {
            protocol: AdapterProtocol::Auto,
            removes: false,
            declaration: r#"{"component": {"kind": "Secret"}, "configuration": {"data": {"a": "dmFsdWUtMWQ3ZjE="}}}"#,
            kubeconfigs: &kubeconfigs,
            run_id: "",
            step_id: "",
            deadline: Instant::now(),
            hindrance: &|| None,
        };
        judge(&Adapters::default().at("mesh", 10000), status, &call, late)
    }

    #[test]
    fn an_adapters_word_and_a_broken_connection_are_told_apart() {
        assert!(matches!(judged(&Status::unknown("")), Error::Failed { why, .. } if why == "it gave no reason"));
        assert!(matches!(judged(&Status::unavailable("Socket closed")), Error::Lost { .. }));
        assert!(matches!(judged(&Status::deadline_exceeded("")), Error::Late { .. }));
        assert!(matches!(judged(&Status::unimplemented("unknown method")), Error::NotOffered { .. }));
        assert!(matches!(judged(&Status::cancelled("stream reset")), Error::Lost { .. }));
        assert!(matches!(judged_in_time(&Status::cancelled("stream reset"), true), Error::Late { .. }));
        let expired = Status::from_error(Box::new(tonic::TimeoutExpired(())));
        assert!(matches!(judged(&expired), Error::Late { .. }));
        assert!(matches!(judged(&Status::resource_exhausted("4 calls")), Error::Busy { .. }));
        let refused = tonic::ConnectError("connection refused".into());
        assert!(matches!(judged(&Status::from_error(Box::new(refused))), Error::Unreachable { .. }));
    }

    #[test]
    fn gateway_that_waited_for_an_adapter_in_vain_does_not_say_that_nothing_was_done() {
        let mapped = |code, http: u16| {
            let text = format!("grpc-status header missing, mapped from HTTP status code {http}");
            judged(&Status::new(code, text))
        };
        for (code, http) in [(Code::Unimplemented, 404), (Code::PermissionDenied, 403), (Code::Unavailable, 429)] {
            assert!(matches!(mapped(code, http), Error::NotGrpc { .. }), "{http}");
        }
        for (code, http) in
            [(Code::Unavailable, 502), (Code::Unavailable, 504), (Code::Unknown, 500), (Code::Unknown, 408)]
        {
            assert!(matches!(mapped(code, http), Error::Lost { .. }), "{http}");
        }
    }

    #[test]
    fn what_an_adapter_quotes_of_its_secrets_is_masked() {
        let text = "with key-7f1-canary (a2V5LTdmMS1jYW5hcnk=) and value-1d7f1 refused";
        let Error::Failed { why, .. } = judged(&Status::unknown(text)) else { panic!("failed") };
        assert_eq!(why, "with [redacted] ([redacted]) and [redacted] refused");
    }
}
