//! A contestant who is ready to work.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use switchyard_proto::v1::{self, execute_response::Event, executor_service_client::ExecutorServiceClient};
use tonic::transport::Channel;

use super::{contestant::Contestant, samples::Phases};
use switchyard_tests::{
    client::{self, Client},
    programs::{Program, Running},
    sandbox::{Folder, Jaeger, Process, Span, Tool, Toolbox},
    usage::{self, Clock},
    work::Work,
};

/// For the slowest setting of all with the most objects that it is given.
const LIMIT: Duration = Duration::from_secs(1800);
/// How long no span may have come before no more are expected.
const SPANS: Duration = Duration::from_secs(8);

/// What contestants find when they come.
pub(super) struct Place<'a> {
    /// The clusters' kubeconfigs: name, file, text.
    pub(super) clusters: Vec<(String, PathBuf, String)>,
    /// The program of the floor.
    pub(super) floor: &'a Path,
    /// How many writes the floor has in flight on each cluster.
    pub(super) in_flight: usize,
    /// Programs of others.
    pub(super) tools: &'a Toolbox,
    /// Where spans go, if they do.
    pub(super) jaeger: Option<&'a Jaeger>,
    /// Room for files.
    pub(super) folder: &'a Folder,
    /// The planner that plans for everybody.
    pub(super) planner: &'a str,
    /// Its process.
    pub(super) planner_pid: u32,
}

/// What applying took.
#[derive(Debug, Clone, Default)]
pub(super) struct Spent {
    /// From the first request to the last answer; of programs that do not say so, from start to end.
    pub(super) seconds: f64,
    /// Processor time of the client; of Switchyard, the executor's.
    pub(super) cpu: Duration,
    /// Processor time of the planner.
    pub(super) planning: Duration,
    /// The most memory at once, in bytes.
    pub(super) peak: u64,
    /// Spans that should have reached Jaeger and did not.
    pub(super) spans_lost: usize,
    /// When the last result of each cluster came, in seconds; only Switchyard says.
    pub(super) clusters: BTreeMap<String, f64>,
    /// How far it was when; only Switchyard says.
    pub(super) phases: Option<Phases>,
    /// What went on in the executor from the end of one write to the beginning of the next that waited for it, in seconds; only
    /// with traces, and only in a chain.
    pub(super) between: Vec<f64>,
}

/// Somebody who can apply.
pub(super) enum Entrant {
    /// A program that is started for each piece of work.
    Program(Contestant),
    /// An executor that stays up.
    Switchyard(Box<Services>),
}

/// Both services.
pub(super) struct Services {
    executor: Running,
    client: Client,
    /// Whether spans are looked for.
    traced: bool,
}

impl Entrant {
    /// Gets a contestant ready.
    pub(super) async fn enter(who: Contestant, place: &Place<'_>) -> anyhow::Result<Self> {
        let traced = match who {
            Contestant::Switchyard => false,
            Contestant::SwitchyardTraced => true,
            _ => return Ok(Self::Program(who)),
        };
        let mut executor = Program::Executor.prepare();
        if traced {
            // As an operator would: the standard variable, and everything else at its default.
            let otlp = place.jaeger.context("there is no Jaeger")?.otlp_url();
            executor = executor.env("OTEL_EXPORTER_OTLP_ENDPOINT", otlp);
        }
        let executor = executor.start().await?;
        let client = Client::connect(place.planner, &executor.url()).await?;
        Ok(Self::Switchyard(Box::new(Services { executor, client, traced })))
    }

    /// Applies the work. `again` says that all of it is there already.
    pub(super) async fn apply(&mut self, work: &Work, place: &Place<'_>, again: bool) -> anyhow::Result<Spent> {
        match self {
            Self::Program(who) => {
                let command = command(*who, work, place, again)?;
                run(*who, &command, place.folder).await
            }
            Self::Switchyard(services) => services.apply(work, place, again).await,
        }
    }

    /// Applies the work for a caller who reads nothing before all of it is done. Returns the most memory of the executor at once, in
    /// bytes.
    pub(super) async fn apply_unread(&mut self, work: &Work, place: &Place<'_>) -> anyhow::Result<u64> {
        match self {
            Self::Program(who) => bail!("nobody reads from {who}"),
            Self::Switchyard(services) => services.apply_unread(work, place).await,
        }
    }

    /// Ends whatever stays up.
    pub(super) async fn leave(self) {
        if let Self::Switchyard(services) = self {
            services.executor.stop().await;
        }
    }
}

