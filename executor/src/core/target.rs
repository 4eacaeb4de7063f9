//! Where steps are carried out, and in which order of the plan: positions of steps, clusters and adapters, each a type of its own,
//! so that nothing of a cluster can be looked up by the number of an adapter.

use std::ops::{Index, IndexMut};

use typed_index_collections::TiVec;

/// Position of a step in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StepIx(pub(crate) u32);

/// Position of a cluster in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ClusterIx(pub(crate) u16);

/// Position of an adapter's address among those of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct AdapterIx(u16);

/// Most clusters and adapters' addresses that one plan can have together.
pub(crate) const MAX_TARGETS: usize = u16::MAX as usize;

macro_rules! positions {
    ($($position:ident of $number:ty),+) => {$(
        impl From<usize> for $position {
            /// What bounds plans (`intake`) keeps every position far below this.
            fn from(position: usize) -> Self {
                Self(<$number>::try_from(position).expect("plans are bounded"))
            }
        }

        impl From<$position> for usize {
            fn from(position: $position) -> Self {
                position.0 as usize
            }
        }
    )+};
}

positions!(StepIx of u32, ClusterIx of u16, AdapterIx of u16);

/// One value a step, in the plan's order.
pub(crate) type Steps<T> = TiVec<StepIx, T>;
/// One value a cluster, in the plan's order.
pub(crate) type Clusters<T> = TiVec<ClusterIx, T>;
/// One value an adapter's address, in the plan's order.
pub(crate) type Adapters<T> = TiVec<AdapterIx, T>;

/// Where a step is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Target {
    Cluster(ClusterIx),
    Adapter(AdapterIx),
}

/// One value a target.
#[derive(Clone, Debug)]
pub(crate) struct Targets<T> {
    pub(crate) clusters: Clusters<T>,
    pub(crate) adapters: Adapters<T>,
}

impl<T> Targets<T> {
    /// All targets: clusters first, each in the plan's order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Target> + use<T> {
        let clusters = self.clusters.keys().map(Target::Cluster);
        clusters.chain(self.adapters.keys().map(Target::Adapter))
    }

    /// The same of other values.
    pub(crate) fn map<U>(&self, mut of: impl FnMut(&T) -> U) -> Targets<U> {
        Targets {
            clusters: self.clusters.iter().map(&mut of).collect(),
            adapters: self.adapters.iter().map(of).collect(),
        }
    }
}

impl<T> Index<Target> for Targets<T> {
    type Output = T;

    fn index(&self, target: Target) -> &T {
        match target {
            Target::Cluster(cluster) => &self.clusters[cluster],
            Target::Adapter(adapter) => &self.adapters[adapter],
        }
    }
}

impl<T> IndexMut<Target> for Targets<T> {
    fn index_mut(&mut self, target: Target) -> &mut T {
        match target {
            Target::Cluster(cluster) => &mut self.clusters[cluster],
            Target::Adapter(adapter) => &mut self.adapters[adapter],
        }
    }
}
