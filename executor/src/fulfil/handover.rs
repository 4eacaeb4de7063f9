//! Adapters of a plan that would be handed credentials which must stay here: found before any cluster is touched. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use crate::{
    adapter::{self, allow::AddressPattern},
    cluster::access::Source,
    core::{
        plan::{Plan, Work},
        target::Clusters,
    },
};

/// An adapter that would be handed credentials of the executor's own, and that the installation does not name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotAllowed {
    /// `host:port`.
    pub(crate) address: String,
    /// Names in the plan of the clusters whose credentials it would be handed.
    clusters: Vec<String>,
}

impl fmt::Display for NotAllowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, clusters } = self;
        write!(
            f,
            "the adapter at {address} would be handed the executor's own credentials for {}; start the executor with \
             --adapter-allow {address}, or send a kubeconfig with the request",
            clusters.join(", ")
        )
    }
}

/// The adapters of a plan that may not be called. `sources` are the ways to its clusters.
pub(crate) fn not_allowed(plan: &Plan, sources: &Clusters<Source>, allowed: &[AddressPattern]) -> Vec<NotAllowed> {
    let mut found = BTreeMap::<String, BTreeSet<&str>>::new();
    for step in &plan.steps {
        // A dry run keeps addresses that cannot be dialled, with port 0.
        let Work::Adapter(work) = &step.work else { continue };
        if work.port == 0 || allowed.iter().any(|pattern| pattern.matches(&work.host, work.port)) {
            continue;
        }
        let own = work.clusters.iter().filter(|&&cluster| !matches!(sources[cluster], Source::Kubeconfig(_)));
        let own: BTreeSet<_> = own.map(|&cluster| plan.clusters[cluster].as_str()).collect();
        if !own.is_empty() {
            found.entry(adapter::address(&work.host, work.port.into())).or_default().extend(own);
        }
    }
    let of = |(address, clusters): (String, BTreeSet<&str>)| NotAllowed {
        address,
        clusters: clusters.into_iter().map(str::to_owned).collect(),
    };
    found.into_iter().map(of).collect()
}
