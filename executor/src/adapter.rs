//! Adapters: one channel an address, one call at a time, and what a call came to (D27, `meshes` contract).
//!
//! Knows nothing of plans and runs. Two adapters in the field die of two calls at once, go on writing after their caller has
//! left, answer OK for work not done and fail without a word; so calls to an address queue up, and the answer is only half of
//! the verdict (the other half is a look at the clusters, in `fulfil::adapter`).

pub(crate) mod allow;
mod answer;
mod dial;
mod greeting;
pub(crate) mod oam;

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use prost::Message;
use switchyard_proto::{
    meshes::{ProcessOamRequest, ProvisionRequest, mesh_service_client::MeshServiceClient},
    v1::AdapterProtocol,
};
use switchyard_service::{attributes as common, telemetry};
use tokio::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use tonic::{
    Code, Request, Status,
    transport::{Channel, ClientTlsConfig},
};
use tracing::{Instrument, field::Empty};

use self::{allow::AddressPattern, dial::Line};
use crate::{addresses::Reach, mask::Unmasked};

/// How long an address rests after a call that had no answer in its time, since adapters go on writing after their caller has
/// left; but no more than this part of the time that the next call has.
const REST_AFTER_TIMEOUT: Duration = Duration::from_secs(30);
const REST_SHARE: u32 = 3;
/// Adapters that are remembered while nobody uses them. Requests name them, so there is no end to their number.
const KNOWN: usize = 1024;
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
    /// Why the call may not be made any more, looked at just before.
    pub(crate) hindrance: &'a (dyn Fn() -> Option<String> + Sync),
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
    /// What answers cannot have understood the request, so nothing was done.
    #[error("what answers at {address} is not a gRPC service: {what}")]
    NotGrpc { address: String, what: String },
    /// The adapter knows none of the methods that it was asked by, so nothing was done.
    #[error("the adapter at {address} does not offer provisioning: it does not know {methods}")]
    NotOffered { address: String, methods: &'static str },
    /// The adapter has no room now, and did nothing.
    #[error("the adapter at {address} has no room: {why}")]
    Busy { address: String, why: String },
    /// The adapter says that it failed. It may have done part of the work.
    #[error("the adapter at {address} failed ({code:?}): {why}")]
    Failed { address: String, code: Code, why: String },
    /// The connection ended before the adapter's word. It may go on working.
    #[error("the adapter at {address} gave no answer: {why}; it may have acted, and may still act")]
    Lost { address: String, why: String },
    /// The time of the call ended before the adapter's word. It may go on working.
    #[error("the adapter at {address} gave no answer in time: {why}; it may have acted, and may still act")]
    Late { address: String, why: String },
}

impl Error {
    /// Whether the adapter may have acted, so that only a look at the clusters tells what came of the call.
    pub(crate) fn may_have_acted(&self) -> bool {
        match self {
            Self::Failed { .. } | Self::Lost { .. } | Self::Late { .. } => true,
            Self::Unreachable { .. }
            | Self::TooLarge { .. }
            | Self::Declaration(_)
            | Self::NotGrpc { .. }
            | Self::NotOffered { .. }
            | Self::Stopped { .. }
            | Self::Busy { .. } => false,
        }
    }
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
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// By address.
    adapters: BTreeMap<String, Arc<Adapter>>,
    /// By place: addresses that are spelt differently and mean one adapter have one turn.
    turns: BTreeMap<String, Arc<tokio::sync::Mutex<Unfinished>>>,
}

impl Known {
    /// Forgets the adapters that nobody uses and that need no rest.
    fn forget(&mut self) {
        let rests = |adapter: &Adapter| {
            let unfinished = adapter.turn.try_lock();
            unfinished.is_ok_and(|since| since.is_some_and(|since| since.elapsed() < REST_AFTER_TIMEOUT))
        };
        self.adapters.retain(|_, adapter| Arc::strong_count(adapter) > 1 || rests(adapter));
        self.turns.retain(|_, turn| Arc::strong_count(turn) > 1);
    }
}

/// When the last call had no answer in its time, and has not been followed by another.
type Unfinished = Option<Instant>;

/// One adapter.
pub(crate) struct Adapter {
    address: String,
    host: String,
    port: u16,
    tls: Option<ClientTlsConfig>,
    reach: Reach,
    /// One call at a time: held for as long as a turn goes on.
    turn: Arc<tokio::sync::Mutex<Unfinished>>,
    /// Locked by whoever has the turn.
    line: tokio::sync::Mutex<Line>,
    /// Answered UNIMPLEMENTED to Provision.
    only_process_oam: AtomicBool,
}

/// The right to call an adapter, for as long as it is held.
pub(crate) struct Turn<'a> {
    adapter: &'a Adapter,
    turn: tokio::sync::OwnedMutexGuard<Unfinished>,
    /// What whoever calls should know beside the answer.
    pub(crate) note: Option<String>,
}

