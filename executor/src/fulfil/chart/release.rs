//! One release on one cluster, as helm sees it: what there is of it, and what is done about it.

use serde::Deserialize;
use switchyard_proto::v1::{Change, Outcome};
use tokio::sync::OwnedMutexGuard;

use super::{Charts, Done, Failed, Task, failure, fetch::Fetched};
use crate::{
    helm::{self, Call},
    mask::Secrets,
    verdict::{self, Failure, Reason},
};

/// Memory for helm's work on a cluster, in bytes. The largest charts take about a third of it.
const MEMORY: u64 = 1024 * 1024 * 1024;
/// Helm's pins: what its versions and their defaults do not agree on (case 104). Objects that are not helm's are not taken over
/// (case 100). Values are the chart's own, so its schema guards nothing, and could make helm read from elsewhere.
const PINS: [&str; 5] =
    ["--server-side=true", "--force-conflicts=false", "--wait=hookOnly", "--skip-schema-validation", "--hide-notes"];

/// How a chart is put onto a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    Install,
    /// In place of a release that never worked. An upgrade would leave out what the chart does before it is installed.
    InstallAnew,
    Upgrade,
}

/// A line of what `helm list` says.
#[derive(Deserialize)]
pub(super) struct Listed {
    pub(super) name: String,
    pub(super) status: String,
}

/// A line of what `helm history` says, oldest first.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Revision {
    pub(super) status: String,
    /// Name and version.
    pub(super) chart: String,
    pub(super) description: String,
}

impl Charts {
    /// Installs or upgrades, or asks the cluster what either would come to.
    pub(super) async fn put(&self, task: &Task<'_>, chart: &Fetched, put: Put) -> Result<Done, Failed> {
        let Task { key, cluster, .. } = task;
        let release = chart.about.name.as_str();
        let mut arguments = vec![release.to_owned(), chart.path.display().to_string()];
        arguments.extend(PINS.map(str::to_owned));
        if put == Put::InstallAnew {
            arguments.push("--replace".into());
        }
        let (command, done, change) = match put {
            Put::Install | Put::InstallAnew => ("install", "installed", Change::Created),
            Put::Upgrade => ("upgrade", "upgraded", Change::Configured),
        };
        if put != Put::Upgrade {
            // The namespace as Meshery does it: a chart often has one of its own. An upgrade keeps the mark of a release that
            // has it, and gives none to one that somebody else installed.
            arguments.extend([format!("--labels={}", key.mark()), "--create-namespace".into()]);
        }
        if self.plan.dry_run {
            arguments.extend(["--dry-run=server".into(), "--hide-secret".into()]);
        }
        let of = format!("{release}-{}", chart.about.version);
        let error = match self.helm(task, release, command, arguments).await {
            Ok(_) => {
                let was = if self.plan.dry_run { "would be" } else { "was" };
                let note = match put {
                    Put::Install | Put::InstallAnew => format!("{of} {was} installed"),
                    // Helm installs definitions and never touches them again (case 99).
                    Put::Upgrade if chart.about.has_definitions => {
                        format!(
                            "it {was} upgraded to {of}, without the definitions in its crds, which stay as they are"
                        )
                    }
                    Put::Upgrade => format!("it {was} upgraded to {of}"),
                };
                return Ok(Done { change, release: release.into(), note });
            }
            Err(error) => error,
        };
        let would = if self.plan.dry_run { "would not be" } else { "was not" };
        let text = format!(
            "{of} {would} {done} as release {release} in namespace {} of cluster {}",
            key.namespace, cluster.name
        );
        let mut failed = self.failed(task, Reason::ChartFailed, &text, error);
        failed.release = release.into();
        // What a chart brings along is not there in a dry run, so what stands on it cannot be told (D20).
        if self.plan.dry_run && failed.failure.message.contains("no matches for kind") {
            failed.outcome = Outcome::Indeterminate;
            failed.failure.message = format!("cannot tell in a dry run: {}", failed.failure.message);
        }
        Err(failed)
    }

