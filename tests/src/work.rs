//! What everybody is given to do: the same objects, each in the form it wants.

use std::fmt::Write as _;

use anyhow::ensure;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::json;

/// The design that all objects are marked as belonging to.
const DESIGN: &str = "7d0f2f4e-3f0e-4f3b-9a52-0b4a51f6d0ff";
/// The mark, as the API server selects by it.
const MARKED: &str = "design.meshery.io/id=7d0f2f4e-3f0e-4f3b-9a52-0b4a51f6d0ff";

/// Which component of a design waits for which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Nothing depends on anything.
    Flat,
    /// Everything depends on the first.
    Fan,
    /// Each depends on the one before.
    Chain,
    /// Layers of ten; each depends on three of the layer before.
    Layered,
}

impl Shape {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::Fan => "fan",
            Self::Chain => "chain",
            Self::Layered => "layered",
        }
    }

    fn depends_on(self, number: usize) -> Vec<String> {
        let name = |number: usize| format!("object-{number}");
        match self {
            Self::Flat => Vec::new(),
            Self::Fan => (number > 0).then(|| name(0)).into_iter().collect(),
            Self::Chain => number.checked_sub(1).map(name).into_iter().collect(),
            Self::Layered if number < 10 => Vec::new(),
            Self::Layered => (0..3).map(|k| name(number / 10 * 10 - 10 + (number + k * 3) % 10)).collect(),
        }
    }
}

/// So many ConfigMaps of 1 KiB in a namespace of their own.
#[derive(Debug, Clone)]
pub struct Work {
    /// Where they go.
    pub namespace: String,
    /// How many there are.
    pub objects: usize,
    /// What order a design asks for; a plain list of objects asks for none.
    pub shape: Shape,
}

impl Work {
    /// Returns the objects as they shall be, one JSON document a line.
    pub fn lines(&self) -> String {
        let mut lines = String::new();
        for number in 0..self.objects {
            writeln!(lines, "{}", self.object(&number.to_string(), &component(number)))
                .expect("a string grows as needed");
        }
        lines
    }

    /// Returns a chart's template that comes to the same.
    pub fn template(&self) -> String {
        let object = self.object("{{ . }}", "00000000-0000-4000-8000-{{ printf \"%012d\" . }}");
        // JSON has escaped the quotes of the template's own language.
        let object = object.replace("\\\"", "\"");
        format!("{{{{- range until {} }}}}\n---\n{object}\n{{{{- end }}}}\n", self.objects)
    }

    /// Returns a design that comes to the same.
    pub fn design(&self) -> String {
        let components: Vec<_> = (0..self.objects)
            .map(|number| {
                json!({
                    "id": component(number),
                    "schemaVersion": "components.meshery.io/v1beta2",
                    "version": "v1.0.0",
                    "displayName": format!("object-{number}"),
                    "component": {"kind": "ConfigMap", "version": "v1", "schema": ""},
                    "model": null,
                    "modelReference": {"name": "kubernetes", "model": {"version": "v1.37.0"}},
                    "metadata": {"isAnnotation": false, "isNamespaced": true, "dependsOn": self.shape.depends_on(number)},
                    "configuration": {"metadata": {"namespace": self.namespace}, "data": {"text": text()}},
                })
            })
            .collect();
        json!({
            "id": DESIGN,
            "name": "Comparison",
            "schemaVersion": "designs.meshery.io/v1beta3",
            "version": "0.0.1",
            "components": components,
        })
        .to_string()
    }

    fn object(&self, number: &str, component: &str) -> String {
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": format!("object-{number}"),
                "namespace": self.namespace,
                "labels": {"design.meshery.io/id": DESIGN},
                "annotations": {"design.meshery.io/version": "0.0.1", "component.meshery.io/id": component},
            },
            "data": {"text": text()},
        })
        .to_string()
    }

    /// Creates the namespace.
    pub async fn prepare(&self, client: &Client) -> anyhow::Result<()> {
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": self.namespace}}))?;
        Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
        Ok(())
    }

    /// Proves that the cluster holds every object, as it shall be.
    pub async fn verify(&self, client: &Client) -> anyhow::Result<()> {
        let there = self.api(client).list(&ListParams::default().labels(MARKED)).await?.items;
        let namespace = &self.namespace;
        ensure!(there.len() == self.objects, "{namespace} holds {} of {} objects", there.len(), self.objects);
        for object in &there {
            let is_whole = object.data.as_ref().and_then(|data| data.get("text")) == Some(&text());
            ensure!(is_whole, "{namespace} holds {:?}, which is not what it shall be", object.metadata.name);
        }
        Ok(())
    }

    /// Removes the objects; the namespace stays, since only a controller manager removes one.
    pub async fn clear(&self, client: &Client) -> anyhow::Result<()> {
        let nothing = DeleteParams::default();
        self.api(client).delete_collection(&nothing, &ListParams::default().labels(MARKED)).await?;
        let left = self.api(client).list_metadata(&ListParams::default().labels(MARKED)).await?.items.len();
        ensure!(left == 0, "{} still holds {left} objects", self.namespace);
        Ok(())
    }

    fn api(&self, client: &Client) -> Api<ConfigMap> {
        Api::namespaced(client.clone(), &self.namespace)
    }
}

fn component(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

/// One KiB.
fn text() -> String {
    "x".repeat(1024)
}
