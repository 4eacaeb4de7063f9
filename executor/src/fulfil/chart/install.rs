//! What is done about a chart before its components are applied: it is installed, upgraded, or left as it is.
//!
//! A chart is there when a release of it is (case 341). The kinds that it defines prove nothing: helm leaves definitions behind
//! when a release is removed, and clusters bring some of their own.

use std::cmp::Ordering;

use switchyard_proto::v1::Change;

use super::{
    Charts, Done, Failed, Task,
    fetch::Fetched,
    release::{Listed, Put, Whose, version},
};
use crate::answers::failure::{Failure, Reason};

impl Charts {
    /// Has the chart installed, if it is not there.
    pub(super) async fn install(&self, task: &Task<'_>) -> Result<Done, Failed> {
        let namespace = &task.key.namespace;
        if !self.plan.options.upgrade_dependencies {
            // By its mark it is found without the chart.
            let ours = self.releases(task, Whose::OfChart).await?;
            let there = ours.into_iter().find(|release| {
                release.namespace == *namespace && release.is_deployed() && release.version_of(&release.name).is_some()
            });
            if let Some(release) = there {
                return Ok(unchanged(&release, "installed already".into()));
            }
        }
        let chart = self.fetch(task.key, task.bounds).await?;
        let name = chart.about.name.as_str();
        let releases = self.releases(task, Whose::Anybodys).await?;
        let under_its_name = releases.iter().find(|release| release.name == name && release.namespace == *namespace);
        if let Some(release) = under_its_name {
            return self.over(task, &chart, release).await.map_err(|failed| Failed { release: name.into(), ..failed });
        }
        for release in releases.iter().filter(|release| release.is_deployed() && release.version_of(name).is_some()) {
            if release.namespace == *namespace || self.is_for_the_cluster(task, &chart, release).await? {
                return Ok(unchanged(release, self.elsewhere(task, release)));
            }
        }
        self.put(task, &chart, Put::Install).await
    }

    /// What is done where a release has the chart's name already (case 343).
    async fn over(&self, task: &Task<'_>, chart: &Fetched, release: &Listed) -> Result<Done, Failed> {
        let upgrades = self.plan.options.upgrade_dependencies;
        let name = chart.about.name.as_str();
        let place = task.place(release);
        let conflict = |text| Err(Failure::new(Reason::ChartConflict, text).into());
        let Some(there) = release.version_of(name) else {
            let wanted = format!("{name}-{}", chart.about.version);
            return conflict(format!(
                "{place} is of another chart, {}, so {wanted} cannot be installed",
                release.chart
            ));
        };
        match release.status.as_str() {
            "deployed" if upgrades => self.upgrade(task, chart, release, there).await,
            "deployed" => Ok(unchanged(release, format!("installed already, from {}", release.chart))),
            "failed" if !self.is_ours(task, release).await? => conflict(format!(
                "{place} has failed, and was not installed from here, so it is left as it is; see to it, or remove it with \
                 `helm uninstall {name} --namespace {}`, and deploy again",
                release.namespace
            )),
            "failed" => {
                let history = self.history(task, release).await?;
                let worked_once = history.iter().any(|revision| revision.worked());
                match history.last() {
                    Some(last) if worked_once && !upgrades => {
                        let why = self.secrets(task).render(&last.description);
                        let text = format!(
                            "the last upgrade of {place} failed: {why}; set upgrade_dependencies to try it again"
                        );
                        Err(Failure::new(Reason::ChartFailed, text).into())
                    }
                    Some(_) if worked_once => self.upgrade(task, chart, release, there).await,
                    _ => self.put(task, chart, Put::InstallAnew).await,
                }
            }
            // Only its history is left.
            "uninstalled" => self.put(task, chart, Put::InstallAnew).await,
            status if status.starts_with("pending") || status == "uninstalling" => {
                let history = self.history(task, release).await?;
                // Whoever had a release that works does not want it removed.
                let how = if history.iter().any(|revision| revision.worked()) { "rollback" } else { "uninstall" };
                let text = format!(
                    "{place} is {status}: helm is at work on it, or was cut short; if it stays so, run \
                     `helm {how} {name} --namespace {}` and deploy again",
                    release.namespace
                );
                Err(Failure::new(Reason::ChartPending, text).into())
            }
            status => {
                let text = format!("{place} is {status}, which nothing can be made of");
                Err(Failure::new(Reason::ChartFailed, text).into())
            }
        }
    }

    /// Upgrades a release that was installed from here. An older version is only put in its place if the registry names that
    /// version beside the chart's URL.
    async fn upgrade(&self, task: &Task<'_>, chart: &Fetched, release: &Listed, there: &str) -> Result<Done, Failed> {
        let wanted = chart.about.version.as_str();
        let order = match (version(there), version(wanted)) {
            (Some(there), Some(wanted)) => wanted.cmp_precedence(&there),
            // Helm takes no such version.
            _ => Ordering::Greater,
        };
        if release.is_deployed() && there == wanted {
            return Ok(unchanged(release, format!("installed already, from {}", release.chart)));
        }
        if !self.is_ours(task, release).await? {
            let note = format!(
                "installed already, from {}, though not from here: it is left as it is and not made {wanted}",
                release.chart
            );
            return Ok(unchanged(release, note));
        }
        if order == Ordering::Less && task.key.version.is_empty() {
            let text = format!(
                "{} is of version {there}, newer than {wanted}, which the registry has; it is left as it is. To go back, name \
                 the version beside the chart's URL in the registry",
                task.place(release)
            );
            return Err(Failure::new(Reason::ChartConflict, text).into());
        }
        self.may_be_upgraded(task, chart, release).await?;
        self.put(task, chart, if order == Ordering::Less { Put::Downgrade } else { Put::Upgrade }).await
    }

    /// What is said of a chart that is there in a release of another name or namespace.
    fn elsewhere(&self, task: &Task<'_>, release: &Listed) -> String {
        let Listed { name, namespace, chart, .. } = release;
        let mut note = format!("installed already, as release {name} in namespace {namespace}, from {chart}");
        let wanted = self.namespaces.get(&(task.key.cluster, task.key.identity()));
        if let Some(wanted) = wanted.filter(|wanted| wanted.len() > 1) {
            let wanted: Vec<_> = wanted.iter().map(String::as_str).collect();
            note.push_str(&format!("; components disagree on its namespace: {}", wanted.join(", ")));
        }
        note
    }
}

fn unchanged(release: &Listed, note: String) -> Done {
    Done { change: Change::Unchanged, release: release.name.clone(), note }
}
