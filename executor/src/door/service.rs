//! The gRPC face of the executor.

use std::{pin::Pin, sync::Arc};

use futures::{Stream, StreamExt, TryStreamExt, stream};
use switchyard_proto::{Kept, KeptWatchRunResponse, serving::executor_service_server::ExecutorService, v1};
use switchyard_service::{received::Received, rpc, trace::Unparented};
use tokio::{sync::mpsc, time::Instant};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use tracing::Instrument;

use crate::{
    door::{
        refuse, runs,
        session::{End, Session, Shared, hand_on},
    },
    journal::{BATCH, fit::MAX_LISTED},
};

/// Batches of events that wait for the transport. What does not fit stays in the run's journal.
const ANSWERS: usize = 256 / BATCH;

/// Serves `switchyard.v1.ExecutorService`.
#[derive(Clone)]
pub(crate) struct Executor {
    pub(crate) shared: Arc<Shared>,
    /// What this executor is, but for what may change.
    pub(crate) capabilities: v1::ExecutorServiceGetCapabilitiesResponse,
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl ExecutorService for Executor {
    type ExecuteStream = Answers<Kept<v1::ExecuteResponse>>;
    type WatchRunStream = Answers<KeptWatchRunResponse>;

    async fn execute(
        &self,
        request: Request<Streaming<v1::ExecuteRequest>>,
    ) -> Result<Response<Self::ExecuteStream>, Status> {
        // Answered before the first message is read: a client may wait for headers before it sends (case 108).
        let (answers, batches) = mpsc::channel(ANSWERS);
        let deadline = deadline(request.metadata());
        let unparented = request.extensions().get::<Unparented>().cloned();
        let waiting = request.extensions().get::<Received>().cloned();
        let requests = request.into_inner();
        let session = Session { shared: self.shared.clone(), requests, waiting, answers, deadline };
        self.shared.tasks.spawn(session.conduct(unparented).in_current_span());
        Ok(Response::new(Box::pin(one_by_one(batches))))
    }

    async fn watch_run(&self, request: Request<v1::WatchRunRequest>) -> Result<Response<Self::WatchRunStream>, Status> {
        let v1::WatchRunRequest { run_id, after_sequence } = request.into_inner();
        let run = self.shared.runs.find(&run_id).ok_or_else(|| refuse::unknown_run(&run_id))?;
        let (answers, batches) = mpsc::channel(ANSWERS);
        let reader = run.journal.read(after_sequence);
        let beyond = || refuse::unknown_sequence(&run_id, after_sequence, run.journal.last_sequence());
        let reader = reader.ok_or_else(beyond)?;
        let reading = async move {
            tokio::select! {
                end = hand_on(reader, &answers) => match end {
                    End::Complete => {}
                    End::Broken => _ = answers.send(Err(refuse::broken_run(&run_id))).await,
                    End::Stuck => tracing::warn!(run_id, "who watches the run stopped reading; the stream is cut"),
                },
                () = answers.closed() => {}
            }
        };
        self.shared.tasks.spawn(reading.in_current_span());
        let events = one_by_one(batches).map_ok(|event| KeptWatchRunResponse { event: Some(event) });
        Ok(Response::new(Box::pin(events)))
    }

    async fn list_runs(&self, request: Request<v1::ListRunsRequest>) -> Result<Response<v1::ListRunsResponse>, Status> {
        let page = runs::page(&self.shared.runs.list(), request.get_ref());
        page.map(Response::new).map_err(|(field, what)| refuse::request(field, what))
    }

    async fn get_run(&self, request: Request<v1::GetRunRequest>) -> Result<Response<v1::GetRunResponse>, Status> {
        let v1::GetRunRequest { run_id } = request.into_inner();
        let run = self.shared.runs.find(&run_id).ok_or_else(|| refuse::unknown_run(&run_id))?;
        let (header, summary) = (run.header(), run.journal.summary());
        Ok(Response::new(v1::GetRunResponse { run: Some(run.info(MAX_LISTED)), header, summary }))
    }

    async fn get_capabilities(
        &self,
        _: Request<v1::ExecutorServiceGetCapabilitiesRequest>,
    ) -> Result<Response<v1::ExecutorServiceGetCapabilitiesResponse>, Status> {
        let helm = self.shared.helm.clone();
        let has_helm = tokio::task::spawn_blocking(move || helm.is_there()).await.unwrap_or(false);
        Ok(Response::new(v1::ExecutorServiceGetCapabilitiesResponse { has_helm, ..self.capabilities.clone() }))
    }

    async fn cancel_run(
        &self,
        request: Request<v1::CancelRunRequest>,
    ) -> Result<Response<v1::CancelRunResponse>, Status> {
        let v1::CancelRunRequest { run_id, reason } = request.into_inner();
        let run = self.shared.runs.find(&run_id).ok_or_else(|| refuse::unknown_run(&run_id))?;
        let reason = if reason.is_empty() { "cancelled by CancelRun".into() } else { reason };
        run.cancel(v1::CancelledBy::Caller, reason).await;
        Ok(Response::new(v1::CancelRunResponse { run: Some(run.info(MAX_LISTED)) }))
    }
}

/// The events of batches, all of a batch at once, so that the transport sends it in one piece.
fn one_by_one(
    batches: mpsc::Receiver<Result<Vec<Kept<v1::ExecuteResponse>>, Status>>,
) -> impl Stream<Item = Result<Kept<v1::ExecuteResponse>, Status>> {
    ReceiverStream::new(batches).flat_map(|batch| match batch {
        Ok(events) => stream::iter(events).map(Ok).left_stream(),
        Err(status) => stream::iter([Err(status)]).right_stream(),
    })
}

/// The caller's deadline. The guard holds it against the handler only, which here returns at once (case 113).
fn deadline(metadata: &tonic::metadata::MetadataMap) -> Option<Instant> {
    Instant::now().checked_add(rpc::timeout(metadata.as_ref())?)
}
