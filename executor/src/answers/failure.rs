//! Why a step did not succeed: the closed list of reasons, and what is said of one failure.

/// Longest message that is passed on, in bytes.
const MAX_TEXT: usize = 4096;
/// Most causes of one failure that are passed on, and the bytes beyond which no further one is added to them (case 248).
const MAX_CAUSES: usize = 20;
const MAX_CAUSES_TEXT: usize = 4096;

/// Defines the closed list of reasons from one table, a row each: its variant, its name in the contract, whether the same plan may
/// succeed later without a change to the design, what it means, and what to do. `codes.proto` has the names and meanings as an
/// enum, and `docs/failures.md` all of it; tests hold both to this table.
macro_rules! reasons {
    ($($reason:ident $name:literal $retryable:ident $means:literal $help:literal;)*) => {
        /// Why something was not done. The closed list of `Failure.reason` in the contract.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Reason {
            $(#[doc = $means] $reason,)*
        }

        impl Reason {
            /// The reason as the contract spells it.
            pub(crate) fn as_str(self) -> &'static str {
                match self {
                    $(Self::$reason => $name,)*
                }
            }

            /// Whether the same plan may succeed later without a change to the design.
            pub(crate) fn is_retryable(self) -> bool {
                match self {
                    $(Self::$reason => $retryable,)*
                }
            }
        }

        /// Each reason, what it means, and what to do.
        #[cfg(test)]
        pub(crate) const TABLE: &[(Reason, &str, &str)] = &[$((Reason::$reason, $means, $help),)*];
    };
}

const RETRYABLE: bool = true;
const FINAL: bool = false;

