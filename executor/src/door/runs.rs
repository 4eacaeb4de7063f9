//! The runs of this executor: which go on, which may begin, and the events of those that ended (WatchRun, D24).

mod page;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use prost::Message;
use prost_types::Timestamp;
use switchyard_proto::{Kept, v1};
use switchyard_service::{budget::Budget, status::capped};
use tokio::sync::mpsc;

use crate::{
    core::plan::{self, Plan},
    in_use::InUse,
    journal::{Journal, fit::listed},
    record::locks::Conflict,
    report::Finished,
    run::Control,
};

pub(crate) use self::page::page;

/// Finished runs that are kept.
const KEPT_RUNS: usize = 100;
/// How long they are kept.
const KEPT_FOR: Duration = Duration::from_secs(60 * 60);
/// Bytes of the events of finished runs that are kept, over all of them (case 248).
const KEPT_BYTES: usize = 64 * 1024 * 1024;
/// Longest reason for a cancel, in bytes: everything that is not attempted repeats it.
const MAX_REASON: usize = 256;
/// What a run takes beside what it is told to be, in bytes.
const OVERHEAD: usize = size_of::<Run>() + 512;

/// Why a run may not begin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{}", .0.first().map_or_else(String::new, Conflict::to_string))]
    Conflict(Vec<Conflict>),
    #[error("{0} runs go on, as many as this executor takes; try again when one has ended")]
    TooMany(usize),
}

/// All runs of this process.
pub(crate) struct Runs {
    most: usize,
    budget: Budget,
    runs: Mutex<BTreeMap<u64, Arc<Run>>>,
    /// Request ids whose run is being looked for or started.
    turns: InUse<String, tokio::sync::Mutex<()>>,
}

/// A run that is to begin.
pub(crate) struct Entry<'a> {
    pub(crate) id: String,
    pub(crate) plan: &'a Plan,
    /// URLs of its clusters, in the plan's order.
    pub(crate) servers: &'a [String],
    pub(crate) trace_id: String,
    /// What its caller calls it.
    pub(crate) start: v1::Start,
    pub(crate) header: v1::PlanHeader,
}

/// One run.
pub(crate) struct Run {
    number: u64,
    pub(crate) id: String,
    pub(crate) trace_id: String,
    /// Empty when the caller gave none.
    request_id: String,
    pub(crate) labels: std::collections::HashMap<String, String>,
    pub(crate) plan_id: String,
    header: Kept<v1::PlanHeader>,
    goes_on_without_client: bool,
    /// Execute streams that read it.
    callers: AtomicUsize,
    design: v1::DesignRef,
    clusters: Vec<String>,
    /// API servers that the run changes, none in a dry run.
    servers: Vec<String>,
    operation: v1::Operation,
    dry_run: bool,
    started: SystemTime,
    pub(crate) journal: Arc<Journal>,
    control: mpsc::Sender<Control>,
    ended: Mutex<Option<(SystemTime, Instant, v1::Verdict)>>,
}

impl Runs {
    /// Room for `most` runs at once, whose events draw from `budget`.
    pub(crate) fn new(most: usize, budget: Budget) -> Self {
        Self { most, budget, runs: Mutex::default(), turns: InUse::default() }
    }

    /// Waits until nobody else looks for the run of this request id or starts it.
    pub(crate) async fn turn(&self, request_id: &str) -> tokio::sync::OwnedMutexGuard<()> {
        self.turns.get(request_id.to_owned(), Default::default).lock_owned().await
    }

    /// The run that a request id stands for, if it goes on or is still kept.
    pub(crate) fn requested(&self, request_id: &str) -> Option<Arc<Run>> {
        let mut runs = self.runs();
        evict(&mut runs);
        runs.values().find(|run| run.request_id == request_id).cloned()
    }

    /// Enters a run, unless another run of the same design works on one of its clusters.
    pub(crate) fn begin(&self, entry: Entry<'_>) -> Result<(Arc<Run>, mpsc::Receiver<Control>), Error> {
        let Entry { id, plan, servers, trace_id, start, header } = entry;
        let mut runs = self.runs();
        evict(&mut runs);
        let going = runs.values().filter(|run| run.is_going());
        if going.clone().count() >= self.most {
            return Err(Error::TooMany(self.most));
        }
        let design = plan.design_key();
        let others: Vec<_> = going.filter(|run| !plan.dry_run && !run.dry_run && run.design_key() == design).collect();
        let conflicts = plan.clusters.iter().zip(servers).filter_map(|(cluster, server)| {
            let other = others.iter().find(|run| run.servers.contains(server))?;
            let (cluster, run_id) = (cluster.clone(), other.id.clone());
            Some(Conflict { design: design.into(), cluster, run_id, free_in: None })
        });
        let conflicts: Vec<_> = conflicts.collect();
        if !conflicts.is_empty() {
            return Err(Error::Conflict(conflicts));
        }
        // Bounded: besides cancels only "written" arrives here, which may be dropped.
        let (control, controls) = mpsc::channel(1024);
        let number = runs.last_key_value().map_or(1, |(number, _)| number + 1);
        let header = Kept::from(&header);
        let names: usize = plan.clusters.iter().chain(servers).map(|name| name.len() + size_of::<String>()).sum();
        let mut share = self.budget.share(0);
        // Kept as long as the run's events, so counted with them.
        share.take_anyway(OVERHEAD + start.encoded_len() + header.encoded_len() + names);
        let run = Arc::new(Run {
            number,
            id,
            trace_id,
            request_id: start.request_id,
            labels: start.labels,
            header,
            goes_on_without_client: plan.options.goes_on_without_client,
            callers: AtomicUsize::new(0),
            plan_id: plan.id.clone(),
            design: plan.design.clone(),
            clusters: plan.clusters.raw.clone(),
            servers: if plan.dry_run { Vec::new() } else { servers.to_vec() },
            operation: plan.operation,
            dry_run: plan.dry_run,
            started: SystemTime::now(),
            journal: Journal::new(share),
            control,
            ended: Mutex::default(),
        });
        runs.insert(number, run.clone());
        Ok((run, controls))
    }

