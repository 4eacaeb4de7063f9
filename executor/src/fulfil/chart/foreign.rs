//! What of others would go along with definitions and namespaces that helm removes (D19, case 342).

use std::collections::BTreeSet;

use super::{Charts, Failed, Task, fetch::Fetched, manifest::Object, release::Listed};
use crate::{
    answers::failure::{self, Failure, Reason},
    cluster::contents::{self, Own, Release},
    core::kind,
};

impl Charts {
    /// Refuses to remove a release while its definitions and namespaces hold objects of others.
    pub(super) async fn may_go(&self, task: &Task<'_>, release: &Listed) -> Result<(), Failed> {
        if self.plan.options.delete_foreign {
            return Ok(());
        }
        let objects = self.objects(task, release).await?;
        let what = format!("{} is kept", task.place(release));
        self.hold_nothing_of_others(task, release, objects.iter().filter(|object| !object.is_kept), &what).await
    }

    /// Refuses an upgrade while what the new version leaves out holds objects of others: helm removes it.
    pub(super) async fn may_be_upgraded(
        &self,
        task: &Task<'_>,
        chart: &Fetched,
        release: &Listed,
    ) -> Result<(), Failed> {
        let objects = self.objects(task, release).await?;
        let holds = |object: &&Object| !object.is_kept && (object.is_definition() || object.is_namespace());
        if self.plan.options.delete_foreign || !objects.iter().any(|object| holds(&object)) {
            return Ok(());
        }
        let named = |object: &Object| (object.kind.clone(), object.name.clone());
        let stays: BTreeSet<_> = self.rendered(task, chart, release).await?.iter().map(named).collect();
        let goes = objects.iter().filter(|object| !object.is_kept && !stays.contains(&named(object)));
        let what = format!("{} is not made {}", task.place(release), chart.about.version);
        self.hold_nothing_of_others(task, release, goes, &what).await
    }

    /// Looks into the definitions and namespaces among objects that helm would remove.
    async fn hold_nothing_of_others<'a>(
        &self,
        task: &Task<'_>,
        release: &Listed,
        objects: impl Iterator<Item = &'a Object> + Clone,
        what: &str,
    ) -> Result<(), Failed> {
        let (cluster, by) = (task.cluster, task.bounds.deadline);
        let release = Release { name: &release.name, namespace: &release.namespace };
        let own = Own { design_id: &self.plan.design.id, release: Some(release) };
        let names: Vec<_> = objects.clone().filter(|o| o.is_definition()).map(|object| object.name.as_str()).collect();
        let mut looks = Vec::new();
        if !names.is_empty() {
            looks.push(contents::of_definitions(cluster, &names, &own, by).await);
        }
        for namespace in objects.filter(|object| object.is_namespace()) {
            looks.push(contents::of_namespace(cluster, &namespace.name, &own, &self.everywhere, by).await);
        }
        for look in looks {
            let foreign = look.map_err(|why| {
                let text = format!(
                    "{what}: what others have in its definitions and namespaces cannot be told: {}",
                    failure::capped(&why)
                );
                Failure::new(Reason::ApiUnavailable, text)
            })?;
            if foreign.count > 0 {
                let text = format!(
                    "{what}: its definitions and namespaces hold {} outside the design, which would go with them: {}; set \
                     delete_foreign to delete them too",
                    foreign.count_text(),
                    foreign.names.join(", ")
                );
                return Err(Failure::new(Reason::ForeignContents, text).into());
            }
        }
        Ok(())
    }
}

impl Object {
    fn is_definition(&self) -> bool {
        kind::is_definition(&self.api_version, &self.kind)
    }

    fn is_namespace(&self) -> bool {
        kind::is_namespace(&self.api_version, &self.kind)
    }
}
