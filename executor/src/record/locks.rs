//! What keeps two runs of one design off one cluster across executors (D24): a Lease in each cluster, taken before the first
//! write, renewed while the run goes on, and let go of before the summary. What it says of the design's past there is read as it
//! is taken, and what the run adds to that is written down before the run begins (L2).
//!
//! A run that cannot prove that it holds a Lease starts nothing more. What proves it is an answered renewal, for less than the
//! Lease's term from when it was sent; after that the cluster's [`Fence`] is shut, so that nothing is written there even before
//! the run has been told to stop.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::future::{join_all, select_all};
use sha2::{Digest, Sha256};
use switchyard_service::status::capped;
use tokio::{
    sync::Mutex,
    time::{Duration, Instant, sleep},
};
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::cluster::{
    Cluster,
    fence::{self, Fence},
    lease::{self, Claim, HELD_FOR, Kinds, LastRun, Leave, LeftBehind, RENEWAL, RENEWAL_AGAIN, Record, Taken},
};

/// How long taking or letting go of the Leases may take. A cluster that was proven workable a moment ago answers sooner.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longest text that is told of what a Lease says, in bytes.
const MAX_TOLD: usize = 255;

/// Another run that works on the design on a cluster.
#[derive(Debug)]
pub(crate) struct Conflict {
    pub(crate) design: String,
    pub(crate) cluster: String,
    pub(crate) run_id: String,
    /// When the cluster is free at the latest if the other's executor is gone; none if that is this one.
    pub(crate) free_in: Option<Duration>,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { design, cluster, run_id, free_in } = self;
        write!(
            f,
            "design {design} is already being worked on by run {run_id} on cluster {cluster}; wait for it or cancel it"
        )?;
        match free_in {
            Some(free_in) => write!(f, " (if its executor is gone, its lock ends in {free_in:.0?})"),
            None => Ok(()),
        }
    }
}

/// Why the clusters could not be locked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{}", .0.first().map_or_else(String::new, Conflict::to_string))]
    Conflict(Vec<Conflict>),
    #[error("a cluster cannot be locked")]
    Unusable(Vec<(String, String)>),
}

/// Where the Leases lie.
#[derive(Clone, Debug)]
pub(crate) struct Locking {
    pub(crate) namespace: String,
    /// Where Leases are let go of when nobody waits for that.
    pub(crate) tasks: TaskTracker,
    pub(crate) left_behind: LeftBehind,
}

/// What is locked, and for whom.
pub(crate) struct ForRun<'a> {
    /// The design.
    pub(crate) design: &'a str,
    pub(crate) run: LastRun,
    /// Whether the run only removes.
    pub(crate) removes: bool,
    /// For each cluster the kinds that the run may bring there.
    pub(crate) kinds: Vec<Kinds>,
}

/// What is known of a design's past in a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Past {
    /// It was never there.
    Nothing,
    /// It had these kinds there, those of the run at hand among them.
    Kinds(Kinds),
    /// Nobody can tell.
    Unknown,
}

/// The Leases of one run.
pub(crate) struct Locks {
    held: Arc<Vec<Held>>,
    /// What the Leases say of the design, by cluster.
    pub(crate) past: Vec<Past>,
    /// Where there is no lock and should be, and what can be done about it; and what became of the run before.
    pub(crate) warnings: Vec<String>,
    tasks: TaskTracker,
    /// Whether the run has begun: until then it has done nothing.
    has_begun: AtomicBool,
}

struct Held {
    cluster: Arc<Cluster>,
    claim: Claim,
    fence: Arc<Fence>,
    lease: Mutex<State>,
}

/// What is known of a run's Lease.
enum State {
    /// It is the run's, and was seen so last.
    Ours(Taken),
    /// Whether it was taken is not known.
    Unknown,
    /// It was lost to another, or let go of.
    Over,
}

/// Why a renewal did not prove anything.
enum Unproven {
    /// It never will again.
    Lost(String),
    /// The next one may.
    NotNow(String),
}

