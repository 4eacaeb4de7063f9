//! One at a time works on a chart on a cluster, in whatever namespace (case 345).
//!
//! Helm only keeps two from one release, and two releases of one chart would race for what it has for the whole cluster. Runs of
//! this process wait for each other; those of other executors are kept off by a Lease beside that of the run.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use tokio::{
    sync::OwnedMutexGuard,
    time::{Duration, Instant, sleep},
};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::Instrument as _;
use uuid::Uuid;

use super::{Charts, Key};
use crate::{
    answers::failure::{Failure, Reason},
    cluster::{
        Cluster,
        lease::{self, Claim, Leave, RENEWAL, Taken},
    },
    record::locks::Locking,
};

/// How long one request for the Lease may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause before a Lease that another has is asked for again.
const PAUSE: Duration = Duration::from_secs(1);

/// The right to work on a chart, until the value is dropped.
pub(super) struct Turn {
    _here: OwnedMutexGuard<()>,
    /// Lets go of the Lease; none where there are no Leases.
    _everywhere: Option<DropGuard>,
}

impl Charts {
    /// Waits until nobody else works on the chart on the cluster.
    pub(super) async fn alone(&self, key: &Key, cluster: &Arc<Cluster>, deadline: Instant) -> Result<Turn, Failure> {
        let given = deadline.saturating_duration_since(Instant::now());
        let busy = |who: &str| {
            let text = format!(
                "chart {} was still being worked on by {who} on cluster {} after {given:.1?}; try again when that has ended",
                key.shown(),
                cluster.name
            );
            Failure::new(Reason::ChartPending, text)
        };
        let name = key.identity().name;
        let here = self.helm.alone([cluster.server.clone(), name.clone()], deadline).await;
        let here = here.ok_or_else(|| busy("another run or for another namespace"))?;
        let everywhere = match &self.locking {
            Some(locking) => lock(locking, &name, cluster, deadline).await.map_err(|()| busy("another executor"))?,
            None => None,
        };
        Ok(Turn { _here: here, _everywhere: everywhere })
    }
}

/// Takes the Lease of a chart and renews it until the answer is dropped. Where that cannot be had, other executors are not kept
/// off. An error means that another has it. Whoever stops waiting may leave one behind, which is free after its term.
async fn lock(
    locking: &Locking,
    chart: &str,
    cluster: &Arc<Cluster>,
    deadline: Instant,
) -> Result<Option<DropGuard>, ()> {
    let claim = Claim {
        namespace: locking.namespace.clone(),
        name: format!("switchyard-chart-{}", &hex::encode(Sha256::digest(chart))[..16]),
        purpose: format!("one at a time works on chart {chart}"),
        holder: Uuid::new_v4().to_string(),
        record: None,
        left_behind: locking.left_behind.clone(),
    };
    let taken = loop {
        match claim.take(cluster, deadline.min(Instant::now() + PATIENCE)).await {
            Ok(taken) => break taken,
            Err(lease::Error::Held { free_in, .. }) if Instant::now() + PAUSE < deadline => {
                sleep(free_in.min(PAUSE)).await;
            }
            Err(lease::Error::Held { .. }) => return Err(()),
            Err(error) => {
                tracing::warn!(cluster = cluster.name, chart, ?error, "other executors cannot be kept off a chart");
                return Ok(None);
            }
        }
    };
    let end = CancellationToken::new();
    let guard = end.clone().drop_guard();
    locking.tasks.spawn(keep(claim, cluster.clone(), taken, end).in_current_span());
    Ok(Some(guard))
}

/// Renews the Lease until `end`, and lets go of it then.
async fn keep(claim: Claim, cluster: Arc<Cluster>, mut taken: Taken, end: CancellationToken) {
    while end.run_until_cancelled(sleep(RENEWAL)).await.is_some() {
        match claim.renew(&cluster, &taken, Instant::now() + PATIENCE).await {
            Ok(renewed) => taken = renewed,
            // Helm is at work and is not to be cut short; its own bounds end it.
            Err(error) => tracing::warn!(cluster = cluster.name, ?error, "the Lease of a chart could not be renewed"),
        }
    }
    if let Err(error) = claim.release(&cluster, Some(taken), Leave::AllGone, Instant::now() + PATIENCE).await {
        tracing::warn!(
            cluster = cluster.name,
            ?error,
            "the Lease of a chart could not be let go of; it ends by itself"
        );
    }
}
