//! What is taken out of a configuration before it becomes an object (D10), and what looks wrong in it.
//!
//! Findings name fields and keys, never values (D25).

use std::borrow::Cow;
use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::marks::{COMPONENT_ID, DESIGN_ID, DESIGN_VERSION};
use super::values;
use crate::document::{At, Entry, Map, Node, Path, Value};
use crate::problem::quoted;

/// Annotations that say what somebody applied: kubectl, and the executor (L4, L6). Of a design they would be untrue.
const OF_APPLIERS: [&str; 3] =
    ["kubectl.kubernetes.io/last-applied-configuration", "switchyard.dev/applied", "switchyard.dev/depends-on"];
const SERVER_OWNED: [&str; 8] = [
    "managedFields",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "selfLink",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

/// What cleaning found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Fields of the server that were dropped, as paths below the configuration.
    pub server_fields: Vec<String>,
    /// Whether `generateName` was dropped.
    pub generate_name: bool,
    /// What looks wrong.
    pub suspicious: Vec<Suspicion>,
    /// How much more looks wrong than is told.
    pub more: usize,
}

/// Something that looks wrong.
#[derive(Debug, PartialEq, Eq)]
pub struct Suspicion {
    /// Path below the configuration.
    pub path: Path,
    /// Where it stands.
    pub at: At,
    /// A sentence.
    pub message: String,
}

impl Cleaned {
    /// As much is told of one component at most: a map can have hundreds of thousands of keys.
    const MOST: usize = 1_000;

    fn suspect(&mut self, at: At, path: impl FnOnce() -> Path, message: impl FnOnce() -> String) {
        match self.suspicious.len() {
            Self::MOST => self.more += 1,
            _ => self.suspicious.push(Suspicion { path: path(), at, message: message() }),
        }
    }
}

/// Takes out what the server owns and what the component says elsewhere.
pub fn clean(configuration: &mut Map<'_>, api_version: &str, kind: &str) -> Cleaned {
    let mut cleaned = Cleaned::default();
    if configuration.remove("status").is_some() {
        cleaned.server_fields.push("status".into());
    }
    if let Some(Value::Map(metadata)) = configuration.get_mut("metadata").map(|node| &mut node.value) {
        metadata_fields(metadata, &mut cleaned);
    }
    for (key, said) in [("apiVersion", api_version), ("kind", kind)] {
        if let Some(node) = configuration.remove(key).filter(|node| node.as_str() != Some(said)) {
            let found = node.as_str().map_or(String::new(), |found| format!(" {}", quoted(found)));
            let message =
                format!("`{key}`{found} in the configuration is not used; the component says {}", quoted(said));
            cleaned.suspect(node.at, || Path::root().key(key), || message);
        }
    }
    // Where Meshery finds the namespace of a chart; an object has none there.
    let namespace = configuration.get("metadata").and_then(|metadata| metadata.get(&["namespace"]));
    let same = match (configuration.get("namespace"), namespace) {
        (Some(top), Some(inner)) => top.value == inner.value,
        (top, _) => top.is_none_or(Node::is_null),
    };
    if let Some(node) = configuration.remove("namespace").filter(|_| !same) {
        let message = "`namespace` at the top of the configuration is not used; an object's namespace is \
                       `metadata.namespace`";
        cleaned.suspect(node.at, || Path::root().key("namespace"), || message.into());
    }
    if api_version == "v1" && matches!(kind, "Secret" | "ConfigMap") {
        data(configuration, kind, &mut cleaned);
    }
    for values::Wrong { path, at, message } in values::wrong(configuration, api_version, kind) {
        cleaned.suspect(at, || path, || message);
    }
    cleaned
}

fn metadata_fields(metadata: &mut Map<'_>, cleaned: &mut Cleaned) {
    for field in SERVER_OWNED {
        if metadata.remove(field).is_some() {
            cleaned.server_fields.push(format!("metadata.{field}"));
        }
    }
    cleaned.generate_name = metadata.remove("generateName").is_some_and(|node| node.as_str() != Some(""));
    let annotations = metadata.get_mut("annotations").map(|node| &mut node.value);
    if let Some(Value::Map(annotations)) = annotations {
        for key in OF_APPLIERS {
            if annotations.remove(key).is_some() {
                cleaned.server_fields.push(Path::root().keys(&["metadata", "annotations", key]).into());
            }
        }
    }
    for field in ["labels", "annotations"] {
        let Some(Value::Map(map)) = metadata.get(field).map(|node| &node.value) else { continue };
        for entry in map.iter() {
            let path = || Path::root().keys(&["metadata", field, &entry.key]);
            let ours = matches!(entry.key.as_ref(), DESIGN_ID | DESIGN_VERSION | COMPONENT_ID);
            if !ours && !matches!(entry.node.value, Value::String(_) | Value::Null) {
                let found = entry.node.value.type_name();
                let message = || format!("{} is {found} and must be text; put it in quotes", quoted(&entry.key));
                cleaned.suspect(entry.node.at, path, message);
            }
            if entry.key.contains(' ') {
                let message = || format!("the key {} has a space in it, which Kubernetes refuses", quoted(&entry.key));
                cleaned.suspect(entry.node.at, path, message);
            }
        }
    }
}

/// Whether the entries of a field are bytes, which JSON holds in base64.
fn is_base64_wanted(kind: &str, field: &str) -> bool {
    matches!((kind, field), ("Secret", "data") | ("ConfigMap", "binaryData"))
}

