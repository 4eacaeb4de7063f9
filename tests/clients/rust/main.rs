//! Deploys a design, takes it down, or asks what would happen: `client deploy|undeploy|dry-run DESIGN CLUSTER[=KUBECONFIG]...`
//!
//! PLANNER and EXECUTOR say where the two are. REQUEST_ID names the run: who starts again with it goes on with the same run.

use std::{collections::HashMap, env, fs, process::ExitCode, time::Duration};

use anyhow::{Context as _, bail};
use futures::{StreamExt as _, stream};
use switchyard_proto::v1::{
    self, Cancel, CancelRunRequest, ClusterAccess, ExecuteRequest, ExecuteResponse, OnDisconnect, Operation,
    PlanRequest, RunOptions, Start, Verdict, WatchRunRequest, cluster_access, execute_request::Part,
    execute_response::Event, executor_service_client::ExecutorServiceClient, plan_response,
    planner_service_client::PlannerServiceClient, target_result::Target,
};
use tokio::{signal::ctrl_c, time::sleep};
use tonic::{Code, Request, Status, transport::Channel};
use tonic_types::StatusExt as _;

/// As much as the two send. The default of 4 MiB is too little for large designs.
const MAX_MESSAGE: usize = 16 << 20;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match run(&arguments).await {
        Ok(Verdict::Succeeded) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            println!("{error:#}");
            if let Some(status) = error.downcast_ref::<Status>() {
                status.get_error_details_vec().iter().for_each(|detail| println!("  {detail:?}"));
            }
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: &[String]) -> anyhow::Result<Verdict> {
    let [command, design, clusters @ ..] = arguments else { bail!("want a command, a design and clusters") };
    let request_id = env::var("REQUEST_ID").unwrap_or_else(|_| uuid::Uuid::new_v4().to_string());
    let mut parts = vec![Part::Start(Start { request_id, ..Start::default() })];
    let mut names = Vec::new();
    for cluster in clusters {
        let (name, kubeconfig) = cluster.split_once('=').unwrap_or((cluster, ""));
        names.push(name.to_owned());
        // Without one it is a context of the executor's own kubeconfig.
        if !kubeconfig.is_empty() {
            let text = fs::read_to_string(kubeconfig).with_context(|| kubeconfig.to_owned())?;
            let source = Some(cluster_access::Source::Kubeconfig(text));
            parts.push(Part::Cluster(ClusterAccess { name: name.to_owned(), source }));
        }
    }
    let request = PlanRequest {
        design: Some(v1::Design { source: Some(v1::design::Source::Document(fs::read_to_string(design)?)) }),
        operation: if command == "undeploy" { Operation::Undeploy } else { Operation::Deploy }.into(),
        dry_run: command == "dry-run",
        clusters: names,
        problems_as_parts: true,
        // As bytes, so that what a newer planner says and these protos lack reaches the executor all the same.
        encoded: true,
        // The run goes on when the connection is lost, and we go on reading.
        options: Some(RunOptions { on_disconnect: OnDisconnect::Continue.into(), ..RunOptions::default() }),
        ..PlanRequest::default()
    };
    parts.extend(plan(request).await?);
    let executor = dial("EXECUTOR", "http://localhost:7002")?;
    let executor = ExecutorServiceClient::new(executor).max_decoding_message_size(MAX_MESSAGE);
    Caller { executor, parts, names: HashMap::new(), run_id: String::new(), last: 0, verdict: None }.follow().await
}

fn dial(variable: &str, address: &str) -> anyhow::Result<Channel> {
    let address = env::var(variable).map(|address| format!("http://{address}")).unwrap_or(address.to_owned());
    // A run can be silent for minutes: a connection that is gone shall be noticed all the same.
    let endpoint = Channel::from_shared(address)?.http2_keep_alive_interval(Duration::from_secs(30));
    Ok(endpoint.keep_alive_timeout(Duration::from_secs(10)).connect_lazy())
}

/// Plans, and tells each problem of a design that is refused with its place.
async fn plan(request: PlanRequest) -> anyhow::Result<Vec<Part>> {
    let planner = PlannerServiceClient::new(dial("PLANNER", "http://localhost:7001")?);
    let mut request = Request::new(request);
    request.set_timeout(Duration::from_secs(60));
    let mut answers = planner.max_decoding_message_size(MAX_MESSAGE).plan(request).await?.into_inner();
    let mut parts = Vec::new();
    while let Some(answer) = answers.message().await? {
        match answer.part {
            Some(plan_response::Part::Encoded(part)) => parts.push(Part::Encoded(part)),
            Some(plan_response::Part::Problem(problem)) => {
                let at = problem.at.first().copied().unwrap_or_default();
                println!("{}:{}: {}: {}", at.line, at.column, problem.code, problem.message);
            }
            _ => {}
        }
    }
    Ok(parts)
}

