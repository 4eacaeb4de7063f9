//! What would change in an object, field by field, with secret values masked (S22, D25). Pure.

use serde_json::Value;

use crate::{
    mask::Secrets,
    proof::{APPLIED, DEPENDS_ON},
};

/// Fields that are told; a rewrite of a whole object is no longer read field by field.
const MOST: usize = 200;
/// Longest value that is shown, in bytes.
const LONGEST: usize = 1024;
/// What the API server writes by itself. What our own applies say of themselves is left out too.
const OF_THE_SERVER: [&str; 6] =
    ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink"];

/// One field that would change. Values are JSON; empty where there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldDiff {
    pub(crate) path: String,
    pub(crate) before: Shown,
    pub(crate) after: Shown,
}

/// A value as it may be told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) text: String,
    /// Whether that is only its beginning.
    pub(crate) is_cut: bool,
}

/// The fields that differ, in the order of their paths, and how many there are beside those. `before` is absent when there is no object yet; then nothing is
/// listed, since everything would be new.
pub(crate) fn diff(before: Option<&Value>, after: &Value) -> (Vec<FieldDiff>, u32) {
    let Some(before) = before else { return (Vec::new(), 0) };
    let (mut fields, mut left_out) = (Vec::new(), 0);
    let mut pending = vec![(String::new(), Some(before), Some(after))];
    while let Some((path, before, after)) = pending.pop() {
        if before == after {
            continue;
        }
        match (before, after) {
            (Some(Value::Object(old)), Some(Value::Object(new))) => {
                let mut keys: Vec<_> = old.keys().chain(new.keys()).collect();
                keys.sort_unstable();
                keys.dedup();
                for key in keys.into_iter().rev().filter(|key| !is_of_the_server(&path, key)) {
                    pending.push((join(&path, key), old.get(key), new.get(key)));
                }
            }
            (Some(Value::Array(old)), Some(Value::Array(new))) => {
                for ix in (0..old.len().max(new.len())).rev() {
                    pending.push((format!("{path}[{ix}]"), old.get(ix), new.get(ix)));
                }
            }
            _ if fields.len() == MOST => left_out += 1,
            _ => fields.push((path, before, after)),
        }
    }
    let secrets = [Secrets::of_value(before), Secrets::of_value(after)];
    let mask = |text: &str| secrets.iter().fold(text.to_owned(), |text, secrets| secrets.mask(&text));
    let show = |value: Option<&Value>| value.map(|value| shown(value, mask)).unwrap_or_default();
    let fields = fields
        .into_iter()
        .map(|(path, before, after)| FieldDiff { path, before: show(before), after: show(after) })
        .collect();
    (fields, left_out)
}

/// A value as it may be told: masked, then cut.
pub(crate) fn shown(value: &Value, mask: impl Fn(&str) -> String) -> Shown {
    let masked = mask(&value.to_string());
    Shown { is_cut: masked.len() > LONGEST, text: switchyard_service::status::capped(&masked, LONGEST) }
}

fn is_of_the_server(path: &str, key: &str) -> bool {
    match path {
        "" => key == "status",
        "metadata" => OF_THE_SERVER.contains(&key),
        "metadata.annotations" => [APPLIED, DEPENDS_ON].contains(&key),
        _ => false,
    }
}

/// The path of a field below `path`.
pub(crate) fn join(path: &str, key: &str) -> String {
    match (path.is_empty(), key.contains(['.', '/', '[', ' '])) {
        (true, _) => key.to_owned(),
        (false, false) => format!("{path}.{key}"),
        (false, true) => format!("{path}[{key:?}]"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_that_differ_are_listed_and_what_the_server_writes_is_not() {
        let before = json!({
            "metadata": {"name": "a", "resourceVersion": "1", "labels": {"x.y/z": "1"}},
            "spec": {"replicas": 1, "ports": [80, 81], "old": true},
            "status": {"ready": 1},
        });
        let after = json!({
            "metadata": {"name": "a", "resourceVersion": "2", "labels": {"x.y/z": "2"}},
            "spec": {"replicas": 3, "ports": [80], "new": {"a": null}},
            "status": {},
        });
        let told = diff(Some(&before), &after).0.into_iter();
        let told: Vec<_> = told.map(|it| (it.path, it.before.text, it.after.text)).collect();
        let expected = [
            ("metadata.labels[\"x.y/z\"]", "\"1\"", "\"2\""),
            ("spec.new", "", "{\"a\":null}"),
            ("spec.old", "true", ""),
            ("spec.ports[1]", "81", ""),
            ("spec.replicas", "1", "3"),
        ];
        assert_eq!(told, expected.map(|(path, before, after)| (path.into(), before.into(), after.into())));
    }

    #[test]
    fn secret_values_are_masked_on_both_sides() {
        let secret = |value: &str| json!({"kind": "Secret", "metadata": {"name": "a"}, "data": {"key": value}});
        let (told, _) = diff(Some(&secret("b2xkLWNhbmFyeQ==")), &secret("bmV3LWNhbmFyeQ=="));
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].path, "data.key");
        for value in [&told[0].before.text, &told[0].after.text] {
            assert!(value.contains("[redacted]") && !value.contains("Y2FuYXJ5"), "{value}");
        }
    }

    #[test]
    fn new_object_and_same_object_have_no_fields() {
        let object = json!({"spec": {"a": 1}});
        assert_eq!(diff(None, &object), (Vec::new(), 0));
        assert_eq!(diff(Some(&object), &object), (Vec::new(), 0));
    }

    /// Case 364.
    #[test]
    fn what_is_cut_or_left_out_is_said() {
        let object = |value: &str| {
            let data: serde_json::Map<_, _> = (0..250).map(|key| (format!("key-{key:03}"), json!(value))).collect();
            json!({"data": data})
        };
        let (told, left_out) = diff(Some(&object("short")), &object(&"x".repeat(LONGEST)));
        assert_eq!((told.len(), left_out), (MOST, 50));
        assert_eq!((told[0].before.is_cut, told[0].after.is_cut), (false, true));
        assert!(told[0].after.text.len() <= LONGEST && told[0].after.text.ends_with('…'));
    }
}