/// `host:port`. An IPv6 address needs brackets before a port (RFC 3986).
pub(crate) fn address(host: &str, port: u32) -> String {
    let bare = host.contains(':') && !host.starts_with('[');
    if bare { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Where an address leads. All names of this machine's loopback interface are one place; what other names stand for is not
/// looked up.
fn place(host: &str, port: u16) -> String {
    let host = allow::normal(host);
    let is_loopback = host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.to_canonical().is_loopback());
    let host = if is_loopback { "localhost" } else { &host };
    format!("{host}:{port}")
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
        if known.adapters.len() >= KNOWN && !known.adapters.contains_key(&address) {
            known.forget();
        }
        let Known { adapters, turns } = &mut *known;
        let adapter = adapters.entry(address.clone()).or_insert_with(|| {
            let named = self.allowed.iter().any(|pattern| pattern.matches(host, port));
            Arc::new(Adapter {
                address,
                host: host.to_owned(),
                port,
                tls: self.tls.clone(),
                reach: if named { Reach::All } else { self.reach },
                turn: turns.entry(place(host, port)).or_default().clone(),
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

    /// Waits until the calls before have ended. Whoever has the turn may make a call; nobody else does meanwhile. `stop` ends
    /// the wait.
    pub(crate) async fn turn(&self, deadline: Instant, stop: &CancellationToken) -> Result<Turn<'_>, Error> {
        let waited = tokio::select! {
            biased;
            waited = tokio::time::timeout_at(deadline, self.turn.clone().lock_owned()) => waited,
            () = stop.cancelled() => return Err(self.stopped("the run was stopped while other calls went on")),
        };
        let mut turn = waited.map_err(|_| {
            let why = "other calls to it did not end in time; nothing was sent".to_owned();
            Error::Busy { address: self.address.clone(), why }
        })?;
        let note = self.rest(&mut turn, deadline, stop).await?;
        Ok(Turn { adapter: self, turn, note })
    }

    /// Gives an adapter whose last call had no answer the time to come to its end (case 268). Answers what to say of it.
    async fn rest(
        &self,
        unfinished: &mut Unfinished,
        deadline: Instant,
        stop: &CancellationToken,
    ) -> Result<Option<String>, Error> {
        let Some(since) = *unfinished else { return Ok(None) };
        let now = Instant::now();
        let until = (since + REST_AFTER_TIMEOUT).min(now + deadline.saturating_duration_since(now) / REST_SHARE);
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(until) => {}
            () = stop.cancelled() => {
                return Err(self.stopped("the run was stopped while the adapter was given time for the call before"));
            }
        }
        *unfinished = None;
        Ok(Some(format!(
            "the call to the adapter at {} before this one had no answer in its time, {:.0?} ago; the adapter may still be at \
             work on it",
            self.address,
            since.elapsed()
        )))
    }

    fn stopped(&self, why: impl Into<String>) -> Error {
        Error::Stopped { address: self.address.clone(), why: why.into() }
    }

    /// Refuses a call that may not be made any more.
    fn unhindered(&self, call: &Call<'_>) -> Result<(), Error> {
        (call.hindrance)().map_or(Ok(()), |why| Err(self.stopped(why)))
    }

    /// Dials, if need be, and makes the call. A dial takes its time, so what may hinder the call is looked at after it too.
    async fn attempt(&self, line: &mut Line, call: &Call<'_>) -> Result<Unmasked, Error> {
        self.unhindered(call)?;
        let channel = line.dial(self, call).await?;
        self.unhindered(call)?;
        self.ask(channel, call).await.map_err(|error| line.explain(self, error))
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
                Ok(response) => return Ok(response.into_inner().message.into()),
                Err(status) => match answer::judge(self, &status, call, call.deadline <= Instant::now()) {
                    // Nothing was executed, so the other method may be tried.
                    Error::NotOffered { .. } if call.protocol != AdapterProtocol::Provision => {
                        self.only_process_oam.store(true, Ordering::Relaxed);
                    }
                    Error::NotOffered { address, .. } => {
                        return Err(Error::NotOffered { address, methods: "Provision" });
                    }
                    error => return Err(error),
                },
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
        sent.map(|response| response.into_inner().message.into()).map_err(|status| {
            match answer::judge(self, &status, call, call.deadline <= Instant::now()) {
                Error::NotOffered { address, methods } if call.protocol == AdapterProtocol::ProcessOam => {
                    Error::NotOffered { address, methods }
                }
                Error::NotOffered { address, .. } => {
                    // It may be another one that listens there next time.
                    self.only_process_oam.store(false, Ordering::Relaxed);
                    Error::NotOffered { address, methods: "Provision and ProcessOAM" }
                }
                error => error,
            }
        })
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
            { common::ERROR_TYPE } = Empty,
            { common::RPC_SYSTEM } = common::GRPC,
            { common::RPC_SERVICE } = "meshes.MeshService",
            { common::RPC_METHOD } = method,
            { common::RPC_GRPC_STATUS_CODE } = Empty,
            { common::SERVER_ADDRESS } = self.host,
            { common::SERVER_PORT } = i64::from(self.port),
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
        let code = answer.as_ref().map_or_else(answer::code, |_| Code::Ok);
        span.record(common::RPC_GRPC_STATUS_CODE, code as i32);
        // Asking whether it knows Provision is no error (facts 5.2).
        let is_expected =
            code == Code::Unimplemented && method == "Provision" && call.protocol != AdapterProtocol::Provision;
        if code != Code::Ok && !is_expected {
            span.record(common::OTEL_STATUS_CODE, "error");
            span.record(common::ERROR_TYPE, (code as i32).to_string());
        }
        answer
    }
}

impl Turn<'_> {
    /// Makes one call, and ends the turn. Answers the adapter's own words.
    pub(crate) async fn call(self, call: &Call<'_>) -> Result<Unmasked, Error> {
        let Self { adapter, mut turn, .. } = self;
        let began = Instant::now();
        let mut line = adapter.line.lock().await;
        let known = line.is_open();
        let mut result = adapter.attempt(&mut line, call).await;
        if known && matches!(result, Err(Error::Unreachable { .. })) {
            // The adapter went away since the last call, and may have come back: nothing was sent, so once more (case 120).
            line.close();
            result = adapter.attempt(&mut line, call).await;
        }
        let has_no_answer = matches!(result, Err(Error::Lost { .. } | Error::Late { .. }));
        if has_no_answer || matches!(result, Err(Error::Unreachable { .. } | Error::NotGrpc { .. })) {
            // A channel that broke is not trusted with the next call.
            line.close();
        }
        // Whether it is our clock that rings first or the adapter's; an adapter that broke off works no more.
        if has_no_answer && began.elapsed() >= (call.deadline - began) * 9 / 10 {
            *turn = Some(Instant::now());
        }
        result
    }
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

    #[test]
    fn addresses_of_one_place_have_one_turn() {
        let adapters = Adapters::default();
        let share = |a: &str, b: &str| Arc::ptr_eq(&adapters.at(a, 10000).turn, &adapters.at(b, 10000).turn);
        for other in ["127.0.0.1", "[::1]", "::1", "LocalHost.", "127.0.0.2", "::ffff:127.0.0.1"] {
            assert!(share("localhost", other), "{other}");
        }
        assert!(share("Mesh.example.", "mesh.example"));
        assert!(!share("localhost", "mesh.example"));
        assert!(!Arc::ptr_eq(&adapters.at("localhost", 1).turn, &adapters.at("localhost", 2).turn));
    }

    #[test]
    fn adapters_that_nobody_uses_are_forgotten_when_there_are_many() {
        let adapters = Adapters::default();
        let used = adapters.at("used", 1);
        *adapters.at("resting", 1).turn.try_lock().unwrap() = Some(Instant::now());
        (0..4 * KNOWN).for_each(|ix| drop(adapters.at(&format!("mesh{ix}"), 1)));
        let known = adapters.known.lock().unwrap();
        assert!(known.adapters.len() <= KNOWN + 2 && known.turns.len() <= KNOWN + 2, "{}", known.adapters.len());
        assert!(Arc::ptr_eq(&known.adapters["used:1"], &used));
        assert!(known.turns["resting:1"].try_lock().unwrap().is_some());
    }

    fn call<'a>(hindrance: &'a (dyn Fn() -> Option<String> + Sync)) -> Call<'a> {
        Call {
            protocol: AdapterProtocol::Auto,
            removes: false,
            declaration: "{}",
            kubeconfigs: &[],
            run_id: "",
            step_id: "",
            deadline: Instant::now() + Duration::from_secs(1),
            hindrance,
        }
    }

    #[tokio::test]
    async fn run_that_is_stopped_during_the_dial_calls_nobody() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let adapter = Adapters::default().at("127.0.0.1", listener.local_addr().unwrap().port());
        let looks = std::sync::atomic::AtomicUsize::new(0);
        let after_the_dial = || (looks.fetch_add(1, Ordering::Relaxed) > 0).then(|| "stopped".to_owned());
        let call = call(&after_the_dial);
        let turn = adapter.turn(call.deadline, &CancellationToken::new()).await.unwrap();
        assert!(matches!(turn.call(&call).await, Err(Error::Stopped { .. })));
    }

    #[tokio::test]
    async fn adapter_of_a_request_is_at_no_private_address_unless_the_installation_names_it() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let named = vec![format!("127.0.0.1:{port}").parse().unwrap()];
        let call = call(&|| None);
        let ask = async |adapter: Arc<Adapter>| {
            let turn = adapter.turn(call.deadline, &CancellationToken::new()).await.unwrap();
            turn.call(&call).await
        };
        let adapters = Adapters::new(None, Vec::new(), Reach::Public);
        for host in ["127.0.0.1", "localhost", "::1", "[::1]", "127.1"] {
            let Err(Error::Unreachable { why, .. }) = ask(adapters.at(host, port)).await else { panic!("{host}") };
            assert_eq!(why, "requests may not lead to this address", "{host}");
        }
        assert!(listener.accept().is_err());
        ask(Adapters::new(None, named, Reach::Public).at("127.0.0.1", port)).await.unwrap_err();
        assert!(listener.accept().is_ok());
    }
}
