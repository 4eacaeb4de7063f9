//! A client of both programs, as small as one can be: Plan, then Execute with what Plan answered.
//!
//! [`Client::run`] does all of it. The steps in between are open too, for whoever wants to look at a plan, change it,
//! break the protocol or go away in the middle.

use std::fmt;

use anyhow::Context as _;
use futures::{StreamExt as _, stream};
use switchyard_proto::v1::{
    self, Cancel, ClusterAccess, ExecuteRequest, ExecuteResponse, PlanRequest, cluster_access, execute_request::Part,
    executor_service_client::ExecutorServiceClient, planner_service_client::PlannerServiceClient,
};
use tokio::sync::mpsc;
use tonic::{Request, Status, Streaming, transport::Channel};
use uuid::Uuid;

mod outcome;
mod parts;

pub use outcome::Outcome;
pub use parts::PlanParts;

/// Plans and summaries of large designs come near 16 MiB, which is what the programs take by default too.
const MAX_MESSAGE: usize = 16 * 1024 * 1024;

/// Makes a request to deploy a design, given as text, to clusters.
pub fn deploy(document: impl Into<String>, clusters: &[&str]) -> PlanRequest {
    PlanRequest {
        design: Some(v1::Design { source: Some(v1::design::Source::Document(document.into())) }),
        operation: v1::Operation::Deploy.into(),
        clusters: clusters.iter().map(|&name| name.to_owned()).collect(),
        ..PlanRequest::default()
    }
}

/// Says that a cluster is reached by this kubeconfig.
pub fn kubeconfig(cluster: &str, text: impl Into<String>) -> ClusterAccess {
    ClusterAccess { name: cluster.to_owned(), source: Some(cluster_access::Source::Kubeconfig(text.into())) }
}

/// Says that a cluster is reached by this context of the executor's own kubeconfig.
pub fn context(cluster: &str, context: &str) -> ClusterAccess {
    ClusterAccess { name: cluster.to_owned(), source: Some(cluster_access::Source::Context(context.to_owned())) }
}

/// The place in a trace that calls are made from, as W3C `traceparent` has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceParent {
    trace_id: String,
    span_id: String,
}

impl TraceParent {
    /// Begins a trace. Nobody sends the span that it names, so what is called appears as the trace's roots.
    pub fn random() -> Self {
        let mut span_id = Uuid::new_v4().simple().to_string();
        span_id.truncate(16);
        Self { trace_id: Uuid::new_v4().simple().to_string(), span_id }
    }

    /// Returns the trace's id: 32 hex digits.
    pub fn trace_id(&self) -> &str {
        &self.trace_id
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-01", self.trace_id, self.span_id)
    }
}

/// A connection to a planner and to an executor. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Client {
    planner: PlannerServiceClient<Channel>,
    executor: ExecutorServiceClient<Channel>,
    parent: Option<TraceParent>,
}

impl Client {
    /// Connects to both, given as URLs such as `http://127.0.0.1:7001`.
    pub async fn connect(planner: &str, executor: &str) -> anyhow::Result<Self> {
        let dial = async |url: &str| {
            let endpoint = Channel::from_shared(url.to_owned()).with_context(|| format!("{url} is no URL"))?;
            endpoint.connect().await.with_context(|| format!("failed to connect to {url}"))
        };
        Ok(Self {
            planner: PlannerServiceClient::new(dial(planner).await?).max_decoding_message_size(MAX_MESSAGE),
            executor: ExecutorServiceClient::new(dial(executor).await?).max_decoding_message_size(MAX_MESSAGE),
            parent: None,
        })
    }

    /// Makes all calls from this place in a trace. Without it the planner begins one, and the plan carries it on.
    #[must_use]
    pub fn traced(self, parent: TraceParent) -> Self {
        Self { parent: Some(parent), ..self }
    }

    /// Plans, and gathers the plan.
    pub async fn plan(&self, request: PlanRequest) -> Result<PlanParts, Status> {
        let answer = self.planner.clone().plan(self.request(request)).await?;
        PlanParts::gather(answer.into_inner()).await
    }

    /// Sends a whole plan and how its clusters are reached, and keeps the stream open for a cancel.
    pub async fn execute(&self, plan: PlanParts, access: Vec<ClusterAccess>) -> Result<Execution, Status> {
        let access = access.into_iter().map(Part::Cluster);
        let mut parts: Vec<Part> = plan.into_parts().collect();
        // Anywhere before the trailer.
        parts.splice(parts.len().min(1)..parts.len().min(1), access);
        self.open(parts).await
    }

    /// Opens an Execute stream and sends these parts, whatever they are. More can be [sent](Execution::send) later.
    pub async fn open(&self, parts: Vec<Part>) -> Result<Execution, Status> {
        let (messages, later) = mpsc::channel(16);
        let first = stream::iter(parts.into_iter().map(|part| ExecuteRequest { part: Some(part) }));
        let later = stream::unfold(later, |mut later| async move { later.recv().await.map(|next| (next, later)) });
        let answer = self.executor.clone().execute(self.request(first.chain(later))).await?;
        Ok(Execution { messages: Some(messages), events: answer.into_inner(), sequence: 0 })
    }

    /// Plans, executes, and reads everything to the end.
    pub async fn run(&self, request: PlanRequest, access: Vec<ClusterAccess>) -> Result<Outcome, Status> {
        let plan = self.plan(request).await?;
        self.execute(plan, access).await?.finish().await
    }

    /// Returns the executor's own client, for the calls about runs.
    pub fn executor(&self) -> ExecutorServiceClient<Channel> {
        self.executor.clone()
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(parent) = &self.parent {
            let value = parent.to_string().parse().expect("hex digits and dashes are ASCII");
            request.metadata_mut().insert("traceparent", value);
        }
        request
    }
}

/// An Execute stream. Dropping it means going away.
#[derive(Debug)]
pub struct Execution {
    messages: Option<mpsc::Sender<ExecuteRequest>>,
    events: Streaming<ExecuteResponse>,
    sequence: u64,
}

impl Execution {
    /// Reads the next event; none after the last. Events that are missing in between are an error (DATA_LOSS).
    pub async fn next(&mut self) -> Result<Option<ExecuteResponse>, Status> {
        let event = self.events.message().await?;
        if let Some(event) = &event {
            self.sequence += 1;
            if event.sequence != self.sequence {
                return Err(Status::data_loss(format!(
                    "event {} came where {} was due",
                    event.sequence, self.sequence
                )));
            }
        }
        Ok(event)
    }

    /// Sends one more part.
    pub async fn send(&mut self, part: Part) {
        if let Some(messages) = &self.messages {
            // Refused only when the stream has ended, which whoever reads the events is told.
            messages.send(ExecuteRequest { part: Some(part) }).await.ok();
        }
    }

    /// Stops the run.
    pub async fn cancel(&mut self, reason: &str) {
        self.send(Part::Cancel(Cancel { reason: reason.to_owned() })).await;
    }

    /// Says that nothing more will be sent. The run goes on.
    pub fn close(&mut self) {
        self.messages = None;
    }

    /// Reads everything to the end. A stream without a complete summary was cut short and is an error (DATA_LOSS).
    pub async fn finish(mut self) -> Result<Outcome, Status> {
        let mut outcome = Outcome::default();
        while let Some(event) = self.next().await? {
            outcome.take(event);
        }
        outcome.whole()
    }
}
