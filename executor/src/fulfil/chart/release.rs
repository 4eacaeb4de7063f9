//! One release on one cluster, as helm sees it: what there is of it, and what is done about it.

use semver::Version;
use serde::Deserialize;
use switchyard_proto::v1::Change;

use super::{Charts, Done, Failed, Task, Work, fetch::Fetched, identity};
use crate::{
    answers::{
        classify,
        failure::{Failure, Reason},
    },
    core::schedule::UnitOutcome,
    helm::{self, Call},
    mask::{Secrets, Unmasked},
};

/// Memory for helm's work on a cluster, in bytes. The largest charts take about a third of it.
const MEMORY: u64 = 1024 * 1024 * 1024;
/// Helm's pins: what its versions and their defaults do not agree on (case 104). Objects that are not helm's are not taken over
/// (case 100). Values are the chart's own, so its schema guards nothing, and could make helm read from elsewhere.
const PINS: [&str; 4] = ["--force-conflicts=false", "--wait=hookOnly", "--skip-schema-validation", "--hide-notes"];

/// How a chart is put onto a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Put {
    Install,
    /// In place of a release that never worked. An upgrade would leave out what the chart does before it is installed.
    InstallAnew,
    Upgrade,
    /// An upgrade to an older version.
    Downgrade,
}

/// Which releases are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// Those that were installed from here, from this chart.
    OfChart,
    /// Those that were installed from here, whatever the chart.
    Ours,
    Anybodys,
}

/// A line of what `helm list` says: the last revision of a release.
#[derive(Debug, Deserialize)]
pub(super) struct Listed {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) status: String,
    /// Name and version.
    pub(super) chart: String,
}

impl Listed {
    pub(super) fn is_deployed(&self) -> bool {
        self.status == "deployed"
    }

    /// The chart's version, if the release is of the chart of this name.
    pub(super) fn version_of(&self, chart: &str) -> Option<&str> {
        let version = self.chart.strip_prefix(chart)?.strip_prefix('-')?;
        self::version(version).map(|_| version)
    }
}

/// Reads a chart's version as helm does: a `v` may come before it, and minor and patch may be left out.
pub(super) fn version(text: &str) -> Option<Version> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let (core, rest) = text.split_at(text.find(['-', '+']).unwrap_or(text.len()));
    let missing = 2_usize.checked_sub(core.matches('.').count())?;
    Version::parse(&format!("{core}{}{rest}", ".0".repeat(missing))).ok()
}

/// What `helm upgrade` says.
#[derive(Deserialize)]
struct Rendered {
    manifest: String,
}

/// A line of what `helm history` says, oldest first.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Revision {
    status: String,
    pub(super) description: Unmasked,
}

impl Revision {
    /// Whether it was once what the cluster had.
    pub(super) fn worked(&self) -> bool {
        ["deployed", "superseded"].contains(&self.status.as_str())
    }
}

