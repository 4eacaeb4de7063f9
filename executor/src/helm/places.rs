//! Who may have helm at work: a place for each chart and cluster that is being seen to (case 346).
//!
//! The places of all runs together bound the memory. Those of one run, and of one cluster in it, keep a run whose charts hang
//! from taking all of them. Whoever waits for a place waits in line, and its time has not begun.

use std::sync::Arc;

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::core::target::{ClusterIx, Clusters};

/// Places over all runs. A helm at work takes about 100 MiB, and most of its time it waits for somebody.
pub(super) const ALL: usize = 12;
/// Places of one run.
const OF_RUN: usize = 6;
/// Places of one run for one cluster: a cluster that does not answer leaves room for the others.
const OF_CLUSTER: usize = 4;

/// The places of one run.
pub(crate) struct Places {
    all: Arc<Semaphore>,
    run: Semaphore,
    clusters: Clusters<Semaphore>,
}

/// A place that is taken until the value is dropped.
pub(crate) struct Place<'a>(#[expect(dead_code, reason = "held, never read")] [SemaphorePermit<'a>; 3]);

impl Places {
    pub(super) fn new(all: Arc<Semaphore>, clusters: usize) -> Self {
        let clusters = (0..clusters).map(|_| Semaphore::new(OF_CLUSTER)).collect();
        Self { all, run: Semaphore::new(OF_RUN), clusters }
    }

    /// Waits for a place for work on a cluster. The narrow bound comes first, so nobody waits with a place that others need.
    pub(crate) async fn take(&self, cluster: ClusterIx) -> Place<'_> {
        let mut taken = Vec::with_capacity(3);
        for places in [&self.clusters[cluster], &self.run, &*self.all] {
            taken.push(places.acquire().await.expect("nobody closes it"));
        }
        Place(taken.try_into().expect("there are three"))
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn run_leaves_places_to_others_and_a_cluster_to_other_clusters() {
        let all = Arc::new(Semaphore::new(ALL));
        let (first, second) = (Places::new(all.clone(), 2), Places::new(all, 1));
        let take = |places: &'static Places, cluster| places.take(ClusterIx::from(cluster)).now_or_never();
        let (first, second): (&'static _, &'static _) = (Box::leak(Box::new(first)), Box::leak(Box::new(second)));
        let silent: Vec<_> = (0..20).filter_map(|_| take(first, 0)).collect();
        assert_eq!(silent.len(), OF_CLUSTER);
        let other: Vec<_> = (0..20).filter_map(|_| take(first, 1)).collect();
        assert_eq!(silent.len() + other.len(), OF_RUN);
        assert!(take(second, 0).is_some(), "another run has its place");
        drop(other);
        assert!(take(first, 1).is_some(), "a place is free again");
    }
}
