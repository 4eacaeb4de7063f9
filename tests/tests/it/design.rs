//! Small designs for tests, as YAML that users would write.

use std::fmt::Write as _;

use uuid::Uuid;

/// A design in the making.
pub(crate) struct Design {
    id: Uuid,
    components: String,
}

impl Design {
    pub(crate) fn new() -> Self {
        Self { id: Uuid::new_v4(), components: String::new() }
    }

    /// Begins another version of the same design, without components.
    pub(crate) fn next_version(&self) -> Self {
        Self { id: self.id, components: String::new() }
    }

    pub(crate) fn id(&self) -> String {
        self.id.to_string()
    }

    /// Adds a component of the model `kubernetes`. `configuration` is YAML in flow style.
    pub(crate) fn component(self, name: &str, kind: (&str, &str), depends_on: &[&str], configuration: &str) -> Self {
        self.of_model("kubernetes", name, kind, depends_on, configuration)
    }

    /// Adds a component of any model.
    pub(crate) fn of_model(
        mut self,
        model: &str,
        name: &str,
        (version, kind): (&str, &str),
        depends_on: &[&str],
        configuration: &str,
    ) -> Self {
        writeln!(
            self.components,
            "  - id: {}\n    displayName: {name}\n    component: {{version: {version}, kind: {kind}}}\n    \
             modelReference: {{name: {model}}}\n    metadata: {{dependsOn: [{}]}}\n    configuration: {configuration}",
            Uuid::new_v4(),
            depends_on.join(", ")
        )
        .expect("a string grows as needed");
        self
    }

    /// Adds a ConfigMap with one entry.
    pub(crate) fn config_map(self, name: &str, namespace: &str, depends_on: &[&str]) -> Self {
        let configuration = format!("{{metadata: {{namespace: {namespace}}}, data: {{colour: blue}}}}");
        self.component(name, ("v1", "ConfigMap"), depends_on, &configuration)
    }

    /// Adds a drawing that is set aside.
    pub(crate) fn drawing(mut self, name: &str) -> Self {
        writeln!(
            self.components,
            "  - id: {}\n    displayName: {name}\n    component: {{version: core.meshery.io/v1alpha1, kind: TextBox}}\n    \
             modelReference: {{name: meshery-core}}\n    metadata: {{isAnnotation: true, dependsOn: []}}",
            Uuid::new_v4()
        )
        .expect("a string grows as needed");
        self
    }

    pub(crate) fn text(&self) -> String {
        format!(
            "id: {}\nname: Test\nschemaVersion: designs.meshery.io/v1beta3\nversion: 0.0.7\ncomponents:\n{}relationships: []\n",
            self.id, self.components
        )
    }
}
