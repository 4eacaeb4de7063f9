//! One Execute stream from its first message to its last: takes the plan in, proves the clusters, starts the run, and hands
//! on what the run's journal says. The run itself is a task of its own and outlives the stream if it must.

use std::{collections::HashMap, convert::Infallible, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{FutureExt, future::join_all};
use http::header::USER_AGENT;
use switchyard_proto::{
    Kept,
    v1::{self, CancelledBy, ExecuteRequest, ExecuteResponse, execute_request::Part, execute_response::Event},
};
use switchyard_service::{
    attributes as common,
    budget::Share,
    received::Received,
    shutdown::Shutdown,
    status::{self, Reason, capped, told},
    telemetry,
    trace::Unparented,
};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::task::TaskTracker;
use tonic::{Code, Status, Streaming};
use tracing::{Instrument, Span, field::Empty};

use crate::{
    adapter::{Adapters, allow::AddressPattern},
    attributes,
    cluster::{
        self, Cluster,
        access::{Access, Reader, Source},
        contents::Everywhere,
        discovery::Known,
        lease::{LastRun, Leave},
    },
    fulfil::{ByWork, adapter::ByAdapter, chart::Charts, direct::Direct},
    handover,
    helm::Helm,
    incoming::Incoming,
    intake::{self, Accepted},
    journal,
    limit::Limits,
    locks::{ForRun, Locking, Locks},
    mask::OfDesign,
    metrics::{self, ActiveRun},
    plan::Plan,
    refuse,
    run::{self, Identity},
    runs::{self, Caller, Run, Runs},
    schedule::Lane,
    story::{Asked, Story},
    user_agent,
};

/// How long it may take to prove that a cluster is workable: a dial of 10 s, and the questions.
const PROOF: Duration = Duration::from_secs(15);

/// Clusters that are proven at the same time.
const PROOFS: usize = 256;
/// Longest URL and version of a cluster that are told, in bytes.
const MAX_TOLD: usize = 255;

/// How long a client may read nothing of what waits for it.
const PATIENCE_WITH_READER: Duration = Duration::from_secs(600);

/// How long writes that are in flight at the caller's deadline may take to end before the caller is left without their
/// results (case 113). The run goes on to its end, and WatchRun tells it.
const AFTER_DEADLINE: Duration = Duration::from_secs(1);

/// What all sessions share.
pub(crate) struct Shared {
    pub(crate) incoming: Incoming,
    pub(crate) access: Access,
    /// What the runs before learned of their clusters' kinds.
    pub(crate) known: Known,
    /// What controllers put into every namespace.
    pub(crate) everywhere: Arc<Everywhere>,
    pub(crate) adapters: Arc<Adapters>,
    /// Adapters that may be handed credentials of the executor's own.
    pub(crate) adapter_allow: Vec<AddressPattern>,
    pub(crate) helm: Arc<Helm>,
    pub(crate) runs: Runs,
    /// None keeps runs apart within this process alone.
    pub(crate) locking: Option<Locking>,
    /// None leaves it to `limits`.
    pub(crate) max_in_flight: Option<usize>,
    pub(crate) limits: Limits,
    pub(crate) tasks: TaskTracker,
    pub(crate) shutdown: Shutdown,
}

/// Where the answers go, in batches. Closed when the client is gone.
pub(crate) type Answers = mpsc::Sender<Result<Vec<Kept<ExecuteResponse>>, Status>>;

/// One stream.
pub(crate) struct Session {
    pub(crate) shared: Arc<Shared>,
    pub(crate) requests: Streaming<ExecuteRequest>,
    /// The bytes of `requests` that have not been taken out yet.
    pub(crate) waiting: Option<Received>,
    pub(crate) answers: Answers,
    /// The caller's own.
    pub(crate) deadline: Option<Instant>,
}

impl Session {
    /// Conducts the stream to its end. `unparented` is the call's span, if the caller named no trace: then the plan does
    /// (S24), so that a plan which is piped from Plan to Execute is one trace.
    pub(crate) async fn conduct(mut self, unparented: Option<Unparented>) {
        let gone = self.answers.clone();
        let received = tokio::select! {
            received = self.shared.incoming.receive(&mut self.requests, self.waiting.as_ref(), self.deadline) => received,
            // Nothing comes of a plan that is not whole yet, and waiting for it would hold up the drain.
            () = self.shared.shutdown.draining() => Err(refuse::shutting_down()),
            () = gone.closed() => {
                tracing::info!("the client went away before its plan was complete; nothing was started");
                return;
            }
        };
        let span = match unparented {
            None => Span::current(),
            Some(Unparented(span)) => {
                if let Ok(accepted) = &received {
                    telemetry::set_parent_from_plan(&span, &accepted.plan.traceparent);
                }
                span
            }
        };
        self.carry_out(received).instrument(span).await;
    }

    async fn carry_out(self, received: Result<Accepted, Status>) {
        let Self { shared, requests, waiting, answers, deadline } = self;
        let started = async {
            start_or_join(&shared, received.inspect_err(|status| tell_refused(status, &Span::none()))?, &answers).await
        };
        let started = tokio::select! {
            started = started => started,
            () = answers.closed() => {
                tracing::info!("{} before the run began; nothing was started", who_went(&shared.shutdown));
                return;
            }
        };
        let ended = match started {
            Ok(caller) => {
                let followed = follow(caller, (requests, waiting), &answers, deadline, &shared.shutdown).await;
                followed.inspect_err(|status| {
                    tracing::info!(code = ?status.code(), why = status.message(), "the stream of a run ends early");
                })
            }
            Err(status) => Err(status),
        };
        if let Err(status) = ended {
            answers.send(Err(status)).await.ok();
        }
    }
}

/// Who ended a stream that nobody reads any more.
fn who_went(shutdown: &Shutdown) -> &'static str {
    // After the last call of a drain the server cuts what is open.
    if shutdown.time_left().is_some() { "the stream was cut as the executor goes down" } else { "the client went away" }
}

