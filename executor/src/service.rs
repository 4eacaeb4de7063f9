//! The gRPC face of the executor.

use std::{pin::Pin, sync::Arc, time::Duration};

use futures::{Stream, StreamExt, stream};
use switchyard_proto::{Kept, serving::executor_service_server::ExecutorService, v1};
use switchyard_service::trace::Unparented;
use tokio::{sync::mpsc, time::Instant};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use tracing::Instrument;

use crate::{
    journal::BATCH,
    refuse,
    session::{Session, Shared},
};

/// Batches of events that wait for the transport. What does not fit stays in the run's journal.
const ANSWERS: usize = 256 / BATCH;

/// Serves `switchyard.v1.ExecutorService`.
#[derive(Clone)]
pub(crate) struct Executor {
    pub(crate) shared: Arc<Shared>,
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl ExecutorService for Executor {
    type ExecuteStream = Answers<Kept<v1::ExecuteResponse>>;
    type WatchRunStream = Answers<v1::WatchRunResponse>;

    async fn execute(
        &self,
        request: Request<Streaming<v1::ExecuteRequest>>,
    ) -> Result<Response<Self::ExecuteStream>, Status> {
        // Answered before the first message is read: a client may wait for headers before it sends (case 108).
        let (answers, batches) = mpsc::channel(ANSWERS);
        let deadline = deadline(request.metadata());
        let unparented = request.extensions().get::<Unparented>().cloned();
        let session = Session { shared: self.shared.clone(), requests: request.into_inner(), answers, deadline };
        self.shared.tasks.spawn(session.conduct(unparented).in_current_span());
        // All of a batch at once, so that the transport sends it in one piece.
        let events = ReceiverStream::new(batches).flat_map(|batch| match batch {
            Ok(events) => stream::iter(events).map(Ok).left_stream(),
            Err(status) => stream::iter([Err(status)]).right_stream(),
        });
        Ok(Response::new(Box::pin(events)))
    }

    async fn watch_run(&self, request: Request<v1::WatchRunRequest>) -> Result<Response<Self::WatchRunStream>, Status> {
        let v1::WatchRunRequest { run_id, after_sequence } = request.into_inner();
        let run = self.shared.runs.find(&run_id).ok_or_else(|| refuse::unknown_run(&run_id))?;
        let reader = run.journal.read(after_sequence);
        let batches = stream::unfold(reader, |mut reader| async move {
            let batch = reader.next().await?;
            Some((batch, reader))
        });
        let events =
            batches.flat_map(stream::iter).map(|event| Ok(v1::WatchRunResponse { event: Some(event.into_inner()) }));
        Ok(Response::new(Box::pin(events)))
    }

    async fn list_runs(
        &self,
        _request: Request<v1::ListRunsRequest>,
    ) -> Result<Response<v1::ListRunsResponse>, Status> {
        let runs = self.shared.runs.list().iter().map(|run| run.info()).collect();
        Ok(Response::new(v1::ListRunsResponse { runs }))
    }

    async fn cancel_run(
        &self,
        request: Request<v1::CancelRunRequest>,
    ) -> Result<Response<v1::CancelRunResponse>, Status> {
        let v1::CancelRunRequest { run_id, reason } = request.into_inner();
        let run = self.shared.runs.find(&run_id).ok_or_else(|| refuse::unknown_run(&run_id))?;
        let reason = if reason.is_empty() { "cancelled by CancelRun".into() } else { reason };
        run.cancel(v1::CancelledBy::Caller, reason).await;
        Ok(Response::new(v1::CancelRunResponse { run: Some(run.info()) }))
    }
}

/// The caller's deadline (`grpc-timeout`, gRPC over HTTP/2). tonic holds it against the handler only, which here returns at
/// once (case 113).
fn deadline(metadata: &tonic::metadata::MetadataMap) -> Option<Instant> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 = number.parse().ok().filter(|_| number.len() <= 8)?;
    let timeout = match unit {
        "H" => Duration::from_secs(number * 3600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    };
    Instant::now().checked_add(timeout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn deadline_is_read_as_grpc_spells_it() {
        let of = |text: &'static str| {
            let mut metadata = tonic::metadata::MetadataMap::new();
            metadata.insert("grpc-timeout", text.parse().unwrap());
            deadline(&metadata).map(|deadline| deadline - Instant::now())
        };
        assert_eq!(of("2S"), Some(Duration::from_secs(2)));
        assert_eq!(of("99999999H"), Some(Duration::from_secs(99_999_999 * 3600)));
        assert_eq!(of("1500m"), Some(Duration::from_millis(1500)));
        for bad in ["", "S", "2", "123456789S", "-1S"] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
