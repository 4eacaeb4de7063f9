//! What a release has put onto the cluster, as helm noted it down: its manifest.

use std::collections::BTreeSet;

use serde_json::Value;
use tokio::time::Instant;

use super::{Charts, Failed, Task, fetch::Fetched, release::Listed};
use crate::{
    answers::failure::{Failure, Reason},
    cluster::discovery,
};

/// An object of a release, as far as it is looked at.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) name: String,
    /// Whether helm leaves it in place when the release goes.
    pub(super) is_kept: bool,
}

impl Charts {
    /// The objects of a release.
    pub(super) async fn objects(&self, task: &Task<'_>, release: &Listed) -> Result<Vec<Object>, Failed> {
        let manifest = self.manifest(task, release).await?;
        parsed(task, release, manifest).await
    }

    /// The objects that a release would have after an upgrade.
    pub(super) async fn rendered(
        &self,
        task: &Task<'_>,
        chart: &Fetched,
        release: &Listed,
    ) -> Result<Vec<Object>, Failed> {
        let manifest = self.rendering(task, chart, release).await?;
        parsed(task, release, manifest).await
    }

    /// Whether a release of the chart serves the whole cluster: it has objects there that belong to no namespace, so a second
    /// release would be in its way (case 345).
    pub(super) async fn is_for_the_cluster(
        &self,
        task: &Task<'_>,
        chart: &Fetched,
        release: &Listed,
    ) -> Result<bool, Failed> {
        if chart.about.has_definitions {
            return Ok(true);
        }
        let objects = self.objects(task, release).await?;
        let kinds: BTreeSet<_> = objects.into_iter().map(|object| (object.api_version, object.kind)).collect();
        for (api_version, kind) in kinds {
            match task.cluster.find(&api_version, &kind, Instant::now(), task.bounds.deadline).await {
                Ok(resource) if !resource.namespaced => return Ok(true),
                // What is not served is not there.
                Ok(_) | Err(discovery::Error::Unknown { .. } | discovery::Error::NoVersion) => {}
                Err(discovery::Error::Failed(why)) => {
                    let text =
                        format!("whether {} is for the whole cluster cannot be told: {why}", task.place(release));
                    return Err(Failure::new(Reason::ChartFailed, text).into());
                }
            }
        }
        Ok(false)
    }
}

/// Reads a manifest, off the runtime: the largest have some MiB.
async fn parsed(task: &Task<'_>, release: &Listed, manifest: String) -> Result<Vec<Object>, Failed> {
    let read = tokio::task::spawn_blocking(move || read(&manifest)).await;
    let read = read.unwrap_or_else(|error| Err(error.to_string()));
    read.map_err(|why| {
        let text = format!("the manifest of {} cannot be read: {why}", task.place(release));
        Failure::new(Reason::ChartFailed, text).into()
    })
}

/// Reads a manifest: YAML documents, of which some may be lists.
fn read(manifest: &str) -> Result<Vec<Object>, String> {
    let mut objects = Vec::new();
    for document in documents(manifest) {
        let value: Value = serde_saphyr::from_str(&document).map_err(|_| "a part of it is no YAML".to_owned())?;
        gather(&value, &mut objects);
    }
    Ok(objects)
}

/// The documents that hold anything but comments.
fn documents(manifest: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in manifest.lines() {
        // What follows a separator on its line belongs to the document.
        let begun = line.strip_prefix("---").filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t']));
        let line = begun.map_or(line, |rest| {
            documents.push(String::new());
            rest
        });
        if let Some(document) = documents.last_mut() {
            document.push_str(line);
            document.push('\n');
        }
    }
    let says_something = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    documents.retain(|document| document.lines().any(says_something));
    documents
}

fn gather(value: &Value, objects: &mut Vec<Object>) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if let Some(items) = value["items"].as_array().filter(|_| text(&value["kind"]).ends_with("List")) {
        return items.iter().for_each(|item| gather(item, objects));
    }
    objects.push(Object {
        api_version: text(&value["apiVersion"]),
        kind: text(&value["kind"]),
        name: text(&value["metadata"]["name"]),
        is_kept: value["metadata"]["annotations"]["helm.sh/resource-policy"].as_str().is_some_and(|policy| {
            // As helm reads it.
            policy.trim().eq_ignore_ascii_case("keep")
        }),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_a_manifest_are_found() {
        let manifest = "# a comment\n---\n# Source: a/templates/a.yaml\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: \
                        \"a\"\n--- {apiVersion: v1, kind: Secret, metadata: {name: b}}\n---\n\n---\nkind: List\nitems:\n- kind: \
                        CustomResourceDefinition\n  apiVersion: apiextensions.k8s.io/v1\n  metadata: {name: c.d, annotations: \
                        {helm.sh/resource-policy: Keep}}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: e}\ndata:\n  \
                        text: |\n    ---\n    kind: Namespace\n";
        let found = read(manifest).unwrap();
        let found: Vec<_> = found.iter().map(|object| (object.kind.as_str(), &*object.name, object.is_kept)).collect();
        let wanted = [
            ("Namespace", "a", false),
            ("Secret", "b", false),
            ("CustomResourceDefinition", "c.d", true),
            ("ConfigMap", "e", false),
        ];
        assert_eq!(found, wanted);
        read("---\n a: b\n  c: [").unwrap_err();
    }
}