    /// The run of that id, if it goes on or is still kept.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<Run>> {
        let mut runs = self.runs();
        evict(&mut runs);
        runs.values().find(|run| run.id == id).cloned()
    }

    /// All runs, newest first.
    pub(crate) fn list(&self) -> Vec<Arc<Run>> {
        let mut runs = self.runs();
        evict(&mut runs);
        runs.values().rev().cloned().collect()
    }

    fn runs(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Run>>> {
        self.runs.lock().expect("nothing panics while it holds the lock")
    }
}

fn evict(runs: &mut BTreeMap<u64, Arc<Run>>) {
    let (mut kept, mut bytes) = (0, 0);
    let mut gone = Vec::new();
    for run in runs.values().rev() {
        let ended = *run.ended();
        let Some((_, ended, _)) = ended else { continue };
        kept += 1;
        bytes += run.journal.bytes();
        if kept > KEPT_RUNS || bytes > KEPT_BYTES || ended.elapsed() > KEPT_FOR {
            gone.push(run.number);
        }
    }
    for number in gone {
        runs.remove(&number);
    }
}

/// An Execute stream that is told of a run. If it is dropped its client has gone away, which stops a run that is not to go on
/// without one.
pub(crate) struct Caller {
    pub(crate) run: Arc<Run>,
    has_left: bool,
}

impl Caller {
    pub(crate) fn of(run: Arc<Run>) -> Self {
        run.callers.fetch_add(1, Ordering::SeqCst);
        Self { run, has_left: false }
    }

    /// Whether the run goes on when this stream ends.
    pub(crate) fn leaves_it_going(&self) -> bool {
        self.run.goes_on_without_client || self.run.callers.load(Ordering::SeqCst) > 1
    }

    /// Ends the stream without a consequence for the run.
    pub(crate) fn leave(mut self) {
        self.has_left = true;
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let others = self.run.callers.fetch_sub(1, Ordering::SeqCst) - 1;
        if self.has_left || self.run.goes_on_without_client || others > 0 {
            return;
        }
        let run = self.run.clone();
        tokio::spawn(async move { run.cancel(v1::CancelledBy::Disconnect, "the client went away").await });
    }
}

impl Run {
    /// The header of its plan.
    pub(crate) fn header(&self) -> Option<v1::PlanHeader> {
        self.header.message().ok()
    }

    /// Asks the run to start nothing more. Harmless when it has ended.
    pub(crate) async fn cancel(&self, by: v1::CancelledBy, reason: impl Into<String>) {
        let reason: String = reason.into();
        let reason = capped(&reason, MAX_REASON);
        self.control.send(Control::Cancel { by, reason }).await.ok();
    }

    /// Asks the run for its account now, whatever is in flight.
    pub(crate) async fn abandon(&self) {
        self.control.send(Control::Abandon).await.ok();
    }

    /// Notes that the run has ended. A run that ended without an account of itself (a panic) has no verdict.
    pub(crate) fn end(&self, finished: Option<Finished>) {
        let verdict = finished.map_or(v1::Verdict::Unspecified, |finished| finished.verdict);
        *self.ended() = Some((SystemTime::now(), Instant::now(), verdict));
        self.journal.close();
    }

    /// The run as it is told, with the names of its first clusters.
    pub(crate) fn info(&self, most_clusters: usize) -> v1::RunInfo {
        let ended = *self.ended();
        v1::RunInfo {
            run_id: self.id.clone(),
            plan_id: self.plan_id.clone(),
            design: Some(self.design.clone()),
            clusters: listed(&self.clusters, most_clusters),
            operation: self.operation.into(),
            dry_run: self.dry_run,
            started: Some(Timestamp::from(self.started)),
            finished: ended.map(|(at, ..)| Timestamp::from(at)),
            verdict: ended.map_or(v1::Verdict::Unspecified, |(_, _, verdict)| verdict).into(),
            last_sequence: self.journal.last_sequence(),
            trace_id: self.trace_id.clone(),
            labels: self.labels.clone(),
        }
    }

    fn design_key(&self) -> &str {
        plan::design_key(&self.design, &self.plan_id)
    }

    fn is_going(&self) -> bool {
        self.ended().is_none()
    }

    fn ended(&self) -> MutexGuard<'_, Option<(SystemTime, Instant, v1::Verdict)>> {
        self.ended.lock().expect("nothing panics while it holds the lock")
    }
}
