//! What components need before they can work: Helm charts, installed once for each namespace and cluster (S19, D17).
//!
//! Nothing here decides about a component. What could not be installed is told, and the component is applied all the same.
//! A release that was installed from here carries the chart's mark, so that it is found again without its chart, and so that
//! nothing is ever removed that somebody else installed.

mod fetch;
mod release;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use futures::future::join_all;
use switchyard_proto::v1::{self, Change, Outcome};
use tokio::{
    sync::OnceCell,
    time::{Duration, Instant},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::{fetch::Fetched, release::Put};
use super::{Needs, Progress};
use crate::{
    cluster::{Cluster, Seen},
    helm::{self, Bounds, Helm},
    mask::{OfDesign, Secrets},
    plan::{Plan, Step},
    report,
    schedule::{Lane, StepIx},
    verdict::{Failure, Reason, Subject},
};

/// How long it may take to see to one chart on one cluster, unless the plan says how long a step may take: as long as helm
/// itself gives its hooks.
const BUDGET: Duration = Duration::from_secs(300);
/// Label on releases that says which chart they were installed from.
const MARK: &str = "switchyard.chart";

/// One chart in one namespace of one cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    lane: Lane,
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
    /// By lane.
    clusters: Vec<Arc<Cluster>>,
    /// By lane: a kubeconfig, or why there is none.
    access: Vec<Result<String, String>>,
    helm: Arc<Helm>,
    /// Which steps need which chart.
    users: BTreeMap<Key, BTreeSet<StepIx>>,
    /// On the way down: those that are still there.
    left: Mutex<BTreeMap<Key, BTreeSet<StepIx>>>,
    /// By URL and version.
    fetched: Once<(String, String), Result<Arc<Fetched>, Failure>>,
    /// What came of it, where that is the same for all who need it.
    told: Once<Key, v1::PrerequisiteResult>,
    secrets: Arc<OfDesign>,
}

/// What the cases of one chart on one cluster have in common.
struct Task<'a> {
    key: &'a Key,
    cluster: &'a Cluster,
    kubeconfig: &'a str,
    bounds: Bounds<'a>,
}

/// What was done, or in a dry run would be.
struct Done {
    change: Change,
    release: String,
    note: String,
}

/// Why it was not.
struct Failed {
    outcome: Outcome,
    failure: Failure,
    release: String,
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self { outcome: Outcome::Failed, failure, release: String::new() }
    }
}

impl Key {
    /// The chart's URL as it is shown.
    fn shown(&self) -> String {
        switchyard_proto::without_userinfo(&self.url)
    }

    /// What marks a release of this chart.
    fn mark(&self) -> String {
        format!("{MARK}={}", Uuid::new_v5(&Uuid::NAMESPACE_URL, self.shown().as_bytes()))
    }