impl Services {
    async fn apply(&mut self, work: &Work, place: &Place<'_>, again: bool) -> anyhow::Result<Spent> {
        let pid = self.executor.process().id();
        usage::forget_peak(pid);
        let clocks = || (Clock::of(&[pid]), Clock::of(&[place.planner_pid]));
        let before = clocks();
        let Told { seconds, trace_id, clusters, phases } = deploy(&self.client, work, place, again).await?;
        let after = clocks();
        let mut spent = Spent {
            seconds,
            cpu: after.0.since(&before.0),
            planning: after.1.since(&before.1),
            peak: usage::peak(pid),
            clusters,
            phases: Some(phases),
            ..Spent::default()
        };
        if self.traced {
            let jaeger = place.jaeger.context("there is no Jaeger")?;
            // What is there already is left as it is: steps, and no writes (L4).
            let writes = if again { 0 } else { place.clusters.len() };
            let expected = work.objects * (1 + writes);
            let spans = spans(jaeger, &trace_id, expected).await?;
            spent.spans_lost = expected.saturating_sub(spans.len());
            spent.between = between(&spans);
            // Sending the last spans is part of the price.
            spent.cpu = clocks().0.since(&before.0);
        }
        Ok(spent)
    }

    async fn apply_unread(&mut self, work: &Work, place: &Place<'_>) -> anyhow::Result<u64> {
        let pid = self.executor.process().id();
        usage::forget_peak(pid);
        let (request, access) = asked(work, place);
        let plan = self.client.plan(request).await?;
        let events = self.client.execute(plan, access).await?;
        // By a connection of its own: what is not read fills the other one.
        let watcher = Client::connect(place.planner, &self.executor.url()).await?.executor();
        tokio::time::timeout(LIMIT, until_ended(watcher)).await.context("the run did not end")??;
        let peak = usage::peak(pid);
        let outcome = events.finish().await?;
        ensure!(
            outcome.summary.verdict() == v1::Verdict::Succeeded,
            "the run did not succeed: {:?}",
            outcome.summary.counts
        );
        let (results, expected) = (outcome.targets().count(), work.objects * place.clusters.len());
        ensure!(results == expected, "{results} of {expected} results were kept for the caller");
        Ok(peak)
    }
}

/// What is asked of planner and executor.
fn asked(work: &Work, place: &Place<'_>) -> (v1::PlanRequest, Vec<v1::ClusterAccess>) {
    let names: Vec<&str> = place.clusters.iter().map(|(name, ..)| name.as_str()).collect();
    let access = place.clusters.iter().map(|(name, _, text)| client::kubeconfig(name, text.as_str())).collect();
    (client::deploy(work.design(), &names), access)
}

