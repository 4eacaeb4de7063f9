//! Adapters: one channel an address, one call at a time, and what a call came to (D27, `meshes` contract).
//!
//! Knows nothing of plans and runs. Two adapters in the field die of two calls at once, go on writing after their caller has
//! left, answer OK for work not done and fail without a word; so calls to an address queue up, and the answer is only half of
//! the verdict (the other half is a look at the clusters, in `fulfil::adapter`).

pub(crate) mod allow;
pub(crate) mod oam;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hyper_util::client::legacy::connect::HttpConnector;
use prost::Message;
use switchyard_proto::{
    meshes::{ProcessOamRequest, ProvisionRequest, mesh_service_client::MeshServiceClient},
    v1::AdapterProtocol,
};
use switchyard_service::{attributes as common, telemetry};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{
    Code, Request, Status,
    transport::{Channel, ClientTlsConfig, Endpoint},
};
use tracing::{Instrument, field::Empty};

use self::allow::AddressPattern;
use crate::{
    addresses::{Reach, Resolver},
    mask::{Secrets, Unmasked},
};

/// How long a connection may take. An adapter that is black-holed shows nothing at all (case 124).
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an address that could not be reached is not dialled again (case 123).
const REST: Duration = Duration::from_secs(5);
/// How long an address rests after a call that had no answer in its time, since adapters go on writing after their caller has
/// left; but no more than this part of the time that the next call has.
const REST_AFTER_TIMEOUT: Duration = Duration::from_secs(30);
const REST_SHARE: u32 = 3;
/// Largest request that adapters take: gRPC's default (D27).
const MAX_REQUEST: usize = 4 * 1024 * 1024;
/// Who asks, for the adapter's log.
const USERNAME: &str = "switchyard";
/// Metadata of each call: which run and which step it belongs to.
const RUN_ID: &str = "switchyard-run-id";
const STEP_ID: &str = "switchyard-step-id";

/// What an adapter is asked to do.
pub(crate) struct Call<'a> {
    pub(crate) protocol: AdapterProtocol,
    pub(crate) removes: bool,
    /// The component in the design's own shape, as JSON.
    pub(crate) declaration: &'a str,
    /// One a cluster; never empty, and none of them is.
    pub(crate) kubeconfigs: &'a [String],
    /// What a call belongs to: an adapter that is asked again for the same step of the same run has had it before (case 127).
    pub(crate) run_id: &'a str,
    pub(crate) step_id: &'a str,
    pub(crate) deadline: Instant,
    /// Ends the wait for calls before this one. The call itself comes to its end.
    pub(crate) stop: &'a CancellationToken,
    /// Why the call may not be made any more, looked at just before.
    pub(crate) hindrance: &'a (dyn Fn() -> Option<String> + Sync),
    /// What the caller should know of the call beside its answer.
    pub(crate) note: OnceLock<String>,
}

/// Why a call did not come to an OK.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Nothing was sent.
    #[error("no connection to the adapter at {address}: {why}")]
    Unreachable { address: String, why: String },
    #[error("the request to the adapter at {address} has {size} bytes, adapters take less than {MAX_REQUEST}")]
    TooLarge { address: String, size: usize },
    #[error("the component cannot be put into the adapter's form")]
    Declaration(#[from] serde_json::Error),
    /// The run is over before the call was made.
    #[error("nothing was sent to the adapter at {address}: {why}")]
    Stopped { address: String, why: String },
    /// The adapter has no room now, and did nothing.
    #[error("the adapter at {address} has no room: {why}")]
    Busy { address: String, why: String },
    /// The adapter says that it failed. It may have done part of the work.
    #[error("the adapter at {address} failed ({code:?}): {why}")]
    Failed { address: String, code: Code, why: String },
    /// The call ended without the adapter's word. It may go on working.
    #[error("the adapter at {address} gave no answer: {why}; it may have acted, and may still act")]
    Lost { address: String, why: String },
}

/// The adapters of this process.
#[derive(Default)]
pub(crate) struct Adapters {
    /// None: plaintext.
    tls: Option<ClientTlsConfig>,
    /// Adapters that the installation names.
    allowed: Vec<AddressPattern>,
    /// Where the others may be.
    reach: Reach,
    known: Mutex<BTreeMap<String, Arc<Adapter>>>,
}

/// One adapter.
pub(crate) struct Adapter {
    address: String,
    tls: Option<ClientTlsConfig>,
    reach: Reach,
    /// One call at a time: held for as long as a call goes on.
    line: tokio::sync::Mutex<Line>,
    /// Answered UNIMPLEMENTED to Provision.
    only_process_oam: AtomicBool,
}