/// Says of a plan why it is not carried out: a warning where that is for whoever runs the executor to see to.
fn tell_refused(status: &Status, span: &Span) {
    let (reason, why) = told(status);
    span.record(common::OTEL_STATUS_CODE, "error");
    span.record(common::OTEL_STATUS_DESCRIPTION, &why);
    span.record(common::ERROR_TYPE, &reason);
    metrics::run_refused(reason.clone());
    let code = status.code();
    if matches!(code, Code::FailedPrecondition | Code::ResourceExhausted | Code::Internal) {
        tracing::warn!(?code, reason, why, "run refused");
    } else {
        tracing::info!(?code, reason, why, "run refused");
    }
}

/// Starts the run, or finds the one that a call with the same request id has started.
///
/// A start that has a request id comes to its end also when its caller goes away: what it holds of the clusters is free again
/// before the next call of that id has its turn, so that a call which is repeated is not in its own way.
async fn start_or_join(shared: &Arc<Shared>, accepted: Accepted, answers: &Answers) -> Result<Caller, Status> {
    let request_id = accepted.start.request_id.clone();
    if request_id.is_empty() {
        return start(shared, accepted, answers).await;
    }
    let turn = shared.runs.turn(&request_id).await;
    if let Some(run) = shared.runs.requested(&request_id) {
        if run.plan_id != accepted.plan.id {
            let refused = refuse::other_plan(&run.id, &run.plan_id);
            tell_refused(&refused, &Span::none());
            return Err(refused);
        }
        tracing::info!({ attributes::RUN_ID } = run.id, { attributes::REQUEST_ID } = request_id, "going on with a run");
        return Ok(Caller::of(run));
    }
    let (shared, answers) = (shared.clone(), answers.clone());
    let tasks = shared.tasks.clone();
    let starting = async move {
        let _turn = turn;
        start(&shared, accepted, &answers).await
    };
    tasks.spawn(starting.in_current_span()).await.unwrap_or_else(|_| Err(status::internal().into_status()))
}

