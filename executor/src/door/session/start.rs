//! Proves the clusters, locks them, and starts the run as a task of its own.

use std::{collections::HashMap, convert::Infallible, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::{FutureExt, future::join_all};
use http::header::USER_AGENT;
use switchyard_proto::v1::{self, CancelledBy, execute_response::Event};
use switchyard_service::{
    attributes as common,
    budget::Share,
    shutdown::Shutdown,
    status::{Reason, capped},
    telemetry,
};
use tokio::{sync::mpsc, time::Instant};
use tonic::Status;
use tracing::{Instrument, Span, field::Empty};

use super::{Answers, Shared, tell_refused};
use crate::{
    attributes,
    cluster::{
        Cluster,
        access::{Access, Reader, Source},
        lease::{LastRun, Leave},
    },
    core::{limit::Limit, plan::Plan, schedule::Mode, target::Clusters},
    door::{
        intake::Accepted,
        refuse,
        runs::{self, Caller, Run},
        story::{Asked, Story},
    },
    fulfil::{
        CarryOut, Fulfil, Rehearse, Site,
        adapter::ByAdapter,
        chart::Charts,
        direct::{self, Direct},
        handover,
    },
    mask::OfDesign,
    metrics::ActiveRun,
    record::locks::{ForRun, Locks},
    report::{Identity, RunEnding},
    run, user_agent,
};

/// How long it may take to prove that a cluster is workable: a dial of 10 s, and the questions.
const PROOF: Duration = Duration::from_secs(15);

/// Clusters that are proven at the same time.
const PROOFS: usize = 256;
/// Longest URL and version of a cluster that are told, in bytes.
const MAX_TOLD: usize = 255;

/// Proves the clusters and starts the run, or says why it was not started.
pub(super) async fn start(shared: &Arc<Shared>, accepted: Accepted, answers: &Answers) -> Result<Caller, Status> {
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
    if plan.mode() == Mode::CarryOut && !not_allowed.is_empty() {
        return Err(refuse::adapters(&not_allowed));
    }
    let for_adapters = for_adapters(&shared.access, &plan, &access)?;
    let for_helm = for_helm(&shared.access, &plan, &access);
    let secrets = Arc::new(OfDesign::new(plan.secrets()));
    let run_id = uuid::Uuid::new_v4().to_string();
    span.record(attributes::RUN_ID, &run_id);
    let clusters = prove(shared, &plan, &access, &secrets, &run_id).instrument(span.clone()).await?;
    if shared.shutdown.is_draining() {
        return Err(refuse::shutting_down());
    }
    let trace_id = telemetry::trace_id_of(span).unwrap_or_default();
    let locks = match &shared.locking {
        Some(locking) if plan.mode() == Mode::CarryOut => {
            let locking = locking.lock(for_run(&plan, &run_id), &clusters.raw).instrument(span.clone());
            // What the first write waits for too can be asked for meanwhile.
            let schemas = async {
                if plan.operation != v1::Operation::Undeploy {
                    ask_for_schemas(&clusters).await
                }
            };
            let (locks, ()) = tokio::join!(locking, schemas.instrument(span.clone()));
            locks.map_err(|error| refuse::locks(&error))?
        }
        _ => Locks::none(shared.tasks.clone()),
    };
    if answers.is_closed() && !plan.options.goes_on_without_client {
        locks.release(Duration::MAX, Leave::NotBegun).await;
        return Err(refuse::plain(
            Reason::RunCancelled,
            "the client went away before the run began; nothing was started",
        ));
    }
    let options = header.options.clone();
    let (labels, request_id) = (labels(&start), start.request_id.clone());
    let servers: Vec<_> = clusters.iter().map(|cluster| cluster.server.clone()).collect();
    let entry = runs::Entry { id: run_id, plan: &plan, servers: &servers, trace_id, start, header };
    let (run, controls) = shared.runs.begin(entry).map_err(|error| refuse::run(&error))?;
    let sites = clusters.into_iter().zip(for_adapters).zip(for_helm);
    let sites = sites.map(|((cluster, for_adapters), for_helm)| Site { cluster, for_adapters, for_helm });
    let setting = Setting { sites: Arc::new(sites.collect()), secrets, not_allowed, locks, share, options };
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

async fn ask_for_schemas(clusters: &Clusters<Arc<Cluster>>) {
    let by = Instant::now() + PROOF;
    join_all(clusters.iter().map(|cluster| cluster.schema("v1", by))).await;
}

/// What the clusters are locked for.
fn for_run<'a>(plan: &'a Plan, run_id: &str) -> ForRun<'a> {
    ForRun {
        design: plan.design_key(),
        run: LastRun::begin(run_id, &plan.id, &plan.design.version, plan.operation, user_agent::executor()),
        removes: plan.operation == v1::Operation::Undeploy,
        kinds: plan.clusters.keys().map(|cluster| plan.kinds_on(cluster).collect()).collect(),
    }
}

/// What has become of the run, for its Leases.
fn leave(operation: v1::Operation, RunEnding { verdict, left }: RunEnding) -> Leave {
    match (operation, verdict) {
        (v1::Operation::Undeploy, v1::Verdict::Succeeded) if left == 0 => Leave::AllGone,
        _ => Leave::Ended(verdict),
    }
}