    /// Removes a release.
    pub(super) async fn take_away(&self, task: &Task<'_>, release: &str) -> Result<(), Failed> {
        let _alone = self.alone(task, release).await?;
        let arguments = vec![release.to_owned(), "--wait=hookOnly".into()];
        let Err(error) = self.helm(task, release, "uninstall", arguments).await else { return Ok(()) };
        let text = format!("release {release} in namespace {} was not removed", task.key.namespace);
        Err(Failed { release: release.into(), ..self.failed(task, Reason::ChartFailed, &text, error) })
    }

    /// Releases in the namespace that were installed from here, from this chart.
    pub(super) async fn ours(&self, task: &Task<'_>) -> Result<Vec<Listed>, Failed> {
        let arguments = vec![format!("--selector={}", task.key.mark()), "--output=json".into()];
        let listed = self.helm(task, "", "list", arguments).await;
        self.read(task, "the releases of cluster", listed)
    }

    /// The revisions of a release; none if there is no such release.
    pub(super) async fn history(&self, task: &Task<'_>, release: &str) -> Result<Vec<Revision>, Failed> {
        let arguments = vec![release.to_owned(), "--max=10".into(), "--output=json".into()];
        match self.helm(task, release, "history", arguments).await {
            Err(helm::Error::Refused(why)) if why.contains("release: not found") => Ok(Vec::new()),
            told => self.read(task, "the history of the release on cluster", told),
        }
    }

    fn read<T: for<'de> Deserialize<'de>>(
        &self,
        task: &Task<'_>,
        what: &str,
        told: Result<String, helm::Error>,
    ) -> Result<T, Failed> {
        let what = format!("{what} {} cannot be told", task.cluster.name);
        let told = told.map_err(|error| self.failed(task, Reason::ChartFailed, &what, error))?;
        serde_json::from_str(&told).map_err(|_| {
            Failure::new(Reason::ChartFailed, format!("{what}: helm answered something else than was asked for")).into()
        })
    }

    /// Keeps other runs of this process from the release.
    pub(super) async fn alone(&self, task: &Task<'_>, release: &str) -> Result<OwnedMutexGuard<()>, Failed> {
        let Task { key, cluster, bounds, .. } = task;
        let place = [cluster.server.clone(), key.namespace.clone(), release.to_owned()];
        let what = format!("release {release} in namespace {} of cluster {}", key.namespace, cluster.name);
        let what = format!("{what} is being worked on by another run");
        self.helm.alone(place, *bounds).await.map_err(|error| self.failed(task, Reason::ChartPending, &what, error))
    }

    /// Runs helm on the cluster.
    async fn helm(
        &self,
        task: &Task<'_>,
        release: &str,
        command: &'static str,
        mut arguments: Vec<String>,
    ) -> Result<String, helm::Error> {
        let kubeconfig = "kubeconfig";
        arguments.push(format!("--kubeconfig={}", Call::file(kubeconfig)));
        arguments.push(format!("--namespace={}", task.key.namespace));
        let chart = task.key.shown();
        let about = helm::About { chart: &chart, release, namespace: &task.key.namespace, cluster: &task.cluster.name };
        let files = vec![(kubeconfig, task.kubeconfig.to_owned())];
        let waits = ["install", "upgrade", "uninstall"].contains(&command);
        let call = Call { command, arguments, waits, files, memory: MEMORY, about };
        self.helm.call(&call, task.bounds).await
    }

    pub(super) fn failed(&self, task: &Task<'_>, reason: Reason, what: &str, error: helm::Error) -> Failed {
        let failure = failure(reason, what, error);
        Failure { message: self.masked(task, &failure.message), ..failure }.into()
    }

    /// What helm says without what is secret in the design, the kubeconfig and the chart's URL.
    pub(super) fn masked(&self, task: &Task<'_>, text: &str) -> String {
        let text = Secrets::around(b"", &self.secrets).mask(&verdict::capped(text));
        Secrets::of_url(&task.key.url).mask(&Secrets::of_kubeconfig(task.kubeconfig).mask(&text))
    }
}