/// Proves the clusters and starts the run, or says why it was not started.
async fn start(shared: &Arc<Shared>, accepted: Accepted, answers: &Answers) -> Result<Caller, Status> {
    let plan = &accepted.plan;
    let span = tracing::info_span!(
        "run",
        { common::OTEL_NAME } = "run",
        { common::OTEL_STATUS_CODE } = Empty,
        { common::OTEL_STATUS_DESCRIPTION } = Empty,
        { common::ERROR_TYPE } = Empty,
        { attributes::RUN_ID } = Empty,
        { attributes::PLAN_ID } = plan.id,
        { attributes::DESIGN_ID } = plan.design.id,
        { attributes::DESIGN_NAME } = plan.design.name,
        { attributes::LABELS } = Empty,
        { attributes::OUTCOME } = Empty,
    );
    let labels = labels(&accepted.start);
    if !labels.is_empty() {
        span.record(attributes::LABELS, &labels);
    }
    let started = prove_and_begin(shared, accepted, answers, &span).await;
    started.inspect_err(|status| span.in_scope(|| tell_refused(status, &span)))
}

async fn prove_and_begin(
    shared: &Arc<Shared>,
    accepted: Accepted,
    answers: &Answers,
    span: &Span,
) -> Result<Caller, Status> {
    let Accepted { plan, access, start, header, share } = accepted;
    let not_allowed = handover::not_allowed(&plan, &access, &shared.adapter_allow);
    if !plan.dry_run && !not_allowed.is_empty() {
        return Err(refuse::adapters(&not_allowed));
    }
    let kubeconfigs = kubeconfigs(&shared.access, &plan, &access)?;
    let for_helm = for_helm(&shared.access, &plan, &access);
    let secrets = Arc::new(OfDesign::new(plan.secrets()));
    let run_id = uuid::Uuid::new_v4().to_string();
    span.record(attributes::RUN_ID, &run_id);
    let clusters = prove(shared, &plan, &access, &secrets, &run_id).instrument(span.clone()).await?;
    if shared.shutdown.is_draining() {
        return Err(refuse::shutting_down());
    }
    let servers: Vec<_> = clusters.iter().map(|cluster| cluster.server.clone()).collect();
    let trace_id = telemetry::trace_id_of(span).unwrap_or_default();
    let locks = match &shared.locking {
        Some(locking) if !plan.dry_run => {
            let locking = locking.lock(for_run(&plan, &run_id), &clusters).instrument(span.clone());
            locking.await.map_err(|error| refuse::locks(&error))?
        }
        _ => Locks::none(shared.tasks.clone()),
    };
    tracing::debug!(past = ?locks.past, "what the Leases say of the design");
    if answers.is_closed() && !plan.options.goes_on_without_client {
        locks.release(Duration::MAX, Leave::NotBegun).await;
        return Err(refuse::plain(
            Reason::RunCancelled,
            "the client went away before the run began; nothing was started",
        ));
    }
    let options = header.options.clone();
    let (labels, request_id) = (labels(&start), start.request_id.clone());
    let entry = runs::Entry { id: run_id, plan: &plan, servers: &servers, trace_id, start, header };
    let (run, controls) = shared.runs.begin(entry).map_err(|error| refuse::run(&error))?;
    let setting = Setting { clusters, secrets, kubeconfigs, for_helm, not_allowed, locks, share, options };
    let asked = Asked { labels, request_id };
    let caller = Caller::of(run.clone());
    begin(shared, run, (plan, asked), setting, controls, span.clone());
    Ok(caller)
}

/// The labels as they are shown in a line.
fn labels(start: &v1::Start) -> String {
    let mut labels: Vec<_> = start.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    labels.sort_unstable();
    labels.join(",")
}

/// What the clusters are locked for.
fn for_run<'a>(plan: &'a Plan, run_id: &str) -> ForRun<'a> {
    ForRun {
        design: runs::key(plan),
        run: LastRun::begin(run_id, &plan.id, &plan.design.version, plan.operation, user_agent::executor()),
        removes: plan.operation == v1::Operation::Undeploy,
        kinds: (0..plan.clusters.len()).map(|ix| plan.kinds_on(Lane(ix as u16))).collect(),
    }
}