/// Where a text goes that is no base64.
fn way_out(kind: &str) -> &'static str {
    match kind {
        "Secret" => "text as it is belongs into `stringData`",
        _ => "text as it is belongs into `data`",
    }
}

/// Looks at the data of a Secret or ConfigMap, and turns `stringData` into `data`: written as it stands, a key that is
/// later taken out of the design would stay in the cluster, because the server owns what it made of it.
fn data(configuration: &mut Map<'_>, kind: &str, cleaned: &mut Cleaned) {
    for field in ["data", "stringData", "binaryData"] {
        let Some(Value::Map(map)) = configuration.get(field).map(|node| &node.value) else { continue };
        for entry in map.iter() {
            let path = || Path::root().keys(&[field, &entry.key]);
            if !matches!(entry.node.value, Value::String(_) | Value::Null) {
                let found = entry.node.value.type_name();
                let key = || quoted(&entry.key);
                let message = || format!("the entry {} is {found} and must be text; put it in quotes", key());
                cleaned.suspect(entry.node.at, path, message);
            }
            if is_base64_wanted(kind, field) && entry.node.as_str().is_some_and(|text| !values::is_base64(text)) {
                let message = || format!("the entry {} is no base64; {}", quoted(&entry.key), way_out(kind));
                cleaned.suspect(entry.node.at, path, message);
            }
            if entry.key.contains(' ') {
                let message = || format!("the key {} has a space in it, which Kubernetes refuses", quoted(&entry.key));
                cleaned.suspect(entry.node.at, path, message);
            }
        }
    }
    if kind != "Secret" {
        return;
    }
    let plain = match configuration.get("stringData").map(|node| &node.value) {
        Some(Value::Map(map)) => map.iter().all(|entry| matches!(entry.node.value, Value::String(_))),
        _ => false,
    };
    let takes = configuration.get("data").is_none_or(|data| data.is_null() || data.as_map().is_some());
    if !plain || !takes {
        // Nothing that could be encoded; the API server says what is wrong with it.
        return;
    }
    if let Some(Node { value: Value::Map(strings), .. }) = configuration.remove("stringData") {
        let data = configuration.map_mut("data");
        let places: HashMap<Cow<'_, str>, usize> =
            data.iter().enumerate().map(|(index, entry)| (entry.key.clone(), index)).collect();
        for Entry { key, node } in strings.0 {
            let encoded = Node::string(At::START, STANDARD.encode(node.as_str().unwrap_or_default()));
            match places.get(&key) {
                Some(&index) => data.0[index].node = encoded,
                // Keys of one map are unique, so those that come in are no concern of each other.
                None => data.0.push(Entry { key, node: encoded }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Limits, Text, map_to_json, read};

    fn cleaned(api_version: &str, kind: &str, json: &str) -> (String, Cleaned) {
        let (node, _) = read(Text::new(json), &Limits::default());
        let Some(Node { value: Value::Map(mut map), .. }) = node else { panic!("a map") };
        let cleaned = clean(&mut map, api_version, kind);
        (map_to_json(&map), cleaned)
    }

    #[test]
    fn what_the_server_owns_is_dropped() {
        let (json, cleaned) = cleaned(
            "apps/v1",
            "Deployment",
            r#"{"metadata":{"uid":"u","resourceVersion":"1","generation":1,"creationTimestamp":null,"selfLink":"",
            "managedFields":[],"generateName":"x-","finalizers":["a"],"annotations":
            {"kubectl.kubernetes.io/last-applied-configuration":"canary","switchyard.dev/applied":"x","b":"c"}},"status":{"x":1},"spec":{"a":null}}"#,
        );
        assert_eq!(json, r#"{"metadata":{"finalizers":["a"],"annotations":{"b":"c"}},"spec":{"a":null}}"#);
        assert_eq!(cleaned.server_fields.len(), 9);
        assert!(cleaned.generate_name);
        assert_eq!(cleaned.suspicious, []);
    }

    #[test]
    fn what_the_component_says_elsewhere_is_dropped() {
        let (json, cleaned) =
            cleaned("v1", "Pod", r#"{"apiVersion":"v1","kind":"Node","namespace":"a","metadata":{"namespace":"b"}}"#);
        assert_eq!(json, r#"{"metadata":{"namespace":"b"}}"#);
        let fields: Vec<_> = cleaned.suspicious.iter().map(|it| it.path.to_string()).collect();
        assert_eq!(fields, ["kind", "namespace"]);
    }

    #[test]
    fn string_data_becomes_data_and_wins() {
        let (json, cleaned) =
            cleaned("v1", "Secret", r#"{"data":{"a":"eA==","b":"eQ=="},"stringData":{"a":"canary","c":""}}"#);
        assert_eq!(json, r#"{"data":{"a":"Y2FuYXJ5","b":"eQ==","c":""}}"#);
        assert_eq!(cleaned, Cleaned::default());
    }

    #[test]
    fn values_that_must_be_text_are_noticed_and_not_told() {
        let (json, cleaned) =
            cleaned("v1", "Secret", r#"{"metadata":{"labels":{"v":1.10}},"data":{"port":5432},"stringData":{"n":17}}"#);
        assert!(json.contains("1.10") && json.contains("5432") && json.contains("17"));
        let fields: Vec<_> = cleaned.suspicious.iter().map(|it| it.path.to_string()).collect();
        assert_eq!(fields, ["metadata.labels.v", "data.port", "stringData.n"]);
        assert!(cleaned.suspicious.iter().all(|it| !it.message.contains("5432") && !it.message.contains("17")));
    }
}
