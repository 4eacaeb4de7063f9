//! What components need before they can work: Helm charts, installed once for each namespace and cluster (S19, D17).
//!
//! Nothing here decides about a component. What could not be installed is told, and the component is applied all the same.
//! A release that was installed from here carries the chart's mark, so that it is found again without its chart, and so that
//! nothing is ever changed or removed that somebody else installed.

mod fetch;
mod foreign;
mod identity;
mod install;
mod manifest;
mod release;
mod removal;
mod turn;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use futures::future::join_all;
use switchyard_proto::v1::{self, Change};
use switchyard_service::attributes as common;
use tokio::{
    sync::OnceCell,
    time::{Duration, Instant},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, Span, field::Empty};

use self::{fetch::Fetched, identity::Identity};
use super::{Need, NeedDone, NeedFailed, Needs, Progress, Site};
use crate::{
    answers::{
        classify,
        failure::{Failure, Reason},
    },
    attributes,
    cluster::{Cluster, contents::Everywhere},
    core::{
        plan::Plan,
        schedule::{Mode, UnitOutcome},
        target::{ClusterIx, Clusters, StepIx, Target},
    },
    helm::{Bounds, Helm, Places},
    mask::OfDesign,
    record::locks::Locking,
};

/// How long it may take to see to one chart on one cluster, unless the plan says how long a step may take: as long as helm
/// itself gives its hooks.
const BUDGET: Duration = Duration::from_secs(300);
/// A wait that is told.
const WORTH_A_WORD: Duration = Duration::from_secs(1);

/// One chart in one namespace of one cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    cluster: ClusterIx,
    /// With the credentials that it may hold.
    url: String,
    /// Empty when the URL says it.
    version: String,
    namespace: String,
}

type Once<K, V> = Mutex<BTreeMap<K, Arc<OnceCell<V>>>>;

/// Sees to the charts of one run.
pub(crate) struct Charts {
    plan: Arc<Plan>,
    sites: Arc<Clusters<Site>>,
    manner: &'static Manner,
    helm: Arc<Helm>,
    places: Places,
    /// By cluster and chart: the namespaces that components want it in.
    namespaces: BTreeMap<(ClusterIx, Identity), BTreeSet<String>>,
    /// By cluster and chart, on the way down: the steps that need it and are still there.
    left: Mutex<BTreeMap<(ClusterIx, Identity), BTreeSet<StepIx>>>,
    /// By URL and version.
    fetched: Once<(String, String), Result<Arc<Fetched>, Failure>>,
    /// What came of it, where that is the same for all who need it.
    told: Once<Key, Need>,
    secrets: Arc<OfDesign>,
    /// What controllers put into every namespace.
    everywhere: Arc<Everywhere>,
    /// None where other executors are not kept off.
    locking: Option<Locking>,
}

/// What the cases of one chart on one cluster have in common.
struct Task<'a> {
    key: &'a Key,
    cluster: &'a Cluster,
    kubeconfig: &'a str,
    bounds: Bounds<'a>,
}

/// Whether the work on a chart may change anything on the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    Look,
    /// Then it is done by one at a time (case 345).
    Change,
}

/// How helm is asked, and how that is said: to change what is there, or to say what it would do.
struct Manner {
    work: Work,
    /// What helm is told with whatever would change something.
    flags: &'static [&'static str],
    was: &'static str,
    was_not: &'static str,
    /// What is not known of a chart that was put there.
    caveat: &'static str,
    /// What is said of a release that was removed.
    removed: &'static str,
}

const CARRY_OUT: Manner =
    Manner { work: Work::Change, flags: &[], was: "was", was_not: "was not", caveat: "", removed: "" };
const REHEARSE: Manner = Manner {
    work: Work::Look,
    flags: &["--dry-run=server", "--hide-secret"],
    was: "would be",
    was_not: "would not be",
    caveat: "; it was rendered, and its objects and hooks were not tried",
    removed: "it would be removed",
};

/// What was done, or in a dry run would be.
struct Done {
    change: Change,
    release: String,
    note: String,
}

/// Why it was not.
struct Failed {
    outcome: UnitOutcome,
    failure: Failure,
    release: String,
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self { outcome: UnitOutcome::Failed, failure, release: String::new() }
    }
}

impl Key {
    /// The chart's URL as it is shown.
    fn shown(&self) -> String {
        switchyard_proto::presentable(&self.url)
    }

    fn identity(&self) -> Identity {
        Identity::of(&self.url)
    }