impl Locking {
    /// Locks all clusters for the run, or none. Credentials without rights to Leases lock nothing: the log and the run say so, and
    /// the runs of this executor are still kept apart. Nor does a removal need a Lease that a webhook keeps from being written which
    /// does not answer: the design may be what brought it (case 286).
    pub(crate) async fn lock(&self, what: ForRun<'_>, clusters: &[Arc<Cluster>]) -> Result<Locks, Error> {
        let ForRun { design, run, removes, kinds } = what;
        let name = format!("switchyard-{}", &hex::encode(Sha256::digest(design))[..16]);
        let claim = |kinds| Claim {
            namespace: self.namespace.clone(),
            name: name.clone(),
            purpose: format!("one run of design {design} at a time"),
            holder: run.run.clone(),
            record: Some(Record { run: run.clone(), kinds }),
            left_behind: self.left_behind.clone(),
        };
        let claims: Vec<_> = clusters.iter().cloned().zip(kinds.into_iter().map(claim)).collect();
        let taking = async move {
            let by = Instant::now() + PATIENCE;
            let taken = claims.into_iter().map(async |(cluster, claim)| {
                // Before the request is sent, so that the server's clock starts no earlier.
                let until = fence::now() + HELD_FOR;
                let taken = claim.take(&cluster, by).await;
                // Before the first object of a new kind.
                let noted = match &taken {
                    Ok(taken) if !removes => claim.note_kinds(&cluster, taken, by).await,
                    Ok(_) | Err(_) => Ok(()),
                };
                (cluster, claim, until, taken, noted)
            });
            let taken = join_all(taken).await;
            let (mut held, mut warnings, mut errors) = (Vec::new(), Vec::new(), Vec::new());
            let mut past = Vec::new();
            for (cluster, claim, until, taken, noted) in taken {
                let hold = |state| {
                    let fence = Arc::new(Fence::open_until(until));
                    let (cluster, claim) = (cluster.clone(), claim.clone());
                    Held { cluster, claim, fence, lease: Mutex::new(state) }
                };
                past.push(match &taken {
                    Ok(taken) => of_the_past(taken, claim.record.as_ref()),
                    Err(_) => Past::Unknown,
                });
                match taken {
                    Ok(taken) => {
                        warnings.extend(taken.before.as_ref().and_then(|before| without_end(&cluster.name, before)));
                        let held_now = hold(State::Ours(taken));
                        cluster.put_behind(held_now.fence.clone());
                        held.push(held_now);
                        errors.extend(noted.err().map(|error| (cluster.name.clone(), not_noted(error))));
                    }
                    Err(lease::Error::Forbidden) => {
                        let warning = without_rights(&cluster.name, &claim.namespace);
                        tracing::warn!(cluster = cluster.name, namespace = claim.namespace, "{warning}");
                        warnings.push(warning);
                    }
                    Err(lease::Error::Barred(webhook)) if removes => {
                        let warning = barred(&cluster.name, &webhook);
                        tracing::warn!(cluster = cluster.name, webhook, "{warning}");
                        warnings.push(warning);
                    }
                    Err(error) => {
                        errors.push((cluster.name.clone(), error.clone()));
                        if matches!(error, lease::Error::Failed(_)) {
                            // It may have been taken though nobody said so; then it is let go of with the others.
                            held.push(hold(State::Unknown));
                        }
                    }
                }
            }
            (held, past, warnings, errors)
        };
        // A task of its own: if nobody waits any longer, what it took is let go of.
        let tasks = self.tasks.clone();
        let taking = self.tasks.spawn(
            async move {
                let (held, past, warnings, errors) = taking.await;
                (Locks { held: Arc::new(held), past, warnings, tasks, has_begun: AtomicBool::new(false) }, errors)
            }
            .in_current_span(),
        );
        let (locks, errors) =
            taking.await.map_err(|error| Error::Unusable(vec![(String::new(), error.to_string())]))?;
        if errors.is_empty() {
            return Ok(locks);
        }
        locks.release(PATIENCE, Leave::NotBegun).await;
        Err(self.refusal(design, errors))
    }

