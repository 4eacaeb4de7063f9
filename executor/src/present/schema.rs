//! An object held against the schema that a definition of the design gives its kind (L11). Pure.
//!
//! A definition has a structural schema: JSON Schema with ways of Kubernetes' own
//! (<https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema>).
//! Those are put into JSON Schema, and nulls and defaults are treated as an API server does, so that a library can judge. What
//! it does not look at: formats, rules (`x-kubernetes-validations`), and whatever admission would say.

use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::{Map, Value, json};

use crate::answers::failure::Cause;

/// Largest compiled pattern, in bytes.
const PATTERN: usize = 1 << 20;
/// Most findings in one object.
const MOST: usize = 20;
/// Keywords that mean in a structural schema what they mean in JSON Schema.
const COPIED: [&str; 14] = [
    "required",
    "enum",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
];

/// The schema of one version of a kind.
pub(crate) struct Schema {
    validator: Validator,
    namespaced: bool,
    /// As the definition has it.
    structural: Value,
}

/// Why a definition gives no schema to judge by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// It does not serve the version.
    NotServed,
    /// What it has is no schema that could be read.
    Unreadable,
}

impl Schema {
    /// The schema that a definition, as JSON, has for a version.
    pub(crate) fn of(definition: &[u8], version: &str) -> Result<Self, Unusable> {
        let definition: Value = serde_json::from_slice(definition).map_err(|_| Unusable::Unreadable)?;
        let versions = definition["spec"]["versions"].as_array().ok_or(Unusable::Unreadable)?;
        let serves = |it: &&Value| it["name"] == version && it["served"] == true;
        let version = versions.iter().find(serves).ok_or(Unusable::NotServed)?;
        let structural = version["schema"]["openAPIV3Schema"].clone();
        if !structural.is_object() {
            return Err(Unusable::Unreadable);
        }
        let validator = jsonschema::options()
            .with_draft(Draft::Draft4)
            .should_validate_formats(false)
            .with_pattern_options(PatternOptions::regex().size_limit(PATTERN).dfa_size_limit(PATTERN))
            .build(&as_json_schema(&structural, Within::Root))
            .map_err(|_| Unusable::Unreadable)?;
        Ok(Self { validator, namespaced: definition["spec"]["scope"] != "Cluster", structural })
    }

    /// Whether objects of the kind lie in namespaces.
    pub(crate) fn is_namespaced(&self) -> bool {
        self.namespaced
    }

    /// What an API server would find wrong with an object. Names fields and what the schema wants, never values.
    pub(crate) fn judge(&self, object: &Value) -> Vec<Cause> {
        let mut object = object.clone();
        let mut found = Vec::new();
        if !object["metadata"]["name"].as_str().is_some_and(is_subdomain) {
            let message = "a name has at most 253 lower-case letters, digits, `-` and `.`, and begins and ends with a letter or digit";
            found.push(Cause {
                field: "metadata.name".into(),
                reason: "FieldValueInvalid".into(),
                message: message.into(),
            });
        }
        complete(&self.structural, &mut object, &mut String::new(), &mut found);
        let errors = self.validator.iter_errors(&object).take(MOST);
        found.extend(errors.map(|error| Cause {
            field: field(error.instance_path().as_str()),
            reason: "FieldValueInvalid".into(),
            message: error.masked_with("the value").to_string(),
        }));
        found.truncate(MOST);
        found
    }
}

/// Whether a text is a DNS-1123 subdomain, as the name of every custom resource is.
fn is_subdomain(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_label =
        |text: &str| !text.is_empty() && text.bytes().all(fits) && !text.starts_with('-') && !text.ends_with('-');
    text.len() <= 253 && text.split('.').all(is_label)
}

/// Where in a schema.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    Root,
    Structure,
    /// In `allOf`, `anyOf`, `oneOf` or `not`, which only narrow down values.
    Junctor,
}

