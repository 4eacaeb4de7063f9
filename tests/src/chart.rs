//! Helm charts, and the places where they lie: an OCI registry, and a host that serves archives, well or badly. Both speak TLS
//! with certificates of an authority of their own, which whoever fetches must be told to trust.

mod archive;
mod host;
mod registry;

use std::{fs, path::PathBuf};

use anyhow::{Context as _, ensure};

pub use self::{
    archive::Archive,
    host::{Host, Serving},
    registry::Registry,
};
use crate::sandbox::{Folder, Tool, Toolbox};

/// A chart in the making.
#[derive(Debug, Clone)]
pub struct Chart {
    name: String,
    version: String,
    files: Vec<(String, Vec<u8>)>,
}

impl Chart {
    /// A chart that holds nothing, version 1.0.0.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), version: "1.0.0".into(), files: Vec::new() }
    }

    /// The same chart in another version.
    #[must_use]
    pub fn version(self, version: &str) -> Self {
        Self { version: version.to_owned(), ..self }
    }

    /// Adds a file.
    #[must_use]
    pub fn file(mut self, path: &str, content: impl Into<Vec<u8>>) -> Self {
        self.files.push((path.to_owned(), content.into()));
        self
    }

    /// Adds a ConfigMap with one entry.
    #[must_use]
    pub fn config_map(self, name: &str, value: &str) -> Self {
        let text =
            format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata: {{value: \"{value}\"}}\n");
        self.file(&format!("templates/{name}.yaml"), text)
    }

    /// Adds the definition of the kind `Widget`, where helm looks for definitions.
    #[must_use]
    pub fn widgets(self, group: &str) -> Self {
        self.file("crds/widgets.yaml", definition(group).to_string())
    }

    /// Adds the same as a template, so that it is one of the release's objects.
    #[must_use]
    pub fn widgets_of_the_release(self, group: &str) -> Self {
        self.file("templates/crds/widgets.yaml", definition(group).to_string())
    }

    /// Adds a role for the whole cluster, of this name.
    #[must_use]
    pub fn cluster_role(self, name: &str) -> Self {
        let text = format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: {name}}}\nrules: []\n"
        );
        self.file(&format!("templates/{name}.yaml"), text)
    }

    /// Adds a job that must end before anything is installed, and never does: no cluster of the sandbox runs it.
    #[must_use]
    pub fn endless_hook(self) -> Self {
        let text = "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: \"{{ .Release.Name }}-before\"\n  annotations: \
                    {helm.sh/hook: pre-install}\nspec:\n  template:\n    spec:\n      restartPolicy: Never\n      \
                    containers: [{name: wait, image: wait}]\n";
        self.file("templates/before.yaml", text)
    }

    /// Has helm package it, in a folder that lives as long as the answer.
    pub async fn package(&self) -> anyhow::Result<(PathBuf, Folder)> {
        let folder = Folder::new("chart")?;
        let source = folder.path().join(&self.name);
        let about = format!("apiVersion: v2\nname: {}\nversion: {}\n", self.name, self.version);
        for (path, content) in [("Chart.yaml".to_owned(), about.into_bytes())].iter().chain(&self.files) {
            let path = source.join(path);
            fs::create_dir_all(path.parent().context("a file lies in a folder")?)?;
            fs::write(&path, content)?;
        }
        let destination = folder.path().join("out");
        let mut command = Toolbox::get(&[Tool::Helm]).await?.command(Tool::Helm)?;
        command.arg("package").arg(&source).arg("--destination").arg(&destination).env("HOME", folder.path());
        run(command).await?;
        Ok((destination.join(format!("{}-{}.tgz", self.name, self.version)), folder))
    }
}

/// The definition of the kind `Widget`, as JSON.
pub fn definition(group: &str) -> serde_json::Value {
    serde_json::json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "x-kubernetes-preserve-unknown-fields": true}
            }}],
        },
    })
}

/// Runs a command to its end, which must be a good one.
async fn run(mut command: std::process::Command) -> anyhow::Result<()> {
    let output = tokio::task::spawn_blocking(move || command.output()).await?.context("failed to run helm")?;
    ensure!(output.status.success(), "helm: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