reasons! {
    Conflict "CONFLICT" FINAL
        "Another field manager owns fields; retryable when another write came in between."
        "Take the fields over with `force_conflicts`, or leave them out of the design. If it is retryable, deploy \
         again.";
    OwnedByDesign "OWNED_BY_DESIGN" FINAL
        "The object is of another design."
        "Take the component out of one of the two designs, undeploy the other, or set `existing` to \
         `EXISTING_TAKE_OVER` or `EXISTING_SHARE`.";
    NotOurs "NOT_OURS" FINAL
        "The object carries no mark of a design."
        "Delete it by hand if it is to go, or set `existing` so that it is adopted.";
    Stale "STALE" FINAL
        "The object was made anew meanwhile."
        "Look at who made it, then plan and deploy again.";
    Immutable "IMMUTABLE" FINAL
        "A field cannot be changed once it is set."
        "Give the field back its value, or delete the object first; the causes name the field.";
    Invalid "INVALID" FINAL
        "The API server found the object invalid."
        "Correct the design; the causes name the fields.";
    Forbidden "FORBIDDEN" FINAL
        "The credentials have no right to it, or a limit of the namespace stands against it: a quota, a LimitRange, \
         pod security."
        "Have the right granted or the limit changed, or ask for less; the message says which.";
    CredentialsRejected "CREDENTIALS_REJECTED" FINAL
        "The API server does not know the credentials."
        "Bring fresh credentials: they have expired, were revoked, or are of another cluster.";
    NamespaceNotFound "NAMESPACE_NOT_FOUND" FINAL
        "The namespace does not exist."
        "Create it, add it to the design, or set `create_namespaces`.";
    NamespaceTerminating "NAMESPACE_TERMINATING" RETRYABLE
        "The namespace is being deleted."
        "Wait until it is gone, and deploy again. If it stays, its conditions say what holds it.";
    KindUnknown "KIND_UNKNOWN" FINAL
        "The cluster serves no such kind."
        "Correct kind or apiVersion, install what defines the kind, or add its definition to the design.";
    ApiUnavailable "API_UNAVAILABLE" RETRYABLE
        "The API server, or the group of the kind, does not answer for now."
        "Deploy again later. If it stays, an aggregated API or a controller that it needs is down.";
    NotFound "NOT_FOUND" FINAL
        "The object, or one that it refers to, is not there."
        "Create what it refers to, or add it to the design.";
    TooLarge "TOO_LARGE" FINAL
        "The object is larger than an API server or adapter takes."
        "Make it smaller: most objects have room for about 1.5 MB, requests to adapters for 4 MiB.";
    Throttled "THROTTLED" RETRYABLE
        "The API server or the adapter had too much to do, for as long as was waited."
        "Deploy again later, or with a smaller `max_in_flight`.";
    ServerError "SERVER_ERROR" RETRYABLE
        "The API server failed."
        "Deploy again. If it stays, the API server's log has more, under the audit id of the request.";
    Timeout "TIMEOUT" RETRYABLE
        "It was not done in time."
        "Deploy again: what was applied meanwhile is found unchanged. If it stays, give `step_timeout` more time.";
    Unreachable "UNREACHABLE" RETRYABLE
        "No connection came about."
        "Look at the address, the network and the certificate that the message names, and deploy again.";
    AnswerLost "ANSWER_LOST" RETRYABLE
        "A write may have been applied."
        "Deploy again: what was applied is found unchanged.";
    WebhookDenied "WEBHOOK_DENIED" FINAL
        "An admission webhook refused the object."
        "Do as the webhook says; its name and its words are in the message.";
    WebhookUnavailable "WEBHOOK_UNAVAILABLE" RETRYABLE
        "An admission webhook that is asked does not answer."
        "Bring the webhook's backend up, or remove its configuration if nobody serves it any more.";
    PolicyDenied "POLICY_DENIED" FINAL
        "An admission policy of the cluster refused the object."
        "Do as the policy says; the message names policy and binding.";
    ConversionUnavailable "CONVERSION_UNAVAILABLE" RETRYABLE
        "The webhook that converts the kind does not answer."
        "Bring the kind's conversion webhook up, and deploy again.";
    ApplyUnsupported "APPLY_UNSUPPORTED" FINAL
        "The server does not do server-side apply for the kind."
        "Upgrade the server of that API, or leave the component out.";
    UnexpectedAnswer "UNEXPECTED_ANSWER" FINAL
        "The answer is none that an API server gives."
        "Look at what stands between executor and API server: a login page, a redirect, a proxy.";
    DefinitionRejected "DEFINITION_REJECTED" FINAL
        "A CustomResourceDefinition that will never be served."
        "Choose other names: another definition has them.";
    DefinitionNotServed "DEFINITION_NOT_SERVED" RETRYABLE
        "A CustomResourceDefinition that was not served in time."
        "Look at the definition's conditions, which the message quotes, and deploy again.";
    BeingDeleted "BEING_DELETED" RETRYABLE
        "The object is being deleted."
        "Wait until it is gone, and deploy again.";
    ForeignContents "FOREIGN_CONTENTS" FINAL
        "What is to be deleted holds objects that are not of the design."
        "Remove what the message names, or set `delete_foreign` if it may go.";
    Protected "PROTECTED" FINAL
        "What every cluster needs is never deleted."
        "Take the component out of the design before it is undeployed.";
    FinalizersPending "FINALIZERS_PENDING" RETRYABLE
        "The object waits for its finalizers."
        "See to it that the controller which clears them runs, and undeploy again.";
    ManifestInvalid "MANIFEST_INVALID" FINAL
        "The manifest is no object that could be sent."
        "Correct apiVersion, kind and name in the design, and plan again.";
    Internal "INTERNAL" FINAL
        "A bug of ours; the log says what."
        "Report it, with the run's id and the executor's log.";
    Cancelled "CANCELLED" RETRYABLE
        "The run was stopped."
        "Deploy again. What the caller stopped is not retryable; what a shutdown, a lost client or lock, or a \
         deadline stopped is.";
    AdapterUnreachable "ADAPTER_UNREACHABLE" RETRYABLE
        "No connection to the adapter came about."
        "Start the adapter, or correct its address in the registry.";
    AdapterFailed "ADAPTER_FAILED" FINAL
        "The adapter said no, or what it did is not what was declared."
        "Do as the adapter says; the message says what each cluster holds.";
    AdapterTimeout "ADAPTER_TIMEOUT" RETRYABLE
        "The adapter did not answer in time."
        "Look at the adapter's log, and deploy again; it may have acted, and may still act.";
    NotGrpc "NOT_GRPC" FINAL
        "What answers at the adapter's address is no gRPC service."
        "Correct the address in the registry, or set `--adapter-ca` if the adapter speaks TLS.";
    HelmMissing "HELM_MISSING" FINAL
        "There is no helm program, or it is too old."
        "Install helm 4.3.1 or newer where the executor runs, or name it with `--helm`.";
    ChartUnfetchable "CHART_UNFETCHABLE" RETRYABLE
        "The chart did not come."
        "Look at the chart's URL in the registry and at its host, and deploy again.";
    ChartRefused "CHART_REFUSED" FINAL
        "The chart that came is not fit to be installed."
        "Name another chart or version in the registry; the message says what is wrong with it.";
    ChartPending "CHART_PENDING" RETRYABLE
        "Another operation holds the release, or one was cut short."
        "Wait for the other operation. If there is none, roll the release back or uninstall it with helm.";
    ChartConflict "CHART_CONFLICT" FINAL
        "What the cluster has stands in the chart's way: a release of another chart or of a newer version, a release \
         that somebody else installed, an object that is not of the release."
        "Remove or keep what the message names: nothing of others is replaced.";
    ChartFailed "CHART_FAILED" FINAL
        "Helm said no."
        "Do as helm says; its words are in the message.";
}

