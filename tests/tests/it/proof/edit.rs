//! What a second writer does to an object.

use serde_json::{Value, json};

use super::{
    Server,
    draw::{Drawn, fields},
};
use crate::dice::Dice;

const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const JSON: &str = "application/json";

/// Does one thing to the object and says what. `applied` is the object as our first apply left it.
pub(super) async fn edit(dice: &mut Dice, server: &Server, drawn: &Drawn, manager: &str, applied: &Value) -> String {
    let path = &drawn.path;
    let by = |who: &str| format!("{path}?fieldManager={who}");
    let Some(mut object) = server.get(path).await else { return "nothing: it is gone".into() };
    match dice.below(12) {
        0 | 1 => {
            let patch = patch(dice, &drawn.object);
            server.ask("PATCH", &by("kubectl-patch"), MERGE, &patch).await;
            format!("merge patch {patch}")
        }
        2 | 3 => {
            let what = change(dice, &mut object);
            server.ask("PUT", &by("kubectl-edit"), JSON, &object).await;
            format!("update {what}")
        }
        4 => {
            let patch = part(dice, &drawn.object, drawn);
            server.ask("PATCH", &by("other&force=true"), APPLY, &patch).await;
            format!("apply of a part as it is {patch}")
        }
        5 => {
            let mut patch = part(dice, &drawn.object, drawn);
            let what = change(dice, &mut patch);
            server.ask("PATCH", &by("other&force=true"), APPLY, &patch).await;
            format!("apply of a part, {what}")
        }
        6 if drawn.has_scale => {
            let scale = json!({"spec": {"replicas": dice.below(3)}});
            let who = if dice.percent(20) { manager } else { "autoscaler" };
            let path = format!("{path}/scale?fieldManager={who}");
            server.ask("PATCH", &path, MERGE, &scale).await;
            format!("scale {scale}")
        }
        6 | 7 => {
            // What it was, whatever it is.
            let what = change(dice, &mut object);
            server.ask("PUT", &by("kubectl-edit"), JSON, &object).await;
            let Some(now) = server.get(path).await else { return format!("{what}, and it is gone") };
            let mut again = applied.clone();
            again["metadata"]["resourceVersion"] = now["metadata"]["resourceVersion"].clone();
            again["metadata"]["managedFields"] = now["metadata"]["managedFields"].clone();
            server.ask("PUT", &by("kubectl-edit"), JSON, &again).await;
            format!("{what} and back again")
        }
        8 => {
            let none = *dice.one_of(&["[{}]", "[]"]);
            let none: Value = serde_json::from_str(none).unwrap();
            let clear = json!({"metadata": {"managedFields": none}});
            server.ask("PATCH", &by("somebody"), MERGE, &clear).await;
            format!("{clear}")
        }
        9 => {
            let what = reorder(dice, &mut object);
            server.ask("PUT", &by("kubectl-edit"), JSON, &object).await;
            format!("another order of {what}")
        }
        10 => {
            let status = json!({"metadata": {"labels": {"seen": format!("{}", dice.below(9))}}});
            server.ask("PATCH", &by("somebody"), MERGE, &status).await;
            "a label of its own".into()
        }
        _ => {
            // Somebody who takes our name.
            let what = change(dice, &mut object);
            server.ask("PUT", &by(manager), JSON, &object).await;
            format!("update under our name, {what}")
        }
    }
}

/// Places below `value` that are of interest, as JSON pointers.
fn places(value: &Value, is_wanted: impl Fn(&str, &Value) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut pending = vec![(String::new(), value)];
    while let Some((path, value)) = pending.pop() {
        let below = |key: &str| format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
        match value {
            Value::Object(map) => pending.extend(map.iter().map(|(key, value)| (below(key), value))),
            Value::Array(items) => {
                pending.extend(items.iter().enumerate().map(|(ix, value)| (below(&ix.to_string()), value)));
            }
            _ => {}
        }
        if is_wanted(&path, value) {
            found.push(path);
        }
    }
    found.sort_unstable();
    found
}

/// What nobody edits: what the object is and is called, and what the server keeps.
fn is_open(path: &str) -> bool {
    let of_the_server =
        ["/metadata/managedFields", "/metadata/uid", "/metadata/resourceVersion", "/metadata/creationTimestamp"];
    let identity = ["", "/apiVersion", "/kind", "/metadata", "/metadata/name", "/metadata/namespace", "/spec"];
    !identity.contains(&path) && !of_the_server.iter().any(|it| path.starts_with(it)) && !path.starts_with("/status")
}

/// Another value of the same form.
fn other(dice: &mut Dice, value: &Value) -> Value {
    match value {
        Value::String(text) if text == "1Gi" => json!("1024Mi"),
        Value::String(text) if text == "TCP" => json!("UDP"),
        Value::String(_) => json!(*dice.one_of(&["edited", "ZWRpdGVk", "64Mi", "1"])),
        Value::Number(_) => json!(1 + dice.below(5)),
        Value::Bool(value) => json!(!value),
        Value::Array(items) => items.iter().skip(1).cloned().collect(),
        Value::Object(_) => json!({}),
        Value::Null => json!("edited"),
    }
}

