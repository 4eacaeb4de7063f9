//! One Execute stream from its first message to its last: takes the plan in, proves the clusters, starts the run, and hands
//! on what the run's journal says. The run itself is a task of its own and outlives the stream if it must.

mod follow;
mod start;

use std::sync::Arc;

use switchyard_proto::{
    Kept,
    v1::{ExecuteRequest, ExecuteResponse},
};
use switchyard_service::{
    attributes as common,
    budget::Budget,
    received::Received,
    shutdown::Shutdown,
    status::{self, told},
    telemetry,
    trace::Unparented,
};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::task::TaskTracker;
use tonic::{Code, Status, Streaming};
use tracing::{Instrument, Span};

pub(crate) use self::follow::{End, hand_on};
use self::{follow::follow, start::start};
use crate::{
    adapter::{Adapters, allow::AddressPattern},
    attributes,
    cluster::{access::Access, contents::Everywhere, discovery::Known},
    core::limit::Limits,
    door::{
        incoming::Incoming,
        intake::Accepted,
        refuse,
        runs::{Caller, Runs},
    },
    helm::Helm,
    metrics,
    record::locks::Locking,
};

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
    /// What requests may hold in memory, all together.
    pub(crate) budget: Budget,
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
