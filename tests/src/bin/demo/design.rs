//! The example design.

use std::io;

use anyhow::{Context as _, bail};
use serde::Deserialize;
use switchyard_proto::v1::{Operation, PlanRequest, RunOptions};

use super::{
    screen::{Paint, Screen},
    table::{Table, plain},
};
use switchyard_tests::client;

/// Where it lies in the repository.
pub(crate) const PATH: &str = "tests/examples/shop.yaml";
/// The text.
pub(crate) const TEXT: &str = include_str!("../../../examples/shop.yaml");

/// A design, as much of it as the demo itself has to know. The planner gets the text.
#[derive(Debug, Deserialize)]
pub(crate) struct Design {
    name: String,
    components: Vec<Component>,
}

/// A component of it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Component {
    /// Name.
    pub(crate) display_name: String,
    component: Definition,
    model: Model,
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Debug, Clone, Deserialize)]
struct Definition {
    kind: String,
}

#[derive(Debug, Clone, Deserialize)]
struct Model {
    name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    is_annotation: bool,
    depends_on: Vec<String>,
}

impl Component {
    /// Returns the kind.
    pub(crate) fn kind(&self) -> &str {
        &self.component.kind
    }
}

impl Design {
    /// Reads the example.
    pub(crate) fn example() -> anyhow::Result<Self> {
        serde_saphyr::from_str(TEXT).with_context(|| format!("{PATH} is no design"))
    }

    /// Returns the component with this name. Drawings do not count: nothing is done with them that could fail.
    pub(crate) fn component(&self, name: &str) -> anyhow::Result<&Component> {
        let choices = || self.components.iter().filter(|component| !component.metadata.is_annotation);
        if let Some(component) = choices().find(|component| component.display_name == name) {
            return Ok(component);
        }
        let names: Vec<&str> = choices().map(|component| component.display_name.as_str()).collect();
        bail!("there is no component `{name}` that could fail; there are {}", names.join(", "))
    }

    /// Makes the request to deploy it; `until_ready`: and to wait until what it puts there is ready.
    pub(crate) fn deploy(&self, clusters: &[&str], until_ready: bool) -> PlanRequest {
        let options = RunOptions { wait_until_ready: until_ready, ..RunOptions::default() };
        PlanRequest { options: Some(options), ..client::deploy(TEXT, clusters) }
    }

    /// Makes the request to take it down again.
    pub(crate) fn undeploy(&self, clusters: &[&str]) -> PlanRequest {
        PlanRequest { operation: Operation::Undeploy.into(), ..client::deploy(TEXT, clusters) }
    }

    /// Shows what it asks for.
    pub(crate) fn show(&self, screen: &mut Screen) -> io::Result<()> {
        screen.heading(&format!("The design: {}, {PATH}", self.name))?;
        let mut table = Table::new(&["component", "kind", "model", "dependsOn"]);
        for Component { display_name, component, model, metadata } in &self.components {
            let note = if metadata.is_annotation {
                (Paint::Faint, "(a drawing)".to_owned())
            } else {
                plain(metadata.depends_on.join(", "))
            };
            let name = (Paint::Strong, display_name.clone());
            table.row(vec![name, plain(&component.kind), plain(&model.name), note]);
        }
        let table = table.draw(screen);
        screen.block(&table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_file_holds_the_design_as_it_is() {
        let file: serde_json::Value =
            serde_json::from_str(include_str!("../../../examples/shop-request.json")).unwrap();
        let expected = serde_json::json!({"design": {"document": TEXT}, "clusters": ["east", "west"]});
        let how = "make it anew: jq -Rs '{design: {document: .}, clusters: [\"east\", \"west\"]}' \
                   tests/examples/shop.yaml > tests/examples/shop-request.json";
        assert!(file == expected, "{how}");
    }

    #[test]
    fn unknown_component_is_refused_with_the_choices() {
        let design = Design::example().unwrap();
        let error = design.component("dv").unwrap_err().to_string();
        assert!(error.contains("`dv`") && error.contains("db, db-service"), "{error}");
        assert!(!error.contains("Ask Kim"), "{error}");
    }
}