/// Changes one thing: a value, a field that goes, an item or a field that comes. Says what.
pub(super) fn change(dice: &mut Dice, object: &mut Value) -> String {
    let is_leaf = |_: &str, value: &Value| !value.is_object() && !value.is_array();
    let leaves = places(object, |path, value| is_open(path) && is_leaf(path, value));
    let holders = places(object, |path, value| is_open(path) && (value.is_object() || value.is_array()));
    match dice.below(10) {
        0..5 if !leaves.is_empty() => {
            let place = dice.one_of(&leaves);
            let value = object.pointer_mut(place).unwrap();
            *value = other(dice, value);
            format!("{place} is {value}")
        }
        5 | 6 if !leaves.is_empty() => {
            let place = dice.one_of(&leaves);
            let (parent, key) = place.rsplit_once('/').unwrap();
            match object.pointer_mut(parent).unwrap() {
                Value::Object(map) => _ = map.shift_remove(&key.replace("~1", "/").replace("~0", "~")),
                Value::Array(items) => _ = items.remove(key.parse().unwrap()),
                _ => {}
            }
            format!("{place} is gone")
        }
        _ if !holders.is_empty() => {
            let place = dice.one_of(&holders);
            match object.pointer_mut(place).unwrap() {
                Value::Object(map) => _ = map.insert("added".into(), json!("x")),
                Value::Array(items) => {
                    let mut item = items.first().cloned().unwrap_or(json!("x"));
                    match &mut item {
                        Value::Object(map) => {
                            for key in ["name", "port", "containerPort", "mountPath", "ip"] {
                                if let Some(value) = map.get_mut(key) {
                                    *value =
                                        if value.is_number() { json!(9000 + dice.below(3)) } else { json!("added") };
                                    break;
                                }
                            }
                        }
                        item => *item = json!("added"),
                    }
                    let at = dice.below(items.len() + 1);
                    items.insert(at, item);
                }
                _ => {}
            }
            format!("{place} has one more")
        }
        _ => {
            fields(object).entry("metadata").or_insert(json!({}))["labels"]["added"] = json!("x");
            "one label more".into()
        }
    }
}

/// Turns a list with several items round.
fn reorder(dice: &mut Dice, object: &mut Value) -> String {
    let lists = places(object, |path, value| is_open(path) && value.as_array().is_some_and(|items| items.len() > 1));
    if lists.is_empty() {
        return "nothing".into();
    }
    let place = dice.one_of(&lists);
    if let Some(Value::Array(items)) = object.pointer_mut(place) {
        items.reverse();
    }
    place.clone()
}

/// A merge patch that says something of one place of the manifest.
fn patch(dice: &mut Dice, manifest: &Value) -> Value {
    let places = places(manifest, |path, value| is_open(path) && !value.is_object());
    let place = dice.one_of(&places);
    let value = manifest.pointer(place).unwrap();
    let mut said = match dice.below(3) {
        0 => json!(null),
        1 => value.clone(),
        _ => other(dice, value),
    };
    let mut keys: Vec<_> = place.split('/').skip(1).map(|key| key.replace("~1", "/").replace("~0", "~")).collect();
    // A merge patch replaces lists whole.
    if let Some(list) = (1..keys.len()).find(|&at| {
        let pointer: String = keys[..at].iter().map(|key| format!("/{}", key.replace('/', "~1"))).collect();
        manifest.pointer(&pointer).is_some_and(Value::is_array)
    }) {
        let pointer: String = keys[..list].iter().map(|key| format!("/{}", key.replace('/', "~1"))).collect();
        let mut whole = manifest.pointer(&pointer).unwrap().clone();
        let rest: String = keys[list..].iter().map(|key| format!("/{}", key.replace('/', "~1"))).collect();
        if let Some(inside) = whole.pointer_mut(&rest) {
            *inside = if said.is_null() { other(dice, inside) } else { said };
        }
        said = whole;
        keys.truncate(list);
    }
    keys.into_iter().rev().fold(said, |value, key| json!({key: value}))
}

/// A part of the manifest as another would apply it: its identity, and some of what it says.
fn part(dice: &mut Dice, manifest: &Value, drawn: &Drawn) -> Value {
    let mut part = manifest.clone();
    for (holder, keep) in [("/spec", 70), ("/data", 70), ("/metadata/labels", 50), ("", 80)] {
        if let Some(Value::Object(map)) = part.pointer_mut(holder) {
            let needed = ["apiVersion", "kind", "metadata", "spec", "selector", "template", "roleRef", "schedule"];
            let keys: Vec<String> = map.keys().cloned().collect();
            for key in keys {
                if !needed.contains(&key.as_str()) && !dice.percent(keep) {
                    map.shift_remove(&key);
                }
            }
        }
    }
    part["apiVersion"] = json!(drawn.api_version());
    fields(&mut part["metadata"]).shift_remove("annotations");
    fields(&mut part["metadata"]).shift_remove("finalizers");
    part
}