#[derive(Default)]
struct Line {
    channel: Option<Channel>,
    /// Why the last dial failed, and until when it is not repeated.
    rest: Option<(Instant, Unmasked)>,
    /// When the last call had no answer in its time, and has not been followed by another.
    unfinished: Option<Instant>,
}

/// `host:port`. An IPv6 address needs brackets before a port (RFC 3986).
pub(crate) fn address(host: &str, port: u32) -> String {
    let bare = host.contains(':') && !host.starts_with('[');
    if bare { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

impl Adapters {
    /// No adapter is known yet; all of them are spoken to in this way.
    pub(crate) fn new(tls: Option<ClientTlsConfig>, allowed: Vec<AddressPattern>, reach: Reach) -> Self {
        Self { tls, allowed, reach, known: Mutex::default() }
    }

    /// The adapter at `host:port`.
    pub(crate) fn at(&self, host: &str, port: u16) -> Arc<Adapter> {
        let address = address(host, port.into());
        let mut known = self.known.lock().expect("nothing panics while it holds the lock");
        let adapter = known.entry(address.clone()).or_insert_with(|| {
            let tls = self.tls.clone();
            let named = self.allowed.iter().any(|pattern| pattern.matches(host, port));
            let reach = if named { Reach::All } else { self.reach };
            Arc::new(Adapter {
                address,
                tls,
                reach,
                line: Default::default(),
                only_process_oam: AtomicBool::new(false),
            })
        });
        adapter.clone()
    }
}

impl Adapter {
    /// `host:port`.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Makes one call, once the calls before it have ended. Answers the adapter's own words.
    pub(crate) async fn call(&self, call: &Call<'_>) -> Result<Unmasked, Error> {
        let waited = tokio::select! {
            biased;
            waited = tokio::time::timeout_at(call.deadline, self.line.lock()) => waited,
            () = call.stop.cancelled() => return Err(self.stopped("the run was stopped while other calls went on")),
        };
        let Ok(mut line) = waited else {
            let why = "other calls to it did not end in time; nothing was sent".to_owned();
            return Err(Error::Busy { address: self.address.clone(), why });
        };
        self.rest(&mut line, call).await?;
        if let Some(why) = (call.hindrance)() {
            return Err(self.stopped(why));
        }
        let began = Instant::now();
        let known = line.channel.is_some();
        let channel = self.dial(&mut line, call).await?;
        let mut result = self.ask(channel, call).await;
        if known && matches!(result, Err(Error::Unreachable { .. })) {
            // The adapter went away since the last call, and may have come back: nothing was sent, so once more (case 120).
            line.channel = None;
            let channel = self.dial(&mut line, call).await?;
            result = self.ask(channel, call).await;
        }
        if matches!(result, Err(Error::Lost { .. } | Error::Unreachable { .. })) {
            // A channel that broke is not trusted with the next call.
            line.channel = None;
        }
        // Whether it is our clock that rings first or the adapter's; an adapter that broke off works no more.
        if matches!(result, Err(Error::Lost { .. })) && began.elapsed() >= (call.deadline - began) * 9 / 10 {
            line.unfinished = Some(Instant::now());
        }
        result
    }

    /// Gives an adapter whose last call had no answer the time to come to its end (case 268).
    async fn rest(&self, line: &mut Line, call: &Call<'_>) -> Result<(), Error> {
        let Some(since) = line.unfinished else { return Ok(()) };
        let now = Instant::now();
        let until = (since + REST_AFTER_TIMEOUT).min(now + call.deadline.saturating_duration_since(now) / REST_SHARE);
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(until) => {}
            () = call.stop.cancelled() => {
                return Err(self.stopped("the run was stopped while the adapter was given time for the call before"));
            }
        }
        line.unfinished = None;
        let note = format!(
            "the call to the adapter at {} before this one had no answer in its time, {:.0?} ago; the adapter may still be at \
             work on it",
            self.address,
            since.elapsed()
        );
        call.note.set(note).ok();
        Ok(())
    }

    fn stopped(&self, why: impl Into<String>) -> Error {
        Error::Stopped { address: self.address.clone(), why: why.into() }
    }

    async fn dial(&self, line: &mut Line, call: &Call<'_>) -> Result<Channel, Error> {
        if let Some(channel) = &line.channel {
            return Ok(channel.clone());
        }
        let unreachable = |why: &Unmasked| Error::Unreachable { address: self.address.clone(), why: call.render(why) };
        if let Some((until, why)) = &line.rest
            && Instant::now() < *until
        {
            return Err(unreachable(why));
        }
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{}", self.address))
            .and_then(|endpoint| match self.tls.clone() {
                Some(tls) => endpoint.tls_config(tls),
                None => Ok(endpoint),
            })
            .map_err(|error| unreachable(&crate::cluster::innermost(&error)))?
            // For the dials that the channel makes by itself when its connection is gone. The first dial is bound below, and
            // should end there, where it is named.
            .connect_timeout(CONNECT_TIMEOUT + Duration::from_secs(1));
        // The bound stands here and not only on the endpoint: a lazy or custom connector would lose it.
        if let Err(denied) = self.reach.check(self.address.rsplit_once(':').map_or("", |(host, _)| host)) {
            return Err(unreachable(&denied.to_string().into()));
        }
        let by = call.deadline.min(Instant::now() + CONNECT_TIMEOUT);
        let why = match tokio::time::timeout_at(by, endpoint.connect_with_connector(self.connector())).await {
            Ok(Ok(channel)) => {
                line.rest = None;
                line.channel = Some(channel.clone());
                return Ok(channel);
            }
            Ok(Err(error)) => why_no_connection(&error),
            Err(_) => no_answer(),
        };
        let unreachable = unreachable(&why);
        line.rest = Some((Instant::now() + REST, why));
        Err(unreachable)
    }

    fn connector(&self) -> HttpConnector<Resolver> {
        let mut connector = self.reach.connector();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector
    }

    async fn ask(&self, channel: Channel, call: &Call<'_>) -> Result<Unmasked, Error> {
        let provision = match call.protocol {
            AdapterProtocol::ProcessOam => false,
            AdapterProtocol::Provision => true,
            AdapterProtocol::Auto | AdapterProtocol::Unspecified => !self.only_process_oam.load(Ordering::Relaxed),
        };
        if provision {
            let request = ProvisionRequest {
                username: USERNAME.into(),
                delete_op: call.removes,
                declarations: vec![call.declaration.to_owned()],
                kube_configs: call.kubeconfigs.to_vec(),
            };
            let mut client = MeshServiceClient::new(channel.clone());
            let request = self.small(request)?;
            let sent = self.send("Provision", request, call, async |request| client.provision(request).await).await;
            match sent {
                // Nothing was executed, so the other method may be tried.
                Err(status) if status.code() == Code::Unimplemented && call.protocol != AdapterProtocol::Provision => {
                    self.only_process_oam.store(true, Ordering::Relaxed);
                }
                Err(status) => return Err(self.judge(&status, call)),
                Ok(response) => return Ok(response.into_inner().message.into()),
            }
        }
        let request = ProcessOamRequest {
            username: USERNAME.into(),
            delete_op: call.removes,
            oam_comps: vec![oam::component(call.declaration)?],
            oam_config: oam::configuration(call.declaration)?,
            kube_configs: call.kubeconfigs.to_vec(),
        };
        let request = self.small(request)?;
        let mut client = MeshServiceClient::new(channel);
        let sent = self.send("ProcessOAM", request, call, async |request| client.process_oam(request).await).await;
        sent.map(|response| response.into_inner().message.into()).map_err(|status| self.judge(&status, call))
    }

    /// Lets a request pass that adapters take.
    fn small<Q: Message>(&self, request: Q) -> Result<Q, Error> {
        match request.encoded_len() {
            size if size >= MAX_REQUEST => Err(Error::TooLarge { address: self.address.clone(), size }),
            _ => Ok(request),
        }
    }

    /// Sends one request under a span of its own.
    async fn send<Q, A>(
        &self,
        method: &'static str,
        message: Q,
        call: &Call<'_>,
        send: impl AsyncFnOnce(Request<Q>) -> Result<tonic::Response<A>, Status>,
    ) -> Result<tonic::Response<A>, Status> {
        let span = tracing::info_span!(
            "adapter",
            { common::OTEL_NAME } = format_args!("meshes.MeshService/{method}"),
            { common::OTEL_KIND } = "client",
            { common::OTEL_STATUS_CODE } = Empty,
            { common::RPC_SYSTEM } = common::GRPC,
            { common::RPC_SERVICE } = "meshes.MeshService",
            { common::RPC_METHOD } = method,
            { common::RPC_GRPC_STATUS_CODE } = Empty,
            { common::SERVER_ADDRESS } = self.address,
        );
        let mut request = Request::new(message);
        telemetry::inject_metadata(&span, request.metadata_mut());
        for (key, value) in [(RUN_ID, call.run_id), (STEP_ID, call.step_id)] {
            // An id that is no ASCII is one of a foreign plan; the adapter does without.
            if let Ok(value) = value.parse() {
                request.metadata_mut().insert(key, value);
            }
        }
        let left = call.deadline.saturating_duration_since(Instant::now());
        request.set_timeout(left);
        // The timeout of the request binds the peer; this one binds us, whatever the peer does (case 125).
        let answer = tokio::time::timeout(left, send(request)).instrument(span.clone()).await;
        let answer = answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in the time the step has")));
        let code = answer.as_ref().map_or_else(Status::code, |_| Code::Ok);
        span.record(common::RPC_GRPC_STATUS_CODE, code as i32);
        if code != Code::Ok {
            span.record(common::OTEL_STATUS_CODE, "error");
        }
        answer
    }

    fn judge(&self, status: &Status, call: &Call<'_>) -> Error {
        let address = self.address.clone();
        if was_not_sent(status) {
            return Error::Unreachable { address, why: call.render(&why_no_connection(status)) };
        }
        let why = match status.message() {
            "" => "it gave no reason".to_owned(),
            text => call.render(&text.into()),
        };
        match status.code() {
            Code::DeadlineExceeded | Code::Cancelled | Code::Unavailable => Error::Lost { address, why },
            // What the transport says of itself: the adapter's own statuses have no source.
            Code::Unknown | Code::Internal if std::error::Error::source(status).is_some() => {
                Error::Lost { address, why }
            }
            Code::ResourceExhausted => Error::Busy { address, why },
            code => Error::Failed { address, code, why },
        }
    }
}

impl Call<'_> {
    /// An adapter's own text without the credentials and secret values that it was given (D25).
    fn render(&self, text: &Unmasked) -> String {
        let of_kubeconfigs = self.kubeconfigs.iter().map(|kubeconfig| Secrets::of_kubeconfig(kubeconfig));
        of_kubeconfigs.fold(Secrets::of_declaration(self.declaration), Secrets::and).render(text)
    }
}