/// What has become of the run, for its Leases.
fn leave(operation: v1::Operation, verdict: v1::Verdict) -> Leave {
    match (operation, verdict) {
        (v1::Operation::Undeploy, v1::Verdict::Succeeded) => Leave::AllGone,
        _ => Leave::Ended(verdict),
    }
}

/// Proves that every cluster is workable before anything is written, and names all that are not in one error (S17).
async fn prove(
    Shared { access, known, .. }: &Shared,
    plan: &Plan,
    sources: &[Source],
    design: &Arc<OfDesign>,
    run_id: &str,
) -> Result<Vec<Arc<Cluster>>, Status> {
    let agent = &user_agent::of_run(run_id);
    let mut clusters: Vec<Arc<Cluster>> = Vec::new();
    let mut by_server: HashMap<String, &String> = HashMap::new();
    let mut unusable = Vec::new();
    let sources: Vec<_> = plan.clusters.iter().zip(sources).collect();
    for some in sources.chunks(PROOFS) {
        let proofs = some.iter().map(|(name, source)| async move {
            // A plugin that makes credentials has a bound of its own.
            let mut way = access.way(name, source).await?;
            way.config.headers.push((USER_AGENT, agent.clone()));
            let by = Instant::now() + PROOF;
            Cluster::connect(name, way, known.of(Access::asker(name, source)), design.clone(), by).await
        });
        for ((name, _), proof) in some.iter().zip(join_all(proofs).await) {
            match proof {
                Err(error) => unusable.push((*name, error.to_string())),
                Ok(cluster) => match by_server.get(&cluster.server) {
                    Some(known) => unusable.push((*name, format!("it is the same API server as cluster {known}"))),
                    None => {
                        by_server.insert(cluster.server.clone(), *name);
                        clusters.push(Arc::new(cluster));
                    }
                },
            }
        }
    }
    if unusable.is_empty() { Ok(clusters) } else { Err(refuse::clusters(&unusable)) }
}

/// What adapters need to reach the clusters; nothing where no adapter is called.
fn kubeconfigs(access: &Access, plan: &Plan, sources: &[Source]) -> Result<Vec<String>, Status> {
    if plan.adapters.is_empty() || plan.dry_run {
        return Ok(Vec::new());
    }
    let mut unusable = Vec::new();
    let mut kubeconfigs = Vec::with_capacity(sources.len());
    for (name, source) in plan.clusters.iter().zip(sources) {
        match access.kubeconfig(name, source, Reader::Adapter) {
            Ok(kubeconfig) => kubeconfigs.push(kubeconfig),
            Err(error) => unusable.push((name, error.to_string())),
        }
    }
    if unusable.is_empty() { Ok(kubeconfigs) } else { Err(refuse::clusters(&unusable)) }
}

/// What helm needs to reach the clusters, as far as it can be given that: if not, its charts are not installed, and nothing else
/// comes of it (S13). Nothing where there are no charts.
fn for_helm(access: &Access, plan: &Plan, sources: &[Source]) -> Vec<Result<String, String>> {
    if plan.steps.iter().all(|step| step.chart.is_none()) {
        return Vec::new();
    }
    let each = plan.clusters.iter().zip(sources);
    each.map(|(name, source)| access.kubeconfig(name, source, Reader::Helm).map_err(|error| error.to_string()))
        .collect()
}

/// What a run works with.
struct Setting {
    /// By lane.
    clusters: Vec<Arc<Cluster>>,
    /// What must not be said of the run.
    secrets: Arc<OfDesign>,
    /// By lane, for adapters; empty where none is called.
    kubeconfigs: Vec<String>,
    /// By lane, for helm; empty where there are no charts.
    for_helm: Vec<Result<String, String>>,
    /// Adapters whose call would be refused; empty unless it is a dry run.
    not_allowed: Vec<handover::NotAllowed>,
    locks: Locks,
    /// What the plan holds of the budget of all requests.
    share: Share,
    /// As the plan's header has them.
    options: Option<v1::RunOptions>,
}