impl Reason {
    /// Whether it says that the server has too much to do: then fewer requests are sent to it at a time.
    pub(crate) fn is_overload(self) -> bool {
        matches!(self, Self::Throttled | Self::ApiUnavailable | Self::Timeout)
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
    use std::{fs, path::Path};

    use switchyard_proto::v1::FailureReason;

    use super::*;

    fn read(path: &str) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(path);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The contract's comments are the table's sentences, in its order.
    #[test]
    fn every_reason_is_in_the_contract_and_means_the_same_there() {
        let proto = read("proto/switchyard/v1/codes.proto");
        let (_, values) = proto.split_once("enum FailureReason {").unwrap();
        let (values, _) = values.split_once("\n}").unwrap();
        let mut comment = Vec::new();
        let mut seen = Vec::new();
        for line in values.lines().map(str::trim).filter(|line| !line.is_empty()) {
            match line.strip_prefix("// ") {
                Some(text) => comment.push(text),
                None => {
                    let name = line.trim_start_matches("FAILURE_REASON_").split(' ').next().unwrap();
                    seen.push((name.to_owned(), std::mem::take(&mut comment).join(" ")));
                }
            }
        }
        let wanted: Vec<_> =
            TABLE.iter().map(|(reason, means, _)| (reason.as_str().to_owned(), (*means).into())).collect();
        assert_eq!(seen[1..], wanted[..], "beside UNSPECIFIED");
        let codes = (1..).map_while(|value| FailureReason::try_from(value).ok()).count();
        assert_eq!(codes, TABLE.len());
    }

    #[test]
    fn every_reason_has_its_row_in_the_documentation() {
        let page = read("docs/failures.md");
        let rows: Vec<_> = page.lines().filter(|line| line.starts_with("| `")).collect();
        assert_eq!(rows.len(), TABLE.len());
        for (row, (reason, means, help)) in rows.iter().zip(TABLE) {
            let retry = if reason.is_retryable() { "yes" } else { "no" };
            let wanted = format!("| `{}` | {means} | {retry} | {help} | `", reason.as_str());
            assert!(row.starts_with(&wanted), "docs/failures.md has\n{row}\nin place of\n{wanted}…");
        }
    }
}