    /// Refuses what helm would read as something else than a chart's place and a namespace.
    fn check(&self) -> Result<(), Failure> {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let what = if !self.url.starts_with("https://") && !self.url.starts_with("oci://") {
            "it must lie at https:// or oci://".to_owned()
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
    /// Of a plan's clusters and the ways to them, by lane; nothing is done before it is asked for.
    pub(crate) fn new(
        plan: Arc<Plan>,
        clusters: Vec<Arc<Cluster>>,
        access: Vec<Result<String, String>>,
        helm: Arc<Helm>,
        secrets: Arc<OfDesign>,
    ) -> Self {
        let mut users = BTreeMap::<Key, BTreeSet<StepIx>>::new();
        for (ix, step) in plan.steps.iter().enumerate() {
            for lane in plan.lanes(step).iter().flat_map(|lane| plan.clusters_of(step, lane)) {
                if let Some(key) = key(&plan, step, *lane) {
                    users.entry(key).or_default().insert(StepIx(ix as u32));
                }
            }
        }
        Self {
            left: Mutex::new(users.clone()),
            users,
            fetched: Mutex::default(),
            told: Mutex::default(),
            plan,
            clusters,
            access,
            helm,
            secrets,
        }
    }

    /// Sees to what a unit needs, on each cluster that it acts on.
    pub(crate) async fn prepare(&self, step: StepIx, lane: Lane, stop: &CancellationToken) -> Needs {
        let keys = self.keys(step, lane);
        join_all(keys.iter().map(|key| async {
            let cell = once(&self.told, key);
            cell.get_or_init(|| self.see_to(key, stop, async |task| self.install(task).await)).await.clone()
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
        let keys = self.keys(progress.step, progress.lane);
        if !keys.is_empty() {
            progress.written();
        }
        join_all(keys.iter().map(|key| async {
            let others = self.without(key, progress.step);
            let let_go = || self.see_to(key, &stop, async |task| self.let_go(task, &others).await);
            match self.plan.options.remove_dependencies {
                true => let_go().await,
                // The answer is the same for all.
                false => once(&self.told, key).get_or_init(let_go).await.clone(),
            }
        }))
        .await
    }

    fn keys(&self, step: StepIx, lane: Lane) -> Vec<Key> {
        let step = &self.plan.steps[step.0 as usize];
        self.plan.clusters_of(step, &lane).iter().filter_map(|lane| key(&self.plan, step, *lane)).collect()
    }

    /// Takes note that a step no longer needs the chart, and names the components that do.
    fn without(&self, key: &Key, step: StepIx) -> Vec<&str> {
        let mut left = self.left.lock().expect("nothing panics while it holds the lock");
        let left = left.entry(key.clone()).or_default();
        left.remove(&step);
        left.iter().map(|step| self.plan.steps[step.0 as usize].component.name.as_str()).collect()
    }

    /// Does something about one chart on one cluster, within its time, and tells what came of it.
    async fn see_to(
        &self,
        key: &Key,
        stop: &CancellationToken,
        work: impl AsyncFnOnce(&Task<'_>) -> Result<Done, Failed>,
    ) -> v1::PrerequisiteResult {
        let cluster = &self.clusters[key.lane.0 as usize];
        let budget = self.plan.options.step_timeout.unwrap_or(BUDGET);
        let bounds = Bounds { until: Instant::now() + budget, stop };
        let result = match &self.access[key.lane.0 as usize] {
            _ if let Err(failure) = key.check() => Err(failure.into()),
            Ok(kubeconfig) => work(&Task { key, cluster, kubeconfig, bounds }).await,
            Err(why) => {
                let text = format!("helm has no way to cluster {}: {why}", cluster.name);
                Err(Failure::new(Reason::ChartFailed, text).into())
            }
        };
        let chart = v1::Chart { url: key.url.clone(), version: key.version.clone(), namespace: key.namespace.clone() };
        let told = v1::PrerequisiteResult {
            cluster: cluster.name.clone(),
            chart: Some(report::chart(&chart)),
            ..Default::default()
        };
        match result {
            Ok(Done { change, release, note }) => {
                let outcome = Outcome::Succeeded.into();
                v1::PrerequisiteResult { outcome, release, change: change.into(), note, ..told }
            }
            Err(Failed { outcome, failure, release }) => {
                tracing::info!(
                    cluster = cluster.name,
                    chart = key.shown(),
                    reason = failure.reason.as_str(),
                    message = failure.message,
                    "what a component needs was not seen to"
                );
                let error = Some(report::failure(&failure));
                v1::PrerequisiteResult { outcome: outcome.into(), release, error, ..told }
            }
        }
    }

    /// Has the chart installed, if it is not there in one way or another.
    async fn install(&self, task: &Task<'_>) -> Result<Done, Failed> {
        let upgrades = self.plan.options.upgrade_dependencies;
        let Task { key, cluster, .. } = task;
        if !upgrades {
            let ours = self.ours(task).await?;
            let none = ours.is_empty();
            if let Some(release) = ours.into_iter().find(|release| release.status == "deployed") {
                return Ok(Done { change: Change::Unchanged, release: release.name, note: "installed already".into() });
            }
            if none && let Some(done) = self.present(task).await {
                return Ok(done);
            }
        }
        let chart = self.fetch(key, task.bounds).await?;
        let release = chart.about.name.clone();
        let failed =
            |reason, text: String| Failed { release: release.clone(), ..Failed::from(Failure::new(reason, text)) };
        let _alone = self.alone(task, &release).await?;
        let history = self.history(task, &release).await?;
        let place = format!("release {release} in namespace {} of cluster {}", key.namespace, cluster.name);
        let Some(last) = history.last() else {
            return match upgrades {
                true if let Some(done) = self.present(task).await => Ok(done),
                _ => self.put(task, &chart, Put::Install).await,
            };
        };
        let worked_once = history.iter().any(|revision| ["deployed", "superseded"].contains(&revision.status.as_str()));
        match last.status.as_str() {
            "deployed" if upgrades && last.chart != format!("{release}-{}", chart.about.version) => {
                self.put(task, &chart, Put::Upgrade).await
            }
            "deployed" => {
                let note = format!("installed already, from {}", last.chart);
                Ok(Done { change: Change::Unchanged, release, note })
            }
            "failed" if worked_once && upgrades => self.put(task, &chart, Put::Upgrade).await,
            "failed" if worked_once => {
                let why = self.masked(task, &last.description);
                let text =
                    format!("the last upgrade of {place} failed: {why}; set upgrade_dependencies to try it again");
                Err(failed(Reason::ChartFailed, text))
            }
            "failed" | "uninstalled" => self.put(task, &chart, Put::InstallAnew).await,
            status if status.starts_with("pending") || status == "uninstalling" => {
                // Whoever had a release that works does not want it removed.
                let how = if worked_once { "rollback" } else { "uninstall" };
                let text = format!(
                    "{place} is {status}: helm is at work on it, or was cut short; if it stays so, run \
                     `helm {how} {release} --namespace {}` and deploy again",
                    key.namespace
                );
                Err(failed(Reason::ChartPending, text))
            }
            status => Err(failed(Reason::ChartFailed, format!("{place} is {status}, which nothing can be made of"))),
        }
    }

    /// Leaves the release where it is, or removes it, if nothing of the design on this cluster needs it any more (D17).
    async fn let_go(&self, task: &Task<'_>, others: &[&str]) -> Result<Done, Failed> {
        let removes = self.plan.options.remove_dependencies;
        let left = |release: String, why: String| {
            let what = if release.is_empty() { "its release".to_owned() } else { format!("release {release}") };
            Done { change: Change::Unchanged, note: format!("left installed: {what}{why}"), release }
        };
        if removes && !others.is_empty() {
            return Ok(left(String::new(), format!(", which is still needed by {}", others.join(", "))));
        }
        let ours = match self.ours(task).await {
            // That nothing is done needs no helm.
            Err(_) if !removes => return Ok(left(String::new(), ", if there is one".into())),
            ours => ours?,
        };
        // There is one, unless somebody has installed the same chart under another name and with our mark.
        let ours: Vec<_> = ours.into_iter().map(|release| release.name).collect();
        let names = ours.join(", ");
        if ours.is_empty() {
            let note = "there is no release that was installed from here".into();
            return Ok(Done { change: Change::Absent, release: names, note });
        }
        if !removes {
            return Ok(left(names, "; it is removed with remove_dependencies".into()));
        }
        if self.plan.dry_run {
            return Ok(Done { change: Change::Removed, release: names, note: "it would be removed".into() });
        }
        for release in &ours {
            self.take_away(task, release).await?;
        }
        Ok(Done { change: Change::Removed, release: names, note: String::new() })
    }

    /// The cluster as one that has what is needed without a release that was installed from here (case 101): it serves, from
    /// definitions, all kinds of the components that need the chart.
    async fn present(&self, task: &Task<'_>) -> Option<Done> {
        let Task { cluster, bounds, .. } = task;
        let mut served = Vec::new();
        for step in self.users.get(task.key)? {
            let object = self.plan.steps[step.0 as usize].object()?;
            // A kind that the design defines itself says nothing of what else is there.
            if object.kind_by.is_some() {
                return None;
            }
            let head = &object.head;
            if served.contains(&head.kind) {
                continue;
            }
            let resource = cluster.find(&head.api_version, &head.kind, Instant::now(), bounds.until).await.ok()?;
            let definition = format!("{}.{}", resource.plural, head.group());
            let subject = Subject {
                cluster: &cluster.name,
                api_version: "apiextensions.k8s.io/v1",
                kind: "CustomResourceDefinition",
                namespace: "",
                name: &definition,
                kind_in_design: false,
                namespace_in_design: false,
            };
            // What comes with every cluster has no definition, and no chart brings it.
            if let Seen::There { .. } = cluster.look(&subject, "", bounds.until).await {
                served.push(head.kind.clone());
            }
        }
        if served.is_empty() {
            return None;
        }
        let note =
            format!("already present: cluster {} serves {}, so nothing was installed", cluster.name, served.join(", "));
        Some(Done { change: Change::Unchanged, release: String::new(), note })
    }

    /// Fetches the chart, once a run, and looks it over.
    async fn fetch(&self, key: &Key, bounds: Bounds<'_>) -> Result<Arc<Fetched>, Failed> {
        let cell = once(&self.fetched, &(key.url.clone(), key.version.clone()));
        let fetched = cell.get_or_init(|| async {
            let fetched = fetch::fetch(&self.helm, key, bounds).await;
            fetched
                .map(Arc::new)
                .map_err(|failure| Failure { message: Secrets::of_url(&key.url).mask(&failure.message), ..failure })
        });
        Ok(fetched.await.clone()?)
    }
}

/// What a step needs on a lane.
fn key(plan: &Plan, step: &Step, lane: Lane) -> Option<Key> {
    let v1::Chart { url, version, namespace } = step.chart.clone()?;
    let of_component = || step.object().and_then(|object| object.head.metadata.namespace.clone());
    let namespace = Some(namespace).filter(|namespace| !namespace.is_empty()).or_else(of_component);
    let namespace = namespace.unwrap_or_else(|| plan.options.default_namespace.clone());
    Some(Key { lane, url, version, namespace })
}

fn once<K: Clone + Ord, V>(map: &Once<K, V>, key: &K) -> Arc<OnceCell<V>> {
    map.lock().expect("nothing panics while it holds the lock").entry(key.clone()).or_default().clone()
}

fn failure(reason: Reason, what: &str, error: helm::Error) -> Failure {
    let reason = match error {
        helm::Error::Missing(_) => Reason::HelmMissing,
        helm::Error::Stopped => Reason::Cancelled,
        _ => reason,
    };
    Failure::new(reason, format!("{what}: {error}"))
}
