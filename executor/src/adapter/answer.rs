//! What a call that did not come to an OK came to. Pure.

use tonic::{Code, Status};

use super::{Adapter, Call, Error, dial::CONNECT_TIMEOUT};
use crate::mask::{Secrets, Unmasked};

/// Why a call did not come to an OK.
pub(super) fn judge(adapter: &Adapter, status: &Status, call: &Call<'_>) -> Error {
    let address = adapter.address.clone();
    if was_not_sent(status) {
        return Error::Unreachable { address, why: call.render(&why_no_connection(status)) };
    }
    let why = match status.message() {
        "" => "it gave no reason".to_owned(),
        text => call.render(&text.into()),
    };
    if is_not_grpc(status) {
        return Error::NotGrpc { address, what: "it answers HTTP/2 without a gRPC status".into() };
    }
    match status.code() {
        Code::Unimplemented => Error::NotOffered { address, methods: "ProcessOAM" },
        Code::DeadlineExceeded | Code::Cancelled => Error::Late { address, why },
        Code::Unavailable => Error::Lost { address, why },
        // What the transport says of itself: the adapter's own statuses have no source.
        Code::Unknown | Code::Internal if std::error::Error::source(status).is_some() => Error::Lost { address, why },
        Code::ResourceExhausted => Error::Busy { address, why },
        code => Error::Failed { address, code, why },
    }
}

impl Call<'_> {
    /// An adapter's own text without the credentials and secret values that it was given (D25).
    pub(super) fn render(&self, text: &Unmasked) -> String {
        let of_kubeconfigs = self.kubeconfigs.iter().map(|kubeconfig| Secrets::of_kubeconfig(kubeconfig));
        of_kubeconfigs.fold(Secrets::of_declaration(self.declaration), Secrets::and).render(text)
    }
}

/// Whether an answer came from a server that is none of gRPC: tonic makes a status of its HTTP status, and says so.
fn is_not_grpc(status: &Status) -> bool {
    status.message().starts_with("grpc-status header missing")
}

pub(super) fn no_answer() -> Unmasked {
    format!("no answer within {} s", CONNECT_TIMEOUT.as_secs()).into()
}

/// Why a dial failed, in words that say so.
pub(super) fn why_no_connection(error: &(dyn std::error::Error + 'static)) -> Unmasked {
    let mut source = Some(error);
    while let Some(error) = source {
        let timed_out =
            error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::TimedOut);
        if timed_out || error.is::<tokio::time::error::Elapsed>() {
            return no_answer();
        }
        source = error.source();
    }
    crate::cluster::innermost(error)
}

/// Whether no connection took the request, so that the adapter cannot have seen it.
fn was_not_sent(status: &Status) -> bool {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        // hyper cancels only what it still holds; what was sent ends with another error.
        if error.is::<tonic::ConnectError>() || error.downcast_ref().is_some_and(hyper::Error::is_canceled) {
            return true;
        }
        source = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use switchyard_proto::v1::AdapterProtocol;
    use tokio::time::Instant;

    use super::*;
    use crate::adapter::Adapters;

    fn judged(status: &Status) -> Error {
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
        judge(&Adapters::default().at("mesh", 10000), status, &call)
    }

    #[test]
    fn an_adapters_word_and_a_broken_connection_are_told_apart() {
        assert!(matches!(judged(&Status::unknown("")), Error::Failed { why, .. } if why == "it gave no reason"));
        assert!(matches!(judged(&Status::unavailable("Socket closed")), Error::Lost { .. }));
        assert!(matches!(judged(&Status::deadline_exceeded("")), Error::Late { .. }));
        assert!(matches!(judged(&Status::unimplemented("unknown method")), Error::NotOffered { .. }));
        let page = "grpc-status header missing, mapped from HTTP status code 404";
        assert!(matches!(judged(&Status::unimplemented(page)), Error::NotGrpc { .. }));
        assert!(matches!(judged(&Status::resource_exhausted("4 calls")), Error::Busy { .. }));
        let refused = tonic::ConnectError("connection refused".into());
        assert!(matches!(judged(&Status::from_error(Box::new(refused))), Error::Unreachable { .. }));
    }

    #[test]
    fn what_an_adapter_quotes_of_its_secrets_is_masked() {
        let text = "with key-7f1-canary (a2V5LTdmMS1jYW5hcnk=) and value-1d7f1 refused";
        let Error::Failed { why, .. } = judged(&Status::unknown(text)) else { panic!("failed") };
        assert_eq!(why, "with [redacted] ([redacted]) and [redacted] refused");
    }
}