impl Task<'_> {
    /// A release, as messages name it.
    pub(super) fn place(&self, release: &Listed) -> String {
        format!("release {} in namespace {} of cluster {}", release.name, release.namespace, self.cluster.name)
    }
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
            Put::Downgrade => ("upgrade", "put back", Change::Configured),
        };
        let installs = change == Change::Created;
        // With server-side apply helm 4.3.1 also changes the definitions of a chart's crds that are there already, or fails over
        // them. Without it they are left as they are, whoever they are from (case 341).
        arguments.push(format!("--server-side={}", !(installs && chart.about.has_definitions)));
        arguments.push(format!("--labels={}", key.identity().mark()));
        if installs {
            // As Meshery does it: a chart often has a namespace of its own.
            arguments.push("--create-namespace".into());
        }
        let manner = self.manner;
        arguments.extend(manner.flags.iter().map(|&flag| flag.to_owned()));
        let of = format!("{release}-{}", chart.about.version);
        let error = match self.helm(task, release, &key.namespace, command, arguments).await {
            Ok(_) => {
                let was = manner.was;
                let mut note =
                    if installs { format!("{of} {was} installed") } else { format!("it {was} {done} to {of}") };
                // Helm installs definitions and never touches them again (case 99).
                if !installs && chart.about.has_definitions {
                    note.push_str(", without the definitions in its crds, which stay as they are");
                }
                note.push_str(manner.caveat);
                return Ok(Done { change, release: release.into(), note });
            }
            Err(error) => error,
        };
        let was_not = manner.was_not;
        let text = format!(
            "{of} {was_not} {done} as release {release} in namespace {} of cluster {}",
            key.namespace, cluster.name
        );
        let secrets = self.secrets(task);
        let failure = match classify::in_helms_way(&error.render(&secrets)) {
            Some(why) => Failure::new(Reason::ChartConflict, format!("{text}: {why}")),
            None => classify::helm_failed(Reason::ChartFailed, &text, &error, &secrets),
        };
        let mut failed = Failed { release: release.into(), ..failure.into() };
        // What a chart brings along is not there in a dry run, so what stands on it cannot be told (D20).
        if manner.work == Work::Look && failed.failure.message.contains("no matches for kind") {
            failed.outcome = UnitOutcome::Indeterminate;
            failed.failure.message = format!("cannot tell in a dry run: {}", failed.failure.message);
        }
        Err(failed)
    }

    /// Removes a release.
    pub(super) async fn uninstall(&self, task: &Task<'_>, release: &Listed) -> Result<(), Failed> {
        let Listed { name, namespace, .. } = release;
        let arguments = vec![name.clone(), "--wait=hookOnly".into()];
        let Err(error) = self.helm(task, name, namespace, "uninstall", arguments).await else { return Ok(()) };
        let text = format!("release {name} in namespace {namespace} was not removed");
        Err(self.failed(task, Reason::ChartFailed, &text, &error))
    }

    /// Releases on the cluster. Whoever may not look into all namespaces sees those in the chart's own.
    pub(super) async fn releases(&self, task: &Task<'_>, whose: Whose) -> Result<Vec<Listed>, Failed> {
        let mut arguments = vec!["--output=json".into(), "--max=0".into()];
        match whose {
            Whose::OfChart => arguments.push(format!("--selector={}", task.key.identity().mark())),
            Whose::Ours => arguments.push(format!("--selector={}", identity::LABEL)),
            Whose::Anybodys => {}
        }
        let everywhere = [arguments.as_slice(), &["--all-namespaces".into()]].concat();
        let listed = match self.helm(task, "", &task.key.namespace, "list", everywhere).await {
            Err(helm::Error::Refused(why)) if why.contains("is forbidden") => {
                self.helm(task, "", &task.key.namespace, "list", arguments).await
            }
            listed => listed,
        };
        self.read(task, "the releases of cluster", listed)
    }

    /// Whether a release was installed from here.
    pub(super) async fn is_ours(&self, task: &Task<'_>, release: &Listed) -> Result<bool, Failed> {
        let ours = self.releases(task, Whose::Ours).await?;
        Ok(ours.iter().any(|ours| (&ours.name, &ours.namespace) == (&release.name, &release.namespace)))
    }

    /// What helm noted down of a release's objects.
    pub(super) async fn manifest(&self, task: &Task<'_>, release: &Listed) -> Result<String, Failed> {
        let arguments = vec!["manifest".into(), release.name.clone()];
        let told = self.helm(task, &release.name, &release.namespace, "get", arguments).await;
        let what = format!("what {} consists of cannot be told", task.place(release));
        told.map_err(|error| self.failed(task, Reason::ChartFailed, &what, &error))
    }

    /// What helm would note down of a release's objects after an upgrade.
    pub(super) async fn rendering(&self, task: &Task<'_>, chart: &Fetched, release: &Listed) -> Result<String, Failed> {
        let mut arguments = vec![release.name.clone(), chart.path.display().to_string()];
        arguments.extend(PINS.map(str::to_owned));
        arguments
            .extend(["--server-side=true", "--dry-run=server", "--hide-secret", "--output=json"].map(str::to_owned));
        let told = self.helm(task, &release.name, &release.namespace, "upgrade", arguments).await;
        let rendered: Rendered = self.read(task, "what an upgrade would come to on cluster", told)?;
        Ok(rendered.manifest)
    }

    /// The last revisions of a release.
    pub(super) async fn history(&self, task: &Task<'_>, release: &Listed) -> Result<Vec<Revision>, Failed> {
        let arguments = vec![release.name.clone(), "--max=256".into(), "--output=json".into()];
        let told = self.helm(task, &release.name, &release.namespace, "history", arguments).await;
        self.read(task, "the history of the release on cluster", told)
    }

    fn read<T: for<'de> Deserialize<'de>>(
        &self,
        task: &Task<'_>,
        what: &str,
        told: Result<String, helm::Error>,
    ) -> Result<T, Failed> {
        let what = format!("{what} {} cannot be told", task.cluster.name);
        let told = told.map_err(|error| self.failed(task, Reason::ChartFailed, &what, &error))?;
        serde_json::from_str(&told).map_err(|_| {
            Failure::new(Reason::ChartFailed, format!("{what}: helm answered something else than was asked for")).into()
        })
    }

    /// Runs helm on the cluster.
    async fn helm(
        &self,
        task: &Task<'_>,
        release: &str,
        namespace: &str,
        command: &'static str,
        mut arguments: Vec<String>,
    ) -> Result<String, helm::Error> {
        let kubeconfig = "kubeconfig";
        arguments.push(format!("--kubeconfig={}", Call::file(kubeconfig)));
        arguments.push(format!("--namespace={namespace}"));
        let chart = task.key.shown();
        let about = helm::About { chart: &chart, release, namespace, cluster: &task.cluster.name };
        let files = vec![(kubeconfig, task.kubeconfig.to_owned())];
        let waits = ["install", "upgrade", "uninstall"].contains(&command);
        let call = Call { command, arguments, waits, files, memory: MEMORY, about };
        self.helm.call(&call, task.bounds).await
    }

    fn failed(&self, task: &Task<'_>, reason: Reason, what: &str, error: &helm::Error) -> Failed {
        classify::helm_failed(reason, what, error, &self.secrets(task)).into()
    }

    /// What must not be said of helm's words: what is secret in the design, the kubeconfig and the chart's URL.
    pub(super) fn secrets(&self, task: &Task<'_>) -> Secrets {
        let secrets = Secrets::around(b"", &self.secrets).and(Secrets::of_url(&task.key.url));
        secrets.and(Secrets::of_kubeconfig(task.kubeconfig))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(chart: &str) -> Listed {
        Listed { name: "a".into(), namespace: "b".into(), status: "deployed".into(), chart: chart.into() }
    }

    #[test]
    fn chart_of_a_release_is_told_by_its_whole_name() {
        assert_eq!(listed("app-1.2.3").version_of("app"), Some("1.2.3"));
        assert_eq!(listed("app-v1.2").version_of("app"), Some("v1.2"));
        assert_eq!(listed("app-2-1.2.3-rc.1+x").version_of("app-2"), Some("1.2.3-rc.1+x"));
        for other in ["app-crds-1.2.3", "ap-1.2.3", "app", "app-", "app-x", "MISSING"] {
            assert_eq!(listed(other).version_of("app"), None, "{other}");
        }
    }

    #[test]
    fn versions_are_read_as_helm_reads_them() {
        let of = |text| version(text).map(|version| version.to_string());
        assert_eq!(of("v1.2.3-rc.1").as_deref(), Some("1.2.3-rc.1"));
        assert_eq!(of("1").as_deref(), Some("1.0.0"));
        assert_eq!(of("1.2+b").as_deref(), Some("1.2.0+b"));
        assert_eq!([of("1.2.3.4"), of("x"), of("")], [None, None, None]);
    }
}
