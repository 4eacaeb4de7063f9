//! `$(#ref.<path>)`: a string that holds one is replaced, as a whole, by the text at that path of the document.
//!
//! The path goes by position in the whole document as it was written, so every reference is looked up before anything is
//! read, moved or set aside (D5). In legacy files it may start at the services. A key with dots is put in brackets:
//! `$(#ref.services.[a.b].name)`.

use std::collections::HashMap;

use crate::document::{Node, Text, Value};
use crate::problem::quoted;

const REF: &str = "$(#ref.";
const USE: &str = "$(#use ";

/// Whether a text can hold no reference, not even one whose letters are escaped.
pub(super) fn is_without(text: &Text<'_>) -> bool {
    let escaped = || ["\\u", "\\U", "\\x", "\\\n", "\\\r"].iter().any(|part| text.contains(part));
    !(text.contains("$(#") || text.contains("\\") && escaped())
}

/// All references of a document, looked up.
#[derive(Default)]
pub(super) struct References(HashMap<String, Result<String, String>>);

impl References {
    /// Looks up every reference in the document.
    pub(super) fn collect(root: &Node<'_>, legacy: bool) -> Self {
        let mut found = HashMap::new();
        let mut todo = vec![root];
        while let Some(node) = todo.pop() {
            match &node.value {
                Value::String(text) if text.contains("$(#") => {
                    if let Some(looked_up) = look_up(root, text, legacy) {
                        found.entry(text.to_string()).or_insert(looked_up);
                    }
                }
                Value::List(list) => todo.extend(list),
                Value::Map(map) => todo.extend(map.iter().map(|entry| &entry.node)),
                _ => {}
            }
        }
        Self(found)
    }

    /// What `text` refers to, or why that cannot be said; none when it refers to nothing.
    pub(super) fn get(&self, text: &str) -> Option<&Result<String, String>> {
        if self.0.is_empty() { None } else { self.0.get(text) }
    }

    /// Whether the document holds no reference.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The text that a string refers to. Only the path is ever quoted: what stands around it may be anything.
fn look_up(root: &Node<'_>, text: &str, legacy: bool) -> Option<Result<String, String>> {
    if text.contains(USE) {
        return Some(Err("`$(#use …)` is not supported; put what it imports into the design".into()));
    }
    let path = &text[text.find(REF)? + REF.len()..];
    // Greedy, as in Meshery: up to the last bracket of the string.
    let path = &path[..path.rfind(')')?];
    let keys = keys(path);
    let node = walk(root, &keys)
        .or_else(|| legacy.then(|| root.get(&["services"])).flatten().and_then(|services| walk(services, &keys)));
    let result = match node.map(|node| &node.value) {
        Some(Value::String(found)) if found.contains(REF) || found.contains(USE) => {
            Err(format!("reference {} leads to another reference, and those are not followed", quoted(path)))
        }
        Some(Value::String(found)) if !(legacy && found.is_empty() && keys.last() == Some(&"name")) => {
            Ok(found.to_string())
        }
        Some(value) if !matches!(value, Value::Null | Value::String(_)) => {
            Err(format!("reference {} leads to {}; it must lead to text", quoted(path), value.type_name()))
        }
        _ => match legacy.then(|| service_key(root, &keys)).flatten() {
            Some(key) => Ok(key.to_owned()),
            None => Err(format!(
                "reference {} leads to nothing in this document; the path goes by key and position, such as \
                 components.0.displayName",
                quoted(path)
            )),
        },
    };
    Some(result)
}

fn walk<'n, 't>(root: &'n Node<'t>, keys: &[&str]) -> Option<&'n Node<'t>> {
    let mut node = root;
    for (depth, key) in keys.iter().enumerate() {
        // What registrants carry is not for anybody's eyes (D25), unless it is the user's own setting.
        let settings = keys[..depth].iter().any(|key| matches!(*key, "configuration" | "settings"));
        if *key == "metadata" && !settings && depth > 0 && matches!(keys[depth - 1], "registrant" | "connection") {
            return None;
        }
        node = match &node.value {
            Value::Map(map) => map.get(key)?,
            Value::List(list) => list.get(key.parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    Some(node)
}

/// A service without a name is called by its key.
fn service_key<'k>(root: &Node<'_>, keys: &[&'k str]) -> Option<&'k str> {
    let keys = keys.strip_prefix(&["services"]).unwrap_or(keys);
    match keys {
        [key, "name"] => root.get(&["services", key])?.as_map().map(|_| *key),
        _ => None,
    }
}

/// The keys of a dotted path.
fn keys(path: &str) -> Vec<&str> {
    let mut keys = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        let (key, after) = match rest.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
            Some((key, after)) => (key, after.strip_prefix('.').unwrap_or(after)),
            None => rest.split_once('.').unwrap_or((rest, "")),
        };
        keys.push(key);
        rest = after;
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Limits, read};

    fn resolve(document: &str, text: &str, legacy: bool) -> Option<Result<String, String>> {
        let (root, _) = read(Text::new(document), &Limits::default());
        look_up(&root.expect("a document"), text, legacy)
    }

    #[test]
    fn a_reference_replaces_the_whole_string() {
        let document = r#"{"components": [{"displayName": "db"}]}"#;
        let found = resolve(document, "x$(#ref.components.0.displayName)y", false);
        assert_eq!(found, Some(Ok("db".into())));
        assert_eq!(resolve(document, "$(HOME) and $(#x", false), None);
    }

    #[test]
    fn an_escaped_reference_is_not_overlooked() {
        for text in ["[\"$(#ref.a)\"]", "[\"\\u0024(#ref.a)\"]", "- \"\\x24(#ref.a)\"", "- \"$(\\\n  #ref.a)\""] {
            assert!(!is_without(&Text::new(text)), "{text}");
        }
        assert!(is_without(&Text::new("[\"$(HOME) \\n #ref.a\"]")));
    }

    #[test]
    fn what_leads_to_no_text_is_told() {
        let document = r#"{"a": {"b": 1}, "c": "$(#ref.d)", "d": null}"#;
        for path in ["x", "a", "a.b", "a.b.c", "c", "d", "components.9"] {
            let found = resolve(document, &format!("$(#ref.{path})"), false).expect("a reference");
            assert!(found.expect_err("leads to no text").contains(&format!("\"{path}\"")));
        }
        assert!(
            resolve(document, "$(#use https://user:secret@example.com)", false)
                .expect("one")
                .is_err_and(|why| !why.contains("secret"))
        );
    }

    #[test]
    fn legacy_paths_may_start_at_a_service_and_keys_may_have_dots() {
        let document = "vars: {ns: a}\nservices:\n  mesh: {settings: {version: '1'}}\n  ns.x: {}\n";
        let resolved = |text| resolve(document, text, true).expect("a reference").expect("text");
        assert_eq!(resolved("$(#ref.mesh.settings.version)"), "1");
        assert_eq!(resolved("$(#ref.vars.ns)"), "a");
        assert_eq!(resolved("$(#ref.services.[ns.x].name)"), "ns.x");
    }

    #[test]
    fn what_a_registrant_carries_cannot_be_referred_to() {
        let document = r#"{"components": [{"model": {"registrant": {"metadata": {"key": "canary"}}},
            "configuration": {"registrant": {"metadata": {"key": "mine"}}}}]}"#;
        let at = |path: &str| resolve(document, &format!("$(#ref.components.0.{path})"), false).expect("a reference");
        assert!(at("model.registrant.metadata.key").is_err());
        assert_eq!(at("configuration.registrant.metadata.key"), Ok("mine".into()));
    }
}