/// What is sent for a run, and what is known of it.
struct Caller {
    executor: ExecutorServiceClient<Channel>,
    parts: Vec<Part>,
    names: HashMap<String, String>,
    run_id: String,
    last: u64,
    verdict: Option<Verdict>,
}

impl Caller {
    /// Reads the run to its end, however often the connection is lost meanwhile.
    async fn follow(mut self) -> anyhow::Result<Verdict> {
        for _ in 0..60 {
            let lost = match self.read().await {
                Ok(()) => Status::unknown("the stream ended before its summary"),
                Err(status) => status,
            };
            if let Some(verdict) = self.verdict {
                return Ok(verdict);
            }
            let Some(wait) = come_again(&lost) else { return Err(lost.into()) };
            println!("after event {}: {}; again in {wait:?}", self.last, lost.message());
            sleep(wait).await;
        }
        bail!("the executor cannot be reached")
    }

    /// Starts the run, or goes on reading it behind the last event that came. Ctrl-C stops the run.
    async fn read(&mut self) -> Result<(), Status> {
        if self.run_id.is_empty() {
            // The stream stays open to this side, so that a cancel can follow.
            let cancel = stream::once(async {
                ctrl_c().await.ok();
                Part::Cancel(Cancel { reason: "Ctrl-C".to_owned() })
            });
            let parts = stream::iter(self.parts.clone()).chain(cancel).map(|part| ExecuteRequest { part: Some(part) });
            let mut events = self.executor.execute(parts).await?.into_inner();
            while let Some(event) = events.message().await? {
                self.take(event);
            }
            return Ok(());
        }
        let request = WatchRunRequest { run_id: self.run_id.clone(), after_sequence: self.last };
        let mut events = self.executor.watch_run(request).await?.into_inner();
        loop {
            tokio::select! {
                answer = events.message() => match answer?.and_then(|answer| answer.event) {
                    Some(event) => self.take(event),
                    None => return Ok(()),
                },
                _ = ctrl_c() => {
                    let request = CancelRunRequest { run_id: self.run_id.clone(), reason: "Ctrl-C".to_owned() };
                    self.executor.cancel_run(request).await?;
                }
            }
        }
    }

    /// Tells one event.
    fn take(&mut self, event: ExecuteResponse) {
        self.last = event.sequence;
        let name = |id: &str| self.names.get(id).cloned().unwrap_or_default();
        match event.event {
            Some(Event::RunStarted(started)) => {
                println!("run {}", started.run_id);
                self.run_id = started.run_id;
            }
            Some(Event::StepStarted(step)) => drop(self.names.insert(step.step_id, step.component)),
            Some(Event::StepProgress(step)) => println!("{} waits for {}", name(&step.step_id), step.waiting_for),
            Some(Event::TargetResult(result)) => {
                let Some(Target::Cluster(place) | Target::AdapterAddress(place)) = &result.target else { return };
                let (outcome, change) = (result.outcome().as_str_name(), result.change().as_str_name());
                let why = result.error.as_ref().map_or("", |error| &error.message);
                println!("{} on {place} {outcome} {change} {why}", name(&result.step_id));
                result.diff.iter().for_each(|diff| println!("  {}: {} -> {}", diff.path, diff.before, diff.after));
            }
            Some(Event::Summary(summary)) => {
                for row in &summary.rows {
                    println!("{} {} {}", row.component, row.outcome().as_str_name(), row.because);
                }
                // A large summary comes in several messages; the last one has the verdict.
                if summary.complete {
                    self.verdict = Some(summary.verdict());
                    println!("{}", summary.verdict().as_str_name());
                }
            }
            // What came to the contract later.
            _ => {}
        }
    }
}

/// When the same call may be made again, if it may.
fn come_again(status: &Status) -> Option<Duration> {
    let details = status.get_error_details();
    let told = details.retry_info().and_then(|info| info.retry_delay);
    // What neither planner nor executor said happened on the way to them.
    let lost = matches!(status.code(), Code::Unavailable | Code::Internal | Code::Unknown);
    told.or_else(|| (lost && details.error_info().is_none()).then_some(Duration::from_secs(1)))
}