/// Waits until the executor's only run has ended.
async fn until_ended(mut executor: ExecutorServiceClient<Channel>) -> anyhow::Result<()> {
    const LOOK: Duration = Duration::from_millis(100);
    loop {
        let runs = executor.list_runs(v1::ListRunsRequest::default()).await?.into_inner().runs;
        if runs.first().is_some_and(|run| run.finished.is_some()) {
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn command(who: Contestant, work: &Work, place: &Place<'_>, again: bool) -> anyhow::Result<Command> {
    let objects = place.folder.write("objects.json", &work.lines())?;
    let (_, kubeconfig, _) = &place.clusters[0];
    let tool = |tool: Tool| place.tools.command(tool);
    let home = place.folder.path().join("home");
    let mut command = match who {
        Contestant::Floor => {
            let mut command = Command::new(place.floor);
            command.arg(&objects).arg(place.in_flight.to_string()).args(place.clusters.iter().map(|(_, file, _)| file));
            command
        }
        Contestant::Kubectl | Contestant::KubectlDefault => {
            let mut command = tool(Tool::Kubectl)?;
            command.args(["apply", "--kubeconfig"]).arg(kubeconfig).arg("-f").arg(&objects);
            if who == Contestant::Kubectl {
                command.arg("--server-side");
            }
            command
        }
        Contestant::Helm | Contestant::HelmDefault => {
            let chart = place.folder.path().join("chart");
            std::fs::create_dir_all(chart.join("templates"))?;
            std::fs::write(chart.join("Chart.yaml"), "apiVersion: v2\nname: comparison\nversion: 0.0.1\n")?;
            std::fs::write(chart.join("templates/objects.yaml"), work.template())?;
            let mut command = tool(Tool::Helm)?;
            command.arg(if again { "upgrade" } else { "install" }).arg("comparison").arg(chart);
            command.arg("--kubeconfig").arg(kubeconfig).args(["--namespace", &work.namespace]);
            if who == Contestant::Helm {
                command.args(["--qps", "1000000", "--burst-limit", "1000000"]);
            }
            command
        }
        Contestant::Flux | Contestant::FluxDefault => {
            let mut command = tool(Tool::FluxApply)?;
            command.arg("-kubeconfig").arg(kubeconfig).arg("-file").arg(&objects);
            if who == Contestant::Flux {
                command.args(["-qps", "-1", "-concurrency", "16"]);
            }
            command
        }
        Contestant::CliUtils | Contestant::CliUtilsDefault => {
            let mut command = tool(Tool::CliUtilsApply)?;
            command.arg("-kubeconfig").arg(kubeconfig).arg("-file").arg(&objects);
            command.args(["-namespace", &work.namespace]);
            if who == Contestant::CliUtils {
                command.arg("-unlimited");
            }
            command
        }
        Contestant::Switchyard | Contestant::SwitchyardTraced => bail!("{who} is no program"),
    };
    // Caches stay warm from round to round, and nobody's own configuration plays a part.
    command.env("HOME", &home).env_remove("KUBECONFIG");
    for variable in ["XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"] {
        command.env_remove(variable);
    }
    Ok(command)
}

async fn run(who: Contestant, command: &Command, folder: &Folder) -> anyhow::Result<Spent> {
    /// The peak only grows, so what grows in the last moment is all that can be missed.
    const LOOK: Duration = Duration::from_millis(20);
    let log = folder.path().join(format!("{who}.log"));
    std::fs::write(&log, "")?;
    let began = Instant::now();
    let process = Process::start(who.name(), command, &log)?;
    let pid = process.id();
    let ending = process.ended_by_itself(LIMIT);
    tokio::pin!(ending);
    let mut looks = tokio::time::interval(LOOK);
    let mut peak = 0;
    let ended = loop {
        tokio::select! {
            ended = &mut ending => break ended?,
            // Not the largest so far: the process was a shell first, and is another program since.
            _ = looks.tick() => peak = match usage::peak(pid) { 0 => peak, now => now },
        }
    };
    let whole = began.elapsed().as_secs_f64();
    let said = std::fs::read_to_string(&log)?;
    let seconds = said.lines().find_map(|line| line.split_once("seconds=")?.1.trim().parse().ok());
    Ok(Spent { seconds: seconds.unwrap_or(whole), cpu: ended.cpu, peak, ..Spent::default() })
}

/// What a client is told.
struct Told {
    /// From the call of Plan to the summary.
    seconds: f64,
    trace_id: String,
    clusters: BTreeMap<String, f64>,
    phases: Phases,
}

/// Plans and executes, and reads every event.
async fn deploy(client: &Client, work: &Work, place: &Place<'_>, again: bool) -> anyhow::Result<Told> {
    let (request, access) = asked(work, place);

    let began = Instant::now();
    let plan = client.plan(request).await?;
    let now = || began.elapsed().as_secs_f64();
    let mut phases = Phases { planned: now(), ..Phases::default() };
    let mut events = client.execute(plan, access).await?;
    let mut unchanged = 0;
    let mut clusters = BTreeMap::new();
    let mut trace_id = String::new();
    let mut summary = None;
    while let Some(event) = events.next().await? {
        match event.event {
            Some(Event::RunStarted(started)) => {
                phases.started = now();
                trace_id = started.trace_id;
            }
            Some(Event::TargetResult(target)) => {
                phases.last = now();
                if phases.first == 0.0 {
                    phases.first = phases.last;
                }
                unchanged += usize::from(target.change() == v1::Change::Unchanged);
                if let Some(v1::target_result::Target::Cluster(name)) = target.target {
                    clusters.insert(name, phases.last);
                }
            }
            Some(Event::Summary(it)) if it.complete => summary = Some(it),
            _ => {}
        }
    }
    let seconds = now();
    let summary = summary.context("no summary came")?;
    ensure!(summary.verdict() == v1::Verdict::Succeeded, "the run did not succeed: {:?}", summary.counts);
    let expected = if again { work.objects * place.clusters.len() } else { 0 };
    ensure!(unchanged == expected, "{unchanged} of {expected} objects were unchanged");
    Ok(Told { seconds, trace_id, clusters, phases })
}

/// Gathers the spans of steps and of their writes, until all are there or no more come.
async fn spans(jaeger: &Jaeger, trace_id: &str, expected: usize) -> anyhow::Result<Vec<Span>> {
    let mut spans = Vec::new();
    let mut since = Instant::now();
    while spans.len() < expected && since.elapsed() < SPANS {
        // The exporter sends every five seconds by default, so silence of less says nothing.
        tokio::time::sleep(Duration::from_secs(1)).await;
        if let Ok(trace) = jaeger.trace(trace_id).await {
            let is_ours = |span: &Span| span.name.starts_with("step object-") || span.name.starts_with("PATCH");
            let now: Vec<_> = trace.spans.into_iter().filter(is_ours).collect();
            if now.len() > spans.len() {
                (spans, since) = (now, Instant::now());
            }
        }
    }
    Ok(spans)
}

/// Times between writes that came one after another, in seconds.
fn between(spans: &[Span]) -> Vec<f64> {
    let mut writes: Vec<_> = spans.iter().filter(|span| span.name.starts_with("PATCH")).collect();
    writes.sort_by_key(|span| span.start);
    let pairs = writes.windows(2).filter(|pair| pair[0].end <= pair[1].start);
    pairs.map(|pair| (pair[1].start - pair[0].end) as f64 / 1e9).collect()
}
