//! Keys that Meshery's editor broke up with spaces (`image Pull Policy`) are put together again.
//!
//! Kubernetes has no field with a space in its name. Keys that are the user's own are left alone, so that nothing is
//! renamed behind a user's back: `data`, `stringData` and `binaryData` of ConfigMaps and Secrets, `metadata.labels` and
//! `metadata.annotations` at any depth, `matchLabels`, `nodeSelector`. Under `properties` those words are names in a
//! schema, and their contents are put together like everything else.

use std::borrow::Cow;

use crate::document::{At, Entry, Map, Node, Path, Value};

/// Two keys of one map that are the same once their spaces are gone.
pub(super) struct Clash<'a> {
    /// Where the second would stand, from the configuration down.
    pub(super) below: &'a dyn Fn() -> Path,
    /// The key without spaces.
    pub(super) key: &'a str,
    /// Where the value of the second stands.
    pub(super) at: At,
    /// Where the value of the first stands.
    pub(super) earlier: At,
}

/// Where a walk stands: the way back to the configuration, made a path only when there is something to tell.
#[derive(Clone, Copy)]
struct Trail<'a> {
    parent: Option<&'a Trail<'a>>,
    key: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

impl Trail<'_> {
    fn key(&self) -> Option<&str> {
        match self.key {
            Step::Key(key) => Some(key),
            Step::Index(_) => None,
        }
    }

    fn path(&self) -> Path {
        let path = self.parent.map(Trail::path).unwrap_or_default();
        match self.key {
            Step::Key(key) => path.key(key),
            Step::Index(index) => path.index(index),
        }
    }
}

/// What happened to a key.
pub(super) enum Finding<'a> {
    /// It was put together.
    Renamed {
        /// Where it stands now, from the configuration down.
        below: &'a dyn Fn() -> Path,
        /// The key with its spaces.
        key: &'a str,
    },
    /// It was left out.
    Clash(Clash<'a>),
}

/// Who is told of findings.
type Told<'a> = &'a mut dyn FnMut(Finding<'_>);

/// Removes spaces from the keys of a configuration. Tells which, and where that makes two keys one; the first is kept.
pub(super) fn tidy(configuration: &mut Map<'_>, kind: &str, told: Told<'_>) {
    tidy_map(configuration, matches!(kind, "ConfigMap" | "Secret"), None, told);
}

fn tidy_map<'t>(map: &mut Map<'t>, holds_data: bool, trail: Option<&Trail<'_>>, told: Told<'_>) {
    if map.iter().any(|entry| entry.key.contains(' ')) {
        join_keys(map, trail, told);
    }
    for Entry { key, node } in &mut map.0 {
        let nested = matches!(node.value, Value::Map(_) | Value::List(_));
        if nested && !users_own(trail.and_then(Trail::key), key, holds_data) {
            tidy_node(node, &Trail { parent: trail, key: Step::Key(key) }, told);
        }
    }
}

fn tidy_node(node: &mut Node<'_>, trail: &Trail<'_>, told: Told<'_>) {
    match &mut node.value {
        Value::Map(map) => tidy_map(map, false, Some(trail), told),
        Value::List(list) => {
            for (index, item) in list.iter_mut().enumerate() {
                if matches!(item.value, Value::Map(_) | Value::List(_)) {
                    tidy_node(item, &Trail { parent: Some(trail), key: Step::Index(index) }, told);
                }
            }
        }
        _ => {}
    }
}

fn join_keys(map: &mut Map<'_>, trail: Option<&Trail<'_>>, told: Told<'_>) {
    let entries = std::mem::take(&mut map.0);
    let mut seen = std::collections::HashMap::with_capacity(entries.len());
    for mut entry in entries {
        if entry.key.contains(' ') {
            let key = joined(&entry.key);
            let below = || trail.map(Trail::path).unwrap_or_default().key(&key);
            told(Finding::Renamed { below: &below, key: &entry.key });
            entry.key = key;
        }
        match seen.get(entry.key.as_ref()) {
            Some(&earlier) => {
                let below = || trail.map(Trail::path).unwrap_or_default().key(&entry.key);
                let clash = Clash { below: &below, key: &entry.key, at: entry.node.at, earlier };
                told(Finding::Clash(clash));
            }
            None => {
                seen.insert(entry.key.clone(), entry.node.at);
                map.0.push(entry);
            }
        }
    }
}

fn joined<'t>(key: &str) -> Cow<'t, str> {
    // The one word that the editor changes in more than its spaces.
    if key == "CA Bundle" {
        return Cow::Borrowed("caBundle");
    }
    Cow::Owned(key.chars().filter(|&c| c != ' ').collect())
}

/// Whether the keys of the map under `key` are names that the user chose.
fn users_own(parent: Option<&str>, key: &str, holds_data: bool) -> bool {
    match key {
        "data" | "stringData" | "binaryData" => holds_data,
        "labels" | "annotations" => parent == Some("metadata"),
        "matchLabels" | "nodeSelector" => parent != Some("properties"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Limits, Text, map_to_json, read};

    fn tidied(kind: &str, json: &str) -> (String, Vec<String>) {
        let (node, _) = read(Text::new(json), &Limits::default());
        let Some(Node { value: Value::Map(mut map), .. }) = node else { panic!("a map") };
        let mut clashes = Vec::new();
        tidy(&mut map, kind, &mut |finding| {
            if let Finding::Clash(clash) = finding {
                clashes.push((clash.below)().to_string());
            }
        });
        (map_to_json(&map), clashes)
    }

    #[test]
    fn fields_are_put_together_at_any_depth() {
        let (json, clashes) =
            tidied("Deployment", r#"{"spec":{"a b":[{"image Pull Policy":"Always X"},[{"c d":1}]]},"CA Bundle":""}"#);
        assert_eq!(json, r#"{"spec":{"ab":[{"imagePullPolicy":"Always X"},[{"cd":1}]]},"caBundle":""}"#);
        assert!(clashes.is_empty());
    }

    #[test]
    fn names_that_the_user_chose_are_left_alone() {
        let mine = r#"{"metadata":{"labels":{"a b":"1"},"annotations":{"c d":"2"}},"data":{"e f":"3"}}"#;
        assert_eq!(tidied("ConfigMap", mine).0, mine);
        let (json, _) =
            tidied("Deployment", r#"{"data":{"e f":"3"},"spec":{"selector":{"match Labels":{"g h":"4"}}}}"#);
        assert_eq!(json, r#"{"data":{"ef":"3"},"spec":{"selector":{"matchLabels":{"g h":"4"}}}}"#);
    }

    #[test]
    fn in_a_schema_the_same_words_are_fields() {
        let (json, _) =
            tidied("CustomResourceDefinition", r#"{"properties":{"nodeSelector":{"additional Properties":{}}}}"#);
        assert_eq!(json, r#"{"properties":{"nodeSelector":{"additionalProperties":{}}}}"#);
    }

    #[test]
    fn two_keys_that_become_one_are_told() {
        let (json, clashes) = tidied("Pod", r#"{"spec":{"a b":1,"ab":2}}"#);
        assert_eq!(json, r#"{"spec":{"ab":1}}"#);
        assert_eq!(clashes, ["spec.ab"]);
    }
}
