//! Hands the events of a run on to its client, and what the client says to the run.

use std::time::Duration;

use switchyard_proto::v1::{CancelledBy, ExecuteRequest, execute_request::Part};
use switchyard_service::{received::Received, shutdown::Shutdown};
use tokio::time::Instant;
use tonic::{Status, Streaming};

use super::{Answers, who_went};
use crate::{
    attributes,
    door::{
        intake, refuse,
        runs::{Caller, Run},
    },
    journal,
};

/// How long a client may read nothing of what waits for it.
const PATIENCE_WITH_READER: Duration = Duration::from_secs(600);

/// How long writes that are in flight at the caller's deadline may take to end before the caller is left without their
/// results (case 113). The run goes on to its end, and WatchRun tells it.
const AFTER_DEADLINE: Duration = Duration::from_secs(1);

/// Hands the run's events on to their end, and whatever the client says to the run.
pub(super) async fn follow(
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
