//! What keeps two runs of one design off one cluster across executors (D24): a Lease in each cluster, taken before the first
//! write, renewed while the run goes on, and let go of before the summary.

use std::sync::Arc;

use futures::future::join_all;
use sha2::{Digest, Sha256};
use tokio::{
    sync::Mutex,
    time::{Duration, Instant, sleep},
};
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::cluster::{
    Cluster,
    lease::{self, Claim, RENEWAL},
};

/// How long taking or letting go of the Leases may take. A cluster that was proven workable a moment ago answers sooner.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why the clusters could not be locked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(
        "design {design} is already being worked on by run {run_id} on cluster {cluster}; wait for it or cancel it (if its \
         executor is gone, its lock ends in {free_in:.0?})"
    )]
    Conflict { design: String, cluster: String, run_id: String, free_in: Duration },
    #[error("a cluster cannot be locked")]
    Unusable(Vec<(String, String)>),
}

/// Where the Leases lie.
#[derive(Clone, Debug)]
pub(crate) struct Locking {
    pub(crate) namespace: String,
    /// Where Leases are let go of when nobody waits for that.
    pub(crate) tasks: TaskTracker,
}

/// The Leases of one run.
pub(crate) struct Locks {
    held: Arc<Vec<Held>>,
    tasks: TaskTracker,
}

struct Held {
    cluster: Arc<Cluster>,
    claim: Claim,
    /// The Lease's resource version; none once it was lost or let go of.
    version: Mutex<Option<String>>,
}

impl Locking {
    /// Locks all clusters for the run, or none. Credentials that may not touch Leases lock nothing: the log says so, and the
    /// runs of this executor are still kept apart.
    pub(crate) async fn lock(&self, design: &str, run_id: &str, clusters: &[Arc<Cluster>]) -> Result<Locks, Error> {
        let name = format!("switchyard-{}", &hex::encode(Sha256::digest(design))[..16]);
        let claim = Claim {
            namespace: self.namespace.clone(),
            name,
            purpose: format!("one run of design {design} at a time"),
            holder: run_id.to_owned(),
        };
        let clusters = clusters.to_vec();
        let taking = async move {
            let by = Instant::now() + PATIENCE;
            let taken = clusters.iter().map(async |cluster| (cluster, claim.take(cluster, by).await));
            let taken = join_all(taken).await;
            let (mut held, mut errors) = (Vec::new(), Vec::new());
            for (cluster, taken) in taken {
                match taken {
                    Ok(version) => held.push(Held {
                        cluster: cluster.clone(),
                        claim: claim.clone(),
                        version: Mutex::new(Some(version)),
                    }),
                    Err(lease::Error::Forbidden) => tracing::warn!(
                        cluster = cluster.name,
                        namespace = claim.namespace,
                        "the credentials may not touch Leases there, so runs of other executors are not kept off"
                    ),
                    Err(error) => errors.push((cluster.name.clone(), error)),
                }
            }
            (held, errors)
        };
        // A task of its own: if nobody waits any longer, what it took is let go of.
        let tasks = self.tasks.clone();
        let taking = self.tasks.spawn(
            async move {
                let (held, errors) = taking.await;
                (Locks { held: Arc::new(held), tasks }, errors)
            }
            .in_current_span(),
        );
        let (locks, errors) =
            taking.await.map_err(|error| Error::Unusable(vec![(String::new(), error.to_string())]))?;
        if errors.is_empty() {
            return Ok(locks);
        }
        locks.release().await;
        Err(self.refusal(design, errors))
    }

    fn refusal(&self, design: &str, errors: Vec<(String, lease::Error)>) -> Error {
        let mut unusable = Vec::new();
        for (cluster, error) in errors {
            let why = match error {
                lease::Error::Held { holder: run_id, free_in } => {
                    return Error::Conflict { design: design.to_owned(), cluster, run_id, free_in };
                }
                lease::Error::NoNamespace => format!(
                    "namespace {}, where its Lease should lie, does not exist; create it, or choose another with \
                     --lock-namespace",
                    self.namespace
                ),
                lease::Error::Failed(why) => format!("its Lease cannot be had: {why}"),
                lease::Error::Forbidden => continue,
            };
            unusable.push((cluster, why));
        }
        Error::Unusable(unusable)
    }
}

impl Locks {
    /// No Leases: for a run that writes nothing, or that other executors need not be kept off.
    pub(crate) fn none(tasks: TaskTracker) -> Self {
        Self { held: Arc::default(), tasks }
    }

    /// Renews the Leases until another has taken one over, and answers who.
    pub(crate) async fn lost(&self) -> String {
        loop {
            sleep(RENEWAL).await;
            let renewals = join_all(self.held.iter().map(Held::renew)).await;
            if let Some(reason) = renewals.into_iter().flatten().next() {
                return reason;
            }
        }
    }

    /// Lets go of the Leases. What cannot be reached is free after its term.
    pub(crate) async fn release(&self) {
        release(&self.held).await;
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        if !self.held.is_empty() {
            let held = self.held.clone();
            self.tasks.spawn(async move { release(&held).await }.in_current_span());
        }
    }
}

async fn release(held: &[Held]) {
    join_all(held.iter().map(Held::release)).await;
}

impl Held {
    /// Renews the Lease; answers why it was lost, if it was.
    async fn renew(&self) -> Option<String> {
        let mut version = self.version.lock().await;
        version.as_ref()?;
        let Self { cluster, claim, .. } = self;
        match claim.renew(cluster, Instant::now() + PATIENCE).await {
            Ok(renewed) => *version = Some(renewed),
            Err(lease::Error::Held { holder, .. }) => {
                *version = None;
                return Some(format!("run {holder} has taken cluster {} over", cluster.name));
            }
            // As long as the cluster cannot be reached nothing is written either; the next renewal tells.
            Err(error) => tracing::warn!(cluster = cluster.name, ?error, "the run's Lease could not be renewed"),
        }
        None
    }

    async fn release(&self) {
        let Some(version) = self.version.lock().await.take() else { return };
        let Self { cluster, claim, .. } = self;
        if let Err(error) = claim.release(cluster, &version, Instant::now() + PATIENCE).await {
            tracing::warn!(cluster = cluster.name, ?error, "the run's Lease could not be let go of; it ends by itself");
        }
    }
}