fn no_answer() -> Unmasked {
    format!("no answer within {} s", CONNECT_TIMEOUT.as_secs()).into()
}

/// Why a dial failed, in words that say so.
fn why_no_connection(error: &(dyn std::error::Error + 'static)) -> Unmasked {
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
    use super::*;

    #[test]
    fn an_address_has_one_adapter_and_ipv6_has_brackets() {
        let adapters = Adapters::default();
        assert!(Arc::ptr_eq(&adapters.at("mesh", 10000), &adapters.at("mesh", 10000)));
        assert_eq!(adapters.at("::1", 10000).address(), "[::1]:10000");
        assert_eq!(adapters.at("[::1]", 10000).address(), "[::1]:10000");
    }

    fn judge(status: &Status) -> Error {
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
            stop: &CancellationToken::new(),
            hindrance: &|| None,
            note: OnceLock::new(),
        };
        Adapters::default().at("mesh", 10000).judge(status, &call)
    }

    #[tokio::test]
    async fn adapter_of_a_request_is_at_no_private_address_unless_the_installation_names_it() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let named = vec![format!("127.0.0.1:{port}").parse().unwrap()];
        let call = Call {
            protocol: AdapterProtocol::Auto,
            removes: false,
            declaration: "{}",
            kubeconfigs: &[],
            run_id: "",
            step_id: "",
            deadline: Instant::now() + Duration::from_secs(1),
            stop: &CancellationToken::new(),
            hindrance: &|| None,
            note: OnceLock::new(),
        };
        let adapters = Adapters::new(None, Vec::new(), Reach::Public);
        for host in ["127.0.0.1", "localhost", "::1", "[::1]", "127.1"] {
            let Err(Error::Unreachable { why, .. }) = adapters.at(host, port).call(&call).await else {
                panic!("{host}")
            };
            assert_eq!(why, "requests may not lead to this address", "{host}");
        }
        assert!(listener.accept().is_err());
        Adapters::new(None, named, Reach::Public).at("127.0.0.1", port).call(&call).await.unwrap_err();
        assert!(listener.accept().is_ok());
    }

    #[test]
    fn an_adapters_word_and_a_broken_connection_are_told_apart() {
        assert!(matches!(judge(&Status::unknown("")), Error::Failed { why, .. } if why == "it gave no reason"));
        assert!(matches!(judge(&Status::unavailable("Socket closed")), Error::Lost { .. }));
        assert!(matches!(judge(&Status::deadline_exceeded("")), Error::Lost { .. }));
        assert!(matches!(judge(&Status::resource_exhausted("4 calls")), Error::Busy { .. }));
        let refused = tonic::ConnectError("connection refused".into());
        assert!(matches!(judge(&Status::from_error(Box::new(refused))), Error::Unreachable { .. }));
    }

    #[test]
    fn what_an_adapter_quotes_of_its_secrets_is_masked() {
        let text = "with key-7f1-canary (a2V5LTdmMS1jYW5hcnk=) and value-1d7f1 refused";
        let Error::Failed { why, .. } = judge(&Status::unknown(text)) else { panic!("failed") };
        assert_eq!(why, "with [redacted] ([redacted]) and [redacted] refused");
    }
}