/// The JSON Schema that judges as an API server does by a structural one.
fn as_json_schema(schema: &Value, within: Within) -> Value {
    let Some(schema) = schema.as_object() else { return schema.clone() };
    let is_set = |key: &str| schema.get(key) == Some(&Value::Bool(true));
    let below = if within == Within::Junctor { Within::Junctor } else { Within::Structure };
    let mut out: Map<String, Value> =
        COPIED.iter().filter_map(|&key| Some((key.to_owned(), schema.get(key)?.clone()))).collect();
    let nullable = is_set("nullable");
    let mut types: Vec<&str> = match schema.get("type").and_then(Value::as_str) {
        _ if is_set("x-kubernetes-int-or-string") => vec!["integer", "string"],
        Some(one) => vec![one],
        None => Vec::new(),
    };
    if nullable && !types.is_empty() {
        types.push("null");
    }
    if !types.is_empty() {
        out.insert("type".into(), json!(types));
    }
    if let Some(Value::Array(values)) = out.get_mut("enum").filter(|_| nullable) {
        values.push(Value::Null);
    }
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        let mut properties: Map<_, _> =
            properties.iter().map(|(key, schema)| (key.clone(), as_json_schema(schema, below))).collect();
        let is_object = within == Within::Root || is_set("x-kubernetes-embedded-resource");
        if is_object {
            for key in ["apiVersion", "kind", "metadata"] {
                properties.entry(key).or_insert_with(|| json!({}));
            }
        }
        // Objects without any declared field take whatever they are given, or lose it: that is left open.
        let takes_more = is_set("x-kubernetes-preserve-unknown-fields") || schema.contains_key("additionalProperties");
        let is_closed = within != Within::Junctor && !takes_more && !properties.is_empty();
        // Which fields metadata has is known to API servers, whatever a schema says.
        if let Some(metadata) = properties.get_mut("metadata").filter(|_| is_object).and_then(Value::as_object_mut) {
            metadata.remove("additionalProperties");
        }
        out.insert("properties".into(), properties.into());
        if is_closed {
            out.insert("additionalProperties".into(), false.into());
        }
    }
    for key in ["additionalProperties", "items", "not"] {
        let within = if key == "not" { Within::Junctor } else { below };
        if let Some(inner) = schema.get(key) {
            out.insert(key.into(), as_json_schema(inner, within));
        }
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        if let Some(inner) = schema.get(key).and_then(Value::as_array) {
            out.insert(key.into(), inner.iter().map(|inner| as_json_schema(inner, Within::Junctor)).collect());
        }
    }
    if schema.get("x-kubernetes-list-type").is_some_and(|kind| kind == "set") {
        out.insert("uniqueItems".into(), true.into());
    }
    out.into()
}

/// Makes of an object what an API server would judge: nulls go where none may be, and defaults come in. Items of a list that share
/// their key are found on the way, which JSON Schema has no word for.
fn complete(schema: &Value, value: &mut Value, path: &mut String, found: &mut Vec<Cause>) {
    let length = path.len();
    match value {
        Value::Object(map) => {
            let empty = Map::new();
            let properties = schema["properties"].as_object().unwrap_or(&empty);
            map.retain(|key, value| {
                !value.is_null() || properties.get(key).is_none_or(|schema| schema["nullable"] == true)
            });
            for (key, schema) in properties {
                if let Some(default) = schema.get("default").filter(|_| !map.contains_key(key)) {
                    map.insert(key.clone(), default.clone());
                }
            }
            for (key, value) in map.iter_mut() {
                let schema = properties.get(key).unwrap_or(&schema["additionalProperties"]);
                path.push('/');
                path.push_str(&key.replace('~', "~0").replace('/', "~1"));
                complete(schema, value, path, found);
                path.truncate(length);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                path.push_str(&format!("/{index}"));
                complete(&schema["items"], item, path, found);
                path.truncate(length);
            }
            let keys: Vec<_> = match schema["x-kubernetes-list-type"] == "map" {
                true => schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().collect(),
                false => return,
            };
            let key_of = |item: &Value| {
                let values = keys.iter().map(|key| item.get(key.as_str()?).map(Value::to_string));
                values.collect::<Option<Vec<_>>>()
            };
            let mut seen = std::collections::HashSet::new();
            if items.iter().filter_map(key_of).any(|key| !seen.insert(key)) && found.len() < MOST {
                let message = "two items have the same key".into();
                found.push(Cause { field: field(path), reason: "FieldValueDuplicate".into(), message });
            }
        }
        _ => {}
    }
}