    fn refusal(&self, design: &str, errors: Vec<(String, lease::Error)>) -> Error {
        let (mut unusable, mut conflicts) = (Vec::new(), Vec::new());
        for (cluster, error) in errors {
            let why = match error {
                lease::Error::Held { holder: run_id, free_in } => {
                    conflicts.push(Conflict { design: design.to_owned(), cluster, run_id, free_in: Some(free_in) });
                    continue;
                }
                lease::Error::NoNamespace => format!(
                    "namespace {}, where its Lease should lie, does not exist; create it, or choose another with \
                     --lock-namespace",
                    self.namespace
                ),
                lease::Error::Failed(why) => format!("its Lease cannot be had: {why}"),
                lease::Error::Barred(webhook) => format!(
                    "its Lease cannot be written, because the API server cannot call webhook {webhook}; make its backend answer, \
                     or remove what registers it (undeploying its design needs no Lease)"
                ),
                lease::Error::Forbidden | lease::Error::Gone => continue,
            };
            unusable.push((cluster, why));
        }
        if conflicts.is_empty() { Error::Unusable(unusable) } else { Error::Conflict(conflicts) }
    }
}

impl Locks {
    /// No Leases: for a run that writes nothing, or that other executors need not be kept off.
    pub(crate) fn none(tasks: TaskTracker) -> Self {
        let (held, past, warnings) = (Arc::default(), Vec::new(), Vec::new());
        Self { held, past, warnings, tasks, has_begun: AtomicBool::new(false) }
    }

    /// The run begins: from now on it may have done something.
    pub(crate) fn begun(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
    }

    /// Renews the Leases until one of them can no longer be proven to be ours, and says why. The others are renewed by the next
    /// call.
    pub(crate) async fn lost(&self) -> String {
        let kept = self.held.iter().filter(|held| !held.is_over()).map(|held| Box::pin(held.keep()));
        let kept: Vec<_> = kept.collect();
        if kept.is_empty() {
            return std::future::pending().await;
        }
        select_all(kept).await.0
    }

    /// Lets go of the Leases, in so much time. What cannot be reached is free after its term.
    pub(crate) async fn release(&self, within: Duration, end: Leave) {
        release(&self.held, within, end).await;
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        if !self.held.is_empty() {
            let held = self.held.clone();
            let end = if self.has_begun.load(Ordering::Relaxed) { Leave::Unknown } else { Leave::NotBegun };
            self.tasks.spawn(async move { release(&held, PATIENCE, end).await }.in_current_span());
        }
    }
}

async fn release(held: &[Held], within: Duration, end: Leave) {
    let by = Instant::now() + within.min(PATIENCE);
    join_all(held.iter().map(|held| held.release(end, by))).await;
}

fn of_the_past(taken: &Taken, record: Option<&Record>) -> Past {
    match (&taken.before, record) {
        (Some(_), Some(Record { kinds, .. })) => Past::Kinds(taken.kinds.and(kinds)),
        _ => Past::Nothing,
    }
}

/// L2: what is said of a run before that never recorded its end.
fn without_end(cluster: &str, before: &LastRun) -> Option<String> {
    if before.has_ended() {
        return None;
    }
    let LastRun { run, operation, design_version, start, executor, .. } = before;
    let (operation, cluster) = (operation.to_lowercase(), capped(cluster, MAX_TOLD));
    let [run, design_version, start, executor] =
        [run, design_version, start, executor].map(|text| capped(text, MAX_TOLD));
    Some(format!(
        "on cluster {cluster} the last run of this design, {run} ({operation} of version {design_version}, begun {start} by \
         {executor}), never recorded its end; what it did there may be incomplete"
    ))
}

/// The run may not bring kinds that are not written down: nobody would find their objects again.
fn not_noted(error: lease::Error) -> lease::Error {
    match error {
        lease::Error::Forbidden => {
            lease::Error::Failed("the credentials may not write the design's kinds into it".into())
        }
        error => error,
    }
}

/// Case 286.
fn barred(cluster: &str, webhook: &str) -> String {
    format!(
        "on cluster {cluster} the run has no Lease, because the API server cannot call webhook {webhook}; runs of other executors are \
         not kept off this design there"
    )
}