/// Proves that every cluster is workable before anything is written, and names all that are not in one error (S17).
async fn prove(
    Shared { access, known, .. }: &Shared,
    plan: &Plan,
    sources: &Clusters<Source>,
    design: &Arc<OfDesign>,
    run_id: &str,
) -> Result<Clusters<Arc<Cluster>>, Status> {
    let agent = &user_agent::of_run(run_id);
    let mut clusters: Clusters<Arc<Cluster>> = Clusters::new();
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
fn for_adapters(access: &Access, plan: &Plan, sources: &Clusters<Source>) -> Result<Clusters<String>, Status> {
    if plan.adapters.is_empty() || plan.mode() == Mode::Rehearse {
        return Ok(plan.clusters.iter().map(|_| String::new()).collect());
    }
    let mut unusable = Vec::new();
    let mut kubeconfigs = Clusters::with_capacity(sources.len());
    for (name, source) in plan.clusters.iter().zip(sources) {
        match access.kubeconfig(name, source, Reader::Adapter) {
            Ok(kubeconfig) => kubeconfigs.push(kubeconfig),
            Err(error) => unusable.push((name, error.to_string())),
        }
    }
    if unusable.is_empty() { Ok(kubeconfigs) } else { Err(refuse::clusters(&unusable)) }
}

/// What helm needs to reach the clusters, as far as it can be given that: if not, its charts are not installed, and nothing else
/// comes of it (S13).
fn for_helm(access: &Access, plan: &Plan, sources: &Clusters<Source>) -> Clusters<Result<String, String>> {
    let has_charts = plan.steps.iter().any(|step| step.chart.is_some());
    let each = plan.clusters.iter().zip(sources);
    let kubeconfig = |(name, source): (&String, _)| match has_charts {
        true => access.kubeconfig(name, source, Reader::Helm).map_err(|error| error.to_string()),
        false => Err("nothing needs a chart".to_owned()),
    };
    each.map(kubeconfig).collect()
}

/// What a run works with.
struct Setting {
    sites: Arc<Clusters<Site>>,
    /// What must not be said of the run.
    secrets: Arc<OfDesign>,
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
    Setting { sites, secrets, not_allowed, locks, share, options }: Setting,
    controls: mpsc::Receiver<run::Control>,
    span: Span,
) {
    let plan = Arc::new(plan);
    let story = Story::begin(&run.id, &plan, &asked, &span);
    run.journal.append(Event::RunStarted(v1::RunStarted {
        run_id: run.id.clone(),
        plan_id: plan.id.clone(),
        trace_id: run.trace_id.clone(),
        step_count: plan.steps.len() as u32,
        clusters: sites.iter().map(|site| info(&site.cluster)).collect(),
        warnings: locks.warnings.clone(),
        operation: plan.operation.into(),
        dry_run: plan.dry_run,
        design: Some(plan.design.clone()),
        options,
        target_count: plan.steps.iter().map(|step| plan.targets(step).len() as u32).sum(),
        labels: run.labels.clone(),
    }));
    let direct = Direct::new(plan.clone(), sites.clone(), secrets.clone(), shared.everywhere.clone());
    let charts = Charts::new(
        plan.clone(),
        sites.clone(),
        shared.helm.clone(),
        secrets.clone(),
        shared.everywhere.clone(),
        shared.locking.clone(),
    );
    // The smaller of what the request and the executor permit, and never more than the run's share (case 250).
    let most = [plan.options.max_in_flight, shared.max_in_flight].into_iter().flatten().min();
    let limits = sites.iter().map(|site| shared.limits.share(&site.cluster.server, most)).collect();
    let starting = Starting { run, plan: plan.clone(), limits, controls, locks, share, story, span };
    match plan.mode() {
        Mode::Rehearse => {
            let direct = direct::Rehearse::new(direct);
            starting.with(shared, Rehearse { plan, direct, charts, not_allowed });
        }
        Mode::CarryOut => {
            let adapter = ByAdapter {
                plan: plan.clone(),
                run_id: starting.run.id.clone(),
                sites,
                adapters: shared.adapters.clone(),
                secrets,
                everywhere: shared.everywhere.clone(),
            };
            let past = starting.locks.past.clone().into();
            let direct = direct::Write::new(direct, past, shared.budget.clone());
            starting.with(shared, CarryOut { plan, direct, adapter, charts });
        }
    }
}

/// A run that is about to start.
struct Starting {
    run: Arc<Run>,
    plan: Arc<Plan>,
    limits: Clusters<Limit>,
    controls: mpsc::Receiver<run::Control>,
    locks: Locks,
    share: Share,
    story: Story,
    span: Span,
}

impl Starting {
    /// Starts the run as a task of its own, with what fulfils its steps.
    fn with(self, shared: &Arc<Shared>, fulfil: impl Fulfil) {
        let Self { run, plan, limits, controls, locks, share, story, span } = self;
        let identity = Identity { run_id: run.id.clone(), trace_id: run.trace_id.clone() };
        let journal = run.journal.clone();
        let shutdown = shared.shutdown.clone();
        let of_run = span.clone();
        let operation = plan.operation;
        locks.begun();
        shared.tasks.spawn(
            async move {
                let _active = ActiveRun::begin();
                let _held = share;
                // Before the summary, so that who reads it can deploy again at once.
                let release = async |ending| {
                    let within = shutdown.time_left().map_or(Duration::MAX, |left| left / 2);
                    locks.release(within, leave(operation, ending)).await;
                };
                let driver = run::run(plan, Arc::new(fulfil), limits, identity, journal, controls, release);
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

fn info(cluster: &Cluster) -> v1::ClusterInfo {
    v1::ClusterInfo {
        name: cluster.name.clone(),
        server: capped(&cluster.server, MAX_TOLD),
        version: capped(&cluster.version, MAX_TOLD),
    }
}