/// A JSON Pointer as people write paths: `spec.ports[0].name`.
fn field(pointer: &str) -> String {
    let mut path = String::new();
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        match step.parse::<usize>() {
            Ok(index) => path.push_str(&format!("[{index}]")),
            Err(_) if path.is_empty() => path.push_str(&step),
            Err(_) => path.push_str(&format!(".{step}")),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition that `classify/refusals.jsonl` was made with.
    fn definition() -> Vec<u8> {
        let spec = json!({
            "type": "object", "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 10},
                "color": {"type": "string", "enum": ["red", "blue"]},
                "code": {"type": "string", "pattern": "^[a-z]+$"},
                "at": {"type": "string", "format": "date-time"},
                "tags": {"type": "array", "maxItems": 2, "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                "ports": {
                    "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                    "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
                },
                "either": {
                    "type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                    "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
                },
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "amount": {"x-kubernetes-int-or-string": true},
                "maybe": {"type": "string", "nullable": true, "enum": ["x"]},
                "level": {"type": "integer", "default": 3},
                "inner": {"type": "object", "required": ["x"], "properties": {"x": {"type": "integer", "default": 1}}},
            },
        });
        let schema = json!({"type": "object", "required": ["spec"], "properties": {"spec": spec}});
        let version = |name, served| json!({"name": name, "served": served, "schema": {"openAPIV3Schema": schema}});
        json!({"spec": {"versions": [version("v1", true), version("v0", false)]}}).to_string().into_bytes()
    }

    fn found(spec: &Value) -> Vec<String> {
        let schema = Schema::of(&definition(), "v1").unwrap();
        let object = json!({
            "apiVersion": "ex.io/v1", "kind": "Widget", "metadata": {"name": "w", "labels": {"a": "b"}}, "spec": spec,
        });
        schema.judge(&object).into_iter().map(|cause| cause.field).collect()
    }

    #[test]
    fn what_an_api_server_takes_is_fine() {
        for spec in [
            json!({"size": 1}),
            json!({"size": 10, "color": "red", "code": "ab", "tags": ["a", "b"], "ports": [{"name": "a"}, {"name": "b"}]}),
            json!({"size": 1, "free": {"any": {"thing": [1]}}, "labels": {"x": "y"}, "amount": "10%", "maybe": null}),
            // A null where none may be is as good as nothing, and a default comes in.
            json!({"size": 1, "color": null, "amount": 3, "inner": {}, "level": null}),
            // Formats are not looked at.
            json!({"size": 1, "at": "noon"}),
        ] {
            assert_eq!(found(&spec), [""; 0], "{spec}");
        }
    }

    #[test]
    fn what_an_api_server_refuses_is_found_by_its_field() {
        for (spec, field) in [
            (json!({}), "spec"),
            (json!({"size": null}), "spec"),
            (json!({"size": "big"}), "spec.size"),
            (json!({"size": 11}), "spec.size"),
            (json!({"size": 1, "color": "green"}), "spec.color"),
            (json!({"size": 1, "code": "A1"}), "spec.code"),
            (json!({"size": 1, "tags": ["a", "b", "c"]}), "spec.tags"),
            (json!({"size": 1, "tags": ["a", "a"]}), "spec.tags"),
            (json!({"size": 1, "ports": [{"name": "a"}, {"name": "a"}]}), "spec.ports"),
            (json!({"size": 1, "ports": [{}]}), "spec.ports[0]"),
            (json!({"size": 1, "either": {"a": "x", "b": "y"}}), "spec.either"),
            (json!({"size": 1, "weight": 2}), "spec"),
            (json!({"size": 1, "labels": {"x": 1}}), "spec.labels.x"),
            (json!({"size": 1, "amount": true}), "spec.amount"),
            (json!({"size": 1, "maybe": "y"}), "spec.maybe"),
        ] {
            assert_eq!(found(&spec), [field], "{spec}");
        }
        let schema = Schema::of(&definition(), "v1").unwrap();
        let named = |name: &str| schema.judge(&json!({"metadata": {"name": name}, "spec": {"size": 1}})).len();
        assert_eq!((named("w.a-1"), named("W_1"), named("")), (0, 1, 1));
        let causes =
            schema.judge(&json!({"metadata": {"name": "w"}, "spec": {"size": 1, "code": "CANARY-1", "more": 1}}));
        let told: Vec<_> = causes.iter().map(|cause| cause.message.as_str()).collect();
        assert!(told.iter().all(|text| !text.contains("CANARY")), "{told:?}");
        assert!(told.iter().any(|text| text.contains("'more'")), "{told:?}");
    }

    #[test]
    fn only_a_version_that_is_served_has_a_schema() {
        assert_eq!(Schema::of(&definition(), "v0").err(), Some(Unusable::NotServed));
        assert_eq!(Schema::of(&definition(), "v2").err(), Some(Unusable::NotServed));
        assert_eq!(Schema::of(b"{}", "v1").err(), Some(Unusable::Unreadable));
        let odd = |schema: Value| {
            let version = json!({"name": "v1", "served": true, "schema": {"openAPIV3Schema": schema}});
            Schema::of(json!({"spec": {"versions": [version]}}).to_string().as_bytes(), "v1").err()
        };
        // A pattern with what neither Go nor Rust reads.
        let pattern = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=a)"}}});
        assert_eq!(odd(pattern), Some(Unusable::Unreadable));
        assert_eq!(odd(json!({"type": "nothing"})), Some(Unusable::Unreadable));
        // References to elsewhere are no part of a structural schema.
        assert_eq!(odd(json!({"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:1/"}}})), None);
    }
}