/// Case 262.
fn without_rights(cluster: &str, namespace: &str) -> String {
    format!(
        "the credentials for cluster {cluster} have no rights to Leases in namespace {namespace}, so runs of other executors are \
         not kept off this design there; grant get, create, patch and delete on leases.coordination.k8s.io in that namespace"
    )
}

impl Held {
    /// Whether it has been found that the Lease may be another's.
    fn is_over(&self) -> bool {
        self.fence.left(fence::now()).is_none()
    }

    /// Renews the Lease for as long as it is proven to be ours; answers why it no longer is.
    async fn keep(&self) -> String {
        let mut trouble = String::new();
        let mut pause = None;
        loop {
            let Some(left) = self.fence.left(fence::now()) else { return self.stale(&trouble) };
            // Counted from the last renewal that was proven, however long this took to be asked for again.
            sleep(pause.take().unwrap_or(left.saturating_sub(HELD_FOR - RENEWAL)).min(left)).await;
            let Some(left) = self.fence.left(fence::now()) else { return self.stale(&trouble) };
            match self.renew(left.min(PATIENCE)).await {
                Ok(()) => trouble.clear(),
                Err(Unproven::NotNow(why)) => {
                    tracing::warn!(cluster = self.cluster.name, why, "the run's Lease could not be renewed");
                    trouble = why;
                    pause = Some(RENEWAL_AGAIN);
                }
                Err(Unproven::Lost(why)) => {
                    self.fence.shut();
                    return why;
                }
            }
        }
    }

    fn stale(&self, trouble: &str) -> String {
        let (cluster, seconds) = (&self.cluster.name, HELD_FOR.as_secs());
        let why = if trouble.is_empty() { String::new() } else { format!(" ({trouble})") };
        format!(
            "its Lease on cluster {cluster} was not renewed for {seconds} s{why}, so another run may have taken over there"
        )
    }

    /// Renews the Lease.
    async fn renew(&self, within: Duration) -> Result<(), Unproven> {
        let Self { cluster, claim, fence, lease: state } = self;
        let mut state = state.lock().await;
        // Else it is being let go of.
        let State::Ours(known) = &*state else { return std::future::pending().await };
        let sent = fence::now();
        match claim.renew(cluster, known, Instant::now() + within).await {
            Ok(renewed) => {
                *state = State::Ours(renewed);
                // Were it shut meanwhile, the next look says so.
                fence.extend(sent + HELD_FOR, fence::now());
                Ok(())
            }
            Err(lease::Error::Held { holder, .. }) => {
                *state = State::Over;
                Err(Unproven::Lost(format!("run {holder} has taken cluster {} over", cluster.name)))
            }
            Err(lease::Error::Gone) => {
                *state = State::Unknown;
                let name = &cluster.name;
                Err(Unproven::Lost(format!(
                    "its Lease on cluster {name} is gone, so another run may have been there since"
                )))
            }
            Err(lease::Error::Failed(why)) => Err(Unproven::NotNow(why)),
            Err(lease::Error::Forbidden) => Err(Unproven::NotNow("the credentials may not write it any more".into())),
            Err(lease::Error::NoNamespace) => Err(Unproven::NotNow("its namespace is gone".into())),
            Err(lease::Error::Barred(webhook)) => {
                Err(Unproven::NotNow(format!("the API server cannot call webhook {webhook}")))
            }
        }
    }

    async fn release(&self, end: Leave, by: Instant) {
        let Self { cluster, claim, fence, lease: state } = self;
        fence.shut();
        let work = async {
            // Waits for a renewal that is on its way.
            match std::mem::replace(&mut *state.lock().await, State::Over) {
                State::Ours(taken) => claim.release(cluster, Some(taken), end, by).await,
                State::Unknown => claim.release(cluster, None, end, by).await,
                State::Over => Ok(()),
            }
        };
        let why = match tokio::time::timeout_at(by, work).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => format!("{error:?}"),
            Err(_) => "there was no time left".into(),
        };
        claim.left_behind.add(&claim.holder);
        tracing::warn!(cluster = cluster.name, why, "the run's Lease could not be let go of; it ends by itself");
    }
}
