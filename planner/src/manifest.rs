//! Component -> Kubernetes object (D10, D11), or the declaration that an adapter gets.
//!
//! What the design says is kept as it was written: numbers, `null`, empty maps and the order of keys. Only what the server
//! owns is taken away, and the marks are added.

mod clean;
mod kinds;
mod marks;
mod name;
mod values;
mod versions;

pub use clean::{Cleaned, Suspicion, clean};
pub use kinds::{is_cluster_scoped, is_list};
pub use marks::Marks;
pub use name::{Chosen, Rule, choose, is_label};
pub use versions::instead_of;

use std::borrow::Cow;

use crate::budget::{Budget, Spent};
use crate::design::{Component, Position};
use crate::document::{At, Entry, Map, Node, Value, entries_to_json};

/// What makes two objects the same object (D15): the API version plays no part, and neither does the namespace of kinds
/// that are known to have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The kind.
    pub kind: &'a str,
    /// The namespace; empty for a cluster-scoped kind.
    pub namespace: &'a str,
    /// The object's name.
    pub name: &'a str,
}

/// The API group of an apiVersion; empty for the core group.
pub fn group(api_version: &str) -> &str {
    api_version.rsplit_once('/').map_or("", |(group, _)| group)
}

/// The namespace that a component's configuration gives, when it gives one.
pub fn namespace<'t>(component: &Component<'t>) -> Option<Cow<'t, str>> {
    match &component.configuration.get("metadata")?.get(&["namespace"])?.value {
        Value::String(namespace) if !namespace.is_empty() => Some(namespace.clone()),
        _ => None,
    }
}

/// The object of a component on the direct path, as JSON. The component is used up.
///
/// The namespace is written out, the default one too, except for kinds known to have none; what other kinds have only the
/// cluster knows, and the executor drops what does not belong.
pub fn object<'a>(
    component: Component<'a>,
    name: Cow<'a, str>,
    namespace: Option<Cow<'a, str>>,
    marks: &'a Marks,
    budget: &Budget,
) -> Result<String, Spent> {
    let Component { api_version, kind, mut configuration, id, .. } = component;
    let given = configuration.remove("metadata").map(|node| node.value);
    let mut metadata = Map::with_capacity(6);
    metadata.set("name", Node::string(At::START, name));
    if let Some(namespace) = namespace {
        metadata.set("namespace", Node::string(At::START, namespace));
    }
    if let Some(Value::Map(given)) = given {
        let rest = given.0.into_iter().filter(|entry| !matches!(entry.key.as_ref(), "name" | "namespace"));
        metadata.0.extend(rest);
    }
    marks.put(&mut metadata, id);
    let head = [
        ("apiVersion", Node::string(At::START, api_version)),
        ("kind", Node::string(At::START, kind)),
        ("metadata", Node::new(At::START, Value::Map(metadata))),
    ];
    let head = head.map(|(key, node)| Entry { key: Cow::Borrowed(key), node });
    entries_to_json(head.iter().chain(configuration.iter()), budget)
}

/// What an adapter gets: the component in the shape of the current generation, with marks, as JSON. The component is used
/// up. Legacy components are converted as Meshery does it; traits that are no drawing are kept beside.
///
/// As on the direct path, `displayName` is the name of the object, and the namespace is written out: adapters in the field
/// know no default, and some of them panic without one.
pub fn declaration<'a>(
    component: Component<'a>,
    name: Cow<'a, str>,
    namespace: Option<Cow<'a, str>>,
    marks: &'a Marks,
    budget: &Budget,
) -> Result<String, Spent> {
    let Component { position, id, kind, api_version, model, model_version, mut configuration, rest, .. } = component;
    let metadata = configuration.map_mut("metadata");
    if let Some(namespace) = namespace {
        metadata.set("namespace", Node::string(At::START, namespace));
    }
    marks.put(metadata, id.clone());
    let configuration = Node::new(At::START, Value::Map(configuration));
    let text = |text| Node::string(At::START, text);
    let mut map = match position {
        Position::Current(_) => rest,
        Position::Legacy(_) => {
            let mut map = Map::default();
            map.set("schemaVersion", text("components.meshery.io/v1beta1".into()));
            map.set("version", text("v1.0.0".into()));
            map.set("format", text("JSON".into()));
            let of_model = map.map_mut("model");
            of_model.set("name", text(model));
            of_model.map_mut("model").set("version", text(model_version));
            if !rest.is_empty() {
                map.set("traits", Node::new(At::START, Value::Map(rest)));
            }
            map
        }
    };
    map.set("id", text(id));
    map.set("displayName", text(name));
    let definition = map.map_mut("component");
    definition.set("kind", text(kind));
    definition.set("version", text(api_version));
    map.set("configuration", configuration);
    entries_to_json(map.iter(), budget)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_what_stands_before_the_version() {
        assert_eq!(group("v1"), "");
        assert_eq!(group("apps/v1"), "apps");
    }
}