/// Starts the run as a task of its own.
fn begin(
    shared: &Arc<Shared>,
    run: Arc<Run>,
    (plan, asked): (Plan, Asked),
    Setting { clusters, secrets, kubeconfigs, for_helm, not_allowed, locks, share, options }: Setting,
    controls: mpsc::Receiver<run::Control>,
    span: Span,
) {
    let plan = Arc::new(plan);
    let operation = plan.operation;
    locks.begun();
    let story = Story::begin(&run.id, &plan, &asked, &span);
    run.journal.append(Event::RunStarted(v1::RunStarted {
        run_id: run.id.clone(),
        plan_id: plan.id.clone(),
        trace_id: run.trace_id.clone(),
        step_count: plan.steps.len() as u32,
        clusters: clusters.iter().map(|cluster| info(cluster)).collect(),
        warnings: locks.warnings.clone(),
        operation: plan.operation.into(),
        dry_run: plan.dry_run,
        design: Some(plan.design.clone()),
        options,
        target_count: plan.steps.iter().map(|step| plan.lanes(step).len() as u32).sum(),
        labels: run.labels.clone(),
    }));
    // The smaller of what the request and the executor permit, and never more than the run's share (case 250).
    let most = [plan.options.max_in_flight, shared.max_in_flight].into_iter().flatten().min();
    let limit = |server: &String| shared.limits.share(server, most);
    let limits = clusters.iter().map(|cluster| limit(&cluster.server)).collect();
    let adapters = shared.adapters.clone();
    let fulfil = Arc::new(ByWork {
        plan: plan.clone(),
        not_allowed,
        direct: Direct::new(plan.clone(), clusters.clone(), secrets.clone(), shared.everywhere.clone()),
        charts: Charts::new(
            plan.clone(),
            clusters.clone(),
            for_helm,
            shared.helm.clone(),
            secrets.clone(),
            shared.everywhere.clone(),
            shared.locking.clone(),
        ),
        adapter: ByAdapter {
            plan: plan.clone(),
            run_id: run.id.clone(),
            clusters,
            kubeconfigs,
            adapters,
            secrets,
            everywhere: shared.everywhere.clone(),
        },
    });
    let identity = Identity { run_id: run.id.clone(), trace_id: run.trace_id.clone() };
    let (journal, control) = (run.journal.clone(), run.control());
    let shutdown = shared.shutdown.clone();
    let of_run = span.clone();
    shared.tasks.spawn(
        async move {
            let _active = ActiveRun::begin();
            let _held = share;
            // Before the summary, so that who reads it can deploy again at once.
            let release = async |verdict| {
                let within = shutdown.time_left().map_or(Duration::MAX, |left| left / 2);
                locks.release(within, leave(operation, verdict)).await;
            };
            let driver = run::run(plan, fulfil, limits, identity, journal, (control, controls), release);
            let finished = tokio::select! {
                // A panic must not look like an end: without a verdict whoever follows is told so (case 112).
                finished = AssertUnwindSafe(driver).catch_unwind() => finished,
                never = stop_when_going_down(&run, &shutdown) => match never {},
                never = stop_when_lost(&run, &locks) => match never {},
            };
            story.end(&of_run, finished.as_ref().ok());
            run.end(finished.ok());
        }
        .instrument(span),
    );
}

/// Lets what is in flight come to its end, and has the run give its account before the process ends.
async fn stop_when_going_down(run: &Run, shutdown: &Shutdown) -> Infallible {
    shutdown.draining().await;
    run.cancel(CancelledBy::Shutdown, "the executor is shutting down").await;
    shutdown.last_call().await;
    run.abandon().await;
    std::future::pending().await
}

/// A run that others believe to be dead must not write beside the one that took its place.
async fn stop_when_lost(run: &Run, locks: &Locks) -> Infallible {
    loop {
        run.cancel(CancelledBy::LockLost, locks.lost().await).await;
    }
}

