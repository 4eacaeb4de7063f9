//! What becomes of a chart after the last component that needs it is gone (D17).

use switchyard_proto::v1::Change;

use super::{
    Charts, Done, Failed, Task, Work,
    release::{Listed, Whose},
};
use crate::answers::failure::{Failure, Reason};

impl Charts {
    /// Leaves the release where it is, or removes it, if nothing of the design on this cluster needs it any more.
    pub(super) async fn let_go(&self, task: &Task<'_>, others: &[&str]) -> Result<Done, Failed> {
        let removes = self.plan.options.remove_dependencies;
        let left = |release: String, why: String| {
            let what = if release.is_empty() { "its release".to_owned() } else { format!("release {release}") };
            Done { change: Change::Unchanged, note: format!("left installed: {what}{why}"), release }
        };
        if removes && !others.is_empty() {
            return Ok(left(String::new(), format!(", which is still needed by {}", others.join(", "))));
        }
        let ours = match self.releases(task, Whose::OfChart).await {
            // That nothing is done needs no helm.
            Err(_) if !removes => return Ok(left(String::new(), ", if there is one".into())),
            ours => self.of_this_design(task, ours?),
        };
        let names: Vec<_> = ours.iter().map(|release| release.name.as_str()).collect();
        let names = names.join(", ");
        if ours.is_empty() {
            let note = "there is no release that was installed from here".into();
            return Ok(Done { change: Change::Absent, release: names, note });
        }
        if !removes {
            return Ok(left(names, "; it is removed with remove_dependencies".into()));
        }
        for release in &ours {
            let told = self.take_away(task, release).await;
            told.map_err(|failed| Failed { release: release.name.clone(), ..failed })?;
        }
        let note = self.manner.removed.into();
        Ok(Done { change: Change::Removed, release: names, note })
    }

    /// The releases in the namespaces that the design's components want the chart in. There is one, unless each of them has its
    /// own, or somebody has installed the same chart under another name and with our mark.
    fn of_this_design(&self, task: &Task<'_>, releases: Vec<Listed>) -> Vec<Listed> {
        let wanted = self.namespaces.get(&(task.key.cluster, task.key.identity()));
        let is_wanted = |release: &Listed| wanted.is_some_and(|wanted| wanted.contains(&release.namespace));
        releases.into_iter().filter(is_wanted).collect()
    }

    /// Removes a release, or in a dry run tells whether that would be done.
    async fn take_away(&self, task: &Task<'_>, release: &Listed) -> Result<(), Failed> {
        let names = [&release.name, &task.key.identity().name];
        if names.iter().all(|name| release.version_of(name).is_none()) {
            let text = format!(
                "{} carries our mark and is of another chart, {}, so it is left in place",
                task.place(release),
                release.chart
            );
            return Err(Failure::new(Reason::ChartConflict, text).into());
        }
        self.may_go(task, release).await?;
        match self.manner.work {
            Work::Look => Ok(()),
            Work::Change => self.uninstall(task, release).await,
        }
    }
}
