//! The plans that are coming in: how many at once, how much they may hold, and how long they may take (cases 247, 323).

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use switchyard_proto::v1::ExecuteRequest;
use switchyard_service::{budget::Budget, received::Received};
use tokio::time::{Instant, timeout_at};
use tonic::{Status, Streaming};

use crate::door::{
    intake::{self, Accepted, Intake},
    refuse,
};

/// How long a stream may be silent before its plan is complete. Long enough for a person who types.
const SILENCE: Duration = Duration::from_secs(300);
/// How long it may be silent while [`CROWD`] plans or more are coming in.
const SILENCE_IN_CROWD: Duration = Duration::from_secs(10);
/// How many plans that are coming in are a crowd. A plan takes milliseconds to come in from a program.
const CROWD: usize = 64;
/// How many plans may come in at once.
const MOST: usize = 1024;
/// How often a silent stream is looked at again.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The plans that are coming in.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) budget: Budget,
    /// Bytes that one plan may hold.
    pub(crate) max_plan_bytes: usize,
    /// How long a plan may take from its first message to its trailer.
    pub(crate) timeout: Duration,
    number: AtomicUsize,
}

/// A place among the plans that are coming in.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Incoming {
    pub(crate) fn new(budget: Budget, max_plan_bytes: usize, timeout: Duration) -> Self {
        Self { budget, max_plan_bytes, timeout, number: AtomicUsize::new(0) }
    }

    /// Reads messages until the plan is whole. `deadline` is the caller's own.
    pub(crate) async fn receive(
        &self,
        requests: &mut Streaming<ExecuteRequest>,
        waiting: Option<&Received>,
        deadline: Option<Instant>,
    ) -> Result<Accepted, Status> {
        let _place = self.enter()?;
        let mut intake = Intake::new(self.budget.share(self.max_plan_bytes));
        let end = Instant::now() + self.timeout;
        loop {
            let message = self.next(requests, end, deadline).await?;
            if let Some(waiting) = waiting {
                waiting.taken_out();
            }
            let Some(message) = message else { return Err(refuse::intake(&intake.cut_short())) };
            match intake.take(message.part) {
                Ok(None) => {}
                Ok(Some(accepted)) => return Ok(accepted),
                Err(error) => return Err(refuse::intake(&error)),
            }
        }
    }

    fn enter(&self) -> Result<Place<'_>, Status> {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let place = Place(&self.number);
        if number < MOST { Ok(place) } else { Err(refuse::too_many_plans(MOST)) }
    }

    /// How long a stream may be silent at the moment.
    fn patience(&self) -> Duration {
        if self.number.load(Ordering::Relaxed) < CROWD { SILENCE } else { SILENCE_IN_CROWD }
    }

    /// The next message; none at the end of the stream.
    async fn next(
        &self,
        requests: &mut Streaming<ExecuteRequest>,
        end: Instant,
        deadline: Option<Instant>,
    ) -> Result<Option<ExecuteRequest>, Status> {
        let since = Instant::now();
        loop {
            let look = [Some(end), deadline, Some(Instant::now() + LOOK_EVERY)];
            let look = look.into_iter().flatten().min().unwrap_or(end);
            if let Ok(message) = timeout_at(look, requests.message()).await {
                return message;
            }
            let now = Instant::now();
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Err(refuse::late("the plan is not complete and nothing was started"));
            }
            let patience = self.patience();
            let late = if now >= end {
                format!("it took longer than {:?} to come (--plan-timeout)", self.timeout)
            } else if now >= since + patience {
                format!("nothing came for {} s and the plan is not complete", patience.as_secs())
            } else {
                continue;
            };
            return Err(refuse::intake(&intake::Error::Incomplete(late)));
        }
    }
}