/// Hands the run's events on to their end, and whatever the client says to the run.
async fn follow(
    caller: Caller,
    (requests, waiting): (Streaming<ExecuteRequest>, Option<Received>),
    answers: &Answers,
    deadline: Option<Instant>,
    shutdown: &Shutdown,
) -> Result<(), Status> {
    let run = &*caller.run.clone();
    let mut late = false;
    let mut due = deadline;
    let mut outgoing = std::pin::pin!(hand_on(run.journal.read_all(), answers));
    let mut incoming = std::pin::pin!(listen(run, requests, waiting));
    loop {
        tokio::select! {
            end = &mut outgoing => {
                caller.leave();
                return match end {
                    End::Complete if late => Err(refuse::late("the run was stopped")),
                    End::Complete => Ok(()),
                    End::Broken => Err(refuse::broken_run(&run.id)),
                    End::Stuck => {
                        tracing::warn!({ attributes::RUN_ID } = run.id, "the client stopped reading; its stream is cut");
                        Ok(())
                    }
                };
            }
            // The stream is refused; the plan that came before is not touched by it (cases 116, 269).
            breach = &mut incoming => {
                caller.leave();
                return Err(breach);
            }
            () = answers.closed() => {
                let goes_on = caller.leaves_it_going();
                tracing::info!({ attributes::RUN_ID } = run.id, goes_on, "{}", who_went(shutdown));
                return Ok(());
            }
            () = at(due) => {
                if caller.leaves_it_going() {
                    caller.leave();
                    let text = format!("run {} goes on without its client; WatchRun tells its end", run.id);
                    return Err(refuse::late(&text));
                }
                if late {
                    caller.leave();
                    let text = format!("run {} was stopped and waits for writes in flight; WatchRun tells its end", run.id);
                    return Err(refuse::late(&text));
                }
                late = true;
                due = Some(Instant::now() + AFTER_DEADLINE);
                run.cancel(CancelledBy::Deadline, "the caller's deadline has passed").await;
            }
        }
    }
}

async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// How the handing on of a journal ended.
pub(crate) enum End {
    /// The summary was handed on.
    Complete,
    /// The journal ended without one.
    Broken,
    /// The client does not read.
    Stuck,
}

/// Hands on what the reader gives. Does not come to an end when the client goes.
pub(crate) async fn hand_on(mut reader: journal::Reader, answers: &Answers) -> End {
    while let Some(events) = reader.next().await {
        match tokio::time::timeout(PATIENCE_WITH_READER, answers.send(Ok(events))).await {
            Ok(Ok(())) => {}
            // The client is gone, which is noticed beside this.
            Ok(Err(_)) => std::future::pending().await,
            Err(_) => return End::Stuck,
        }
    }
    if reader.is_complete() { End::Complete } else { End::Broken }
}

/// Passes cancels on. Answers only when the client breaks the protocol; the end of its messages is none (the run goes on).
async fn listen(run: &Run, mut requests: Streaming<ExecuteRequest>, waiting: Option<Received>) -> Status {
    let mut cancelled = false;
    while let Ok(Some(message)) = requests.message().await {
        if let Some(waiting) = &waiting {
            waiting.taken_out();
        }
        match message.part {
            Some(Part::Cancel(cancel)) => {
                cancelled = true;
                let reason = if cancel.reason.is_empty() { "cancelled by the client".into() } else { cancel.reason };
                run.cancel(CancelledBy::Caller, reason).await;
            }
            _ => {
                let after = if cancelled { "a cancel" } else { "the trailer" };
                return refuse::intake(&intake::Error::Invalid {
                    field: "part".into(),
                    what: format!(
                        "after {after} only cancel may come; one stream carries one plan. Run {} goes on: WatchRun reads it, \
                         CancelRun stops it",
                        run.id
                    ),
                });
            }
        }
    }
    // A client that is gone is noticed where the answers go.
    std::future::pending().await
}

fn info(cluster: &cluster::Cluster) -> v1::ClusterInfo {
    v1::ClusterInfo {
        name: cluster.name.clone(),
        server: capped(&cluster.server, MAX_TOLD),
        version: capped(&cluster.version, MAX_TOLD),
    }
}