    /// Refuses what helm would read as something else than a chart's place and a namespace.
    fn check(&self) -> Result<(), Failure> {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let what = if !self.url.starts_with("https://") && !self.url.starts_with("oci://") {
            "it must lie at https:// or oci://".to_owned()
        } else if !identity::names_a_file(&self.url) {
            "its URL names no file".to_owned()
        } else if self.namespace.len() > 63 || !self.namespace.chars().all(is_plain) || self.namespace.starts_with('-')
        {
            format!("`{}` is not the name of a namespace", self.namespace)
        } else {
            return Ok(());
        };
        Err(Failure::new(Reason::ChartRefused, format!("chart {} is refused: {what}", self.shown())))
    }
}

impl Charts {
    /// Of a plan and its clusters; nothing is done before it is asked for.
    pub(crate) fn new(
        plan: Arc<Plan>,
        sites: Arc<Clusters<Site>>,
        helm: Arc<Helm>,
        secrets: Arc<OfDesign>,
        everywhere: Arc<Everywhere>,
        locking: Option<Locking>,
    ) -> Self {
        let mut left = BTreeMap::<_, BTreeSet<_>>::new();
        let mut namespaces = BTreeMap::<_, BTreeSet<_>>::new();
        for (ix, step) in plan.steps.iter_enumerated() {
            for target in plan.targets(step) {
                for key in keys(&plan, ix, target) {
                    let chart = (key.cluster, key.identity());
                    namespaces.entry(chart.clone()).or_default().insert(key.namespace);
                    left.entry(chart).or_default().insert(ix);
                }
            }
        }
        Self {
            places: helm.places(sites.len()),
            manner: match plan.mode() {
                Mode::CarryOut => &CARRY_OUT,
                Mode::Rehearse => &REHEARSE,
            },
            namespaces,
            left: Mutex::new(left),
            fetched: Mutex::default(),
            told: Mutex::default(),
            plan,
            sites,
            helm,
            secrets,
            everywhere,
            locking,
        }
    }

    /// Sees to what a unit needs, on each cluster that it acts on.
    pub(crate) async fn prepare(&self, step: StepIx, target: Target, stop: &CancellationToken) -> Needs {
        let keys = keys(&self.plan, step, target);
        join_all(keys.iter().map(|key| async {
            let cell = once(&self.told, key);
            let work = self.manner.work;
            cell.get_or_init(|| self.see_to(key, stop, work, async |task| self.install(task).await)).await.clone()
        }))
        .await
    }

    /// Sees to what a unit that is gone needed.
    pub(crate) async fn clear_up(&self, progress: &Progress) -> Needs {
        if self.plan.operation != v1::Operation::Undeploy {
            return Vec::new();
        }
        // Whether the last one is gone is for its deletion to say, and that has been proven. What follows is not stopped by
        // a cancel: a release that is half removed would be in nobody's way and in nobody's list.
        let stop = CancellationToken::new();
        let keys = keys(&self.plan, progress.step, progress.target);
        if !keys.is_empty() {
            progress.written();
        }
        join_all(keys.iter().map(|key| async {
            let others = self.without(key, progress.step);
            let removes = self.plan.options.remove_dependencies && others.is_empty();
            let work = if removes { self.manner.work } else { Work::Look };
            let let_go = || self.see_to(key, &stop, work, async |task| self.let_go(task, &others).await);
            match self.plan.options.remove_dependencies {
                true => let_go().await,
                // The answer is the same for all.
                false => once(&self.told, key).get_or_init(let_go).await.clone(),
            }
        }))
        .await
    }

    /// Takes note that a step no longer needs the chart, and names the components that do, in whatever namespace.
    fn without(&self, key: &Key, step: StepIx) -> Vec<&str> {
        let mut left = self.left.lock().expect("nothing panics while it holds the lock");
        let left = left.entry((key.cluster, key.identity())).or_default();
        left.remove(&step);
        left.iter().map(|step| self.plan.steps[*step].component.name.as_str()).collect()
    }

    /// Does something about one chart on one cluster, and tells what came of it.
    async fn see_to(
        &self,
        key: &Key,
        stop: &CancellationToken,
        kind: Work,
        work: impl AsyncFnOnce(&Task<'_>) -> Result<Done, Failed>,
    ) -> Need {
        let cluster = &self.sites[key.cluster].cluster;
        let span = span(key, cluster);
        let result = self.in_turn(key, stop, kind, work).instrument(span.clone()).await;
        let (release, result) = match result {
            Ok(Done { change, release, note }) => {
                span.record(attributes::RELEASE, &release).record(attributes::CHART_NOTE, &note);
                (release, Ok(NeedDone { change, note }))
            }
            Err(Failed { outcome, failure, release }) => {
                tracing::warn!(
                    { attributes::CLUSTER } = cluster.name,
                    chart = key.shown(),
                    reason = failure.reason.as_str(),
                    message = failure.message,
                    "what a component needs was not seen to"
                );
                span.record(attributes::RELEASE, &release).record(attributes::CHART_NOTE, &failure.message);
                span.record(common::OTEL_STATUS_CODE, "error").record(common::ERROR_TYPE, failure.reason.as_str());
                (release, Err(NeedFailed { outcome, failure }))
            }
        };
        Need { cluster: key.cluster, namespace: key.namespace.clone(), release, result }
    }

    /// Does the work when its turn has come. Its time begins then (case 346).
    async fn in_turn(
        &self,
        key: &Key,
        stop: &CancellationToken,
        kind: Work,
        work: impl AsyncFnOnce(&Task<'_>) -> Result<Done, Failed>,
    ) -> Result<Done, Failed> {
        key.check()?;
        let Site { cluster, for_helm, .. } = &self.sites[key.cluster];
        let kubeconfig = for_helm.as_deref().map_err(|why| {
            Failure::new(Reason::ChartFailed, format!("helm has no way to cluster {}: {why}", cluster.name))
        })?;
        let asked = Instant::now();
        let budget = self.plan.options.step_timeout.unwrap_or(BUDGET);
        let turn = async {
            let alone = match kind {
                Work::Look => None,
                Work::Change => Some(self.alone(key, cluster, asked + budget).await?),
            };
            Ok((alone, self.places.take(key.cluster).await))
        };
        let stopped = || {
            let text = format!("the run was stopped before it was the turn of chart {}", key.shown());
            Err(Failure::new(Reason::Cancelled, text))
        };
        let _turn = stop.run_until_cancelled(turn).await.unwrap_or_else(stopped)?;
        if !cluster.may_be_written() {
            return Err(Failure::new(Reason::Cancelled, classify::lock_lost(&cluster.name)).into());
        }
        let (waited, bounds) = (asked.elapsed(), Bounds { deadline: Instant::now() + budget, stop });
        work(&Task { key, cluster, kubeconfig, bounds }).await.map_err(|mut failed| {
            if waited >= WORTH_A_WORD {
                failed.failure.message.push_str(&format!("; its turn had come after {waited:.1?}"));
            }
            failed
        })
    }

    /// Fetches the chart, once a run, and looks it over.
    async fn fetch(&self, key: &Key, bounds: Bounds<'_>) -> Result<Arc<Fetched>, Failed> {
        let cell = once(&self.fetched, &(key.url.clone(), key.version.clone()));
        let fetched = cell.get_or_init(|| async { fetch::fetch(&self.helm, key, bounds).await.map(Arc::new) });
        Ok(fetched.await.clone()?)
    }
}

/// The span of the work on a chart on a cluster, below that of the step that asked first.
fn span(key: &Key, cluster: &Cluster) -> Span {
    tracing::info_span!(
        "chart",
        { common::OTEL_NAME } = format_args!("chart {}", key.identity().name),
        { common::OTEL_STATUS_CODE } = Empty,
        { common::ERROR_TYPE } = Empty,
        { attributes::CHART } = key.shown(),
        { attributes::NAMESPACE } = attributes::said(&key.namespace),
        { attributes::CLUSTER } = cluster.name,
        { attributes::RELEASE } = Empty,
        { attributes::CHART_NOTE } = Empty,
    )
}

/// What a unit needs, by cluster that it acts on.
fn keys(plan: &Plan, ix: StepIx, target: Target) -> Vec<Key> {
    let step = &plan.steps[ix];
    let Some(v1::Chart { url, version, namespace }) = &step.chart else { return Vec::new() };
    let of_component = || step.object().and_then(|object| object.head.metadata.namespace.clone());
    let namespace = Some(namespace.clone()).filter(|namespace| !namespace.is_empty()).or_else(of_component);
    let namespace = namespace.unwrap_or_else(|| plan.options.default_namespace.clone());
    let key = |&cluster| Key { cluster, url: url.clone(), version: version.clone(), namespace: namespace.clone() };
    plan.clusters_of(ix, &target).iter().map(key).collect()
}

fn once<K: Clone + Ord, V>(map: &Once<K, V>, key: &K) -> Arc<OnceCell<V>> {
    map.lock().expect("nothing panics while it holds the lock").entry(key.clone()).or_default().clone()
}
