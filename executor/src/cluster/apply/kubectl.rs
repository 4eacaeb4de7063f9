//! What `kubectl apply` (client-side) wrote and still owns: leaving it out of a design does not remove it (case 295). Pure.
//!
//! What it owns can be made ours, as kubectl itself does where it changes to server-side apply (client-go's `csaupgrade`): then the
//! next apply removes what the design does not have.

use serde_json::{Map, Value, json};

/// The field manager of client-side `kubectl apply`.
pub(super) const MANAGER: &str = "kubectl-client-side-apply";
/// Fields that are named; the rest is counted.
const NAMED: usize = 10;
/// kubectl's own note, which belongs to nobody else.
const LAST_APPLIED: &str = "metadata.annotations.kubectl.kubernetes.io/last-applied-configuration";

/// The fields, named, that kubectl owns and the manager `ours` does not; none when there are none.
pub(super) fn held(object: &Value, ours: &str) -> Option<String> {
    let entries = object["metadata"]["managedFields"].as_array()?;
    let fields = |manager: &str| entries.iter().find(|it| it["manager"] == manager).map(|it| &it["fieldsV1"]);
    let mut held = Vec::new();
    gather(fields(MANAGER)?, fields(ours), "", &mut held);
    held.retain(|field| field != LAST_APPLIED);
    if held.is_empty() {
        return None;
    }
    let more = held.len().saturating_sub(NAMED);
    held.truncate(NAMED);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(format!("{}{rest}", held.join(", ")))
}

/// What to say of fields that stay.
pub(super) fn they_stay(held: &str) -> String {
    format!(
        "{MANAGER} owns fields that the design does not have, and they stay: {held}; remove them with kubectl, or set \
         force_conflicts to have them removed"
    )
}

/// What to say of fields that were taken over and are gone.
pub(super) fn they_went(held: &str) -> String {
    format!("{MANAGER} owned fields that the design does not have; they were taken over and removed: {held}")
}

/// What to say of them in a dry run.
pub(super) fn they_would_go(held: &str) -> String {
    format!("{MANAGER} owns fields that the design does not have; they would be taken over and removed: {held}")
}

/// A JSON patch that makes what kubectl owns of an object `ours`, and nothing else; none where that cannot be said in one version of
/// the kind.
pub(super) fn taking_over(object: &Value, ours: &str) -> Option<Value> {
    let metadata = &object["metadata"];
    let entries = metadata["managedFields"].as_array()?;
    let is = |entry: &Value, manager: &str, operation: &str| {
        entry["manager"] == manager && entry["operation"] == operation && entry["subresource"].is_null()
    };
    let (theirs, mut rest): (Vec<_>, Vec<_>) = entries.iter().cloned().partition(|entry| is(entry, MANAGER, "Update"));
    let mine = rest.iter_mut().find(|entry| is(entry, ours, "Apply"))?;
    if theirs.is_empty() || theirs.iter().any(|entry| entry["apiVersion"] != mine["apiVersion"]) {
        return None;
    }
    for entry in theirs {
        unite(mine["fieldsV1"].as_object_mut()?, entry["fieldsV1"].as_object()?);
    }
    // With another version of the object than this one the patch is refused.
    Some(json!([
        {"op": "replace", "path": "/metadata/managedFields", "value": rest},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
    ]))
}

/// Adds fields to fields, both in the form of `fieldsV1`.
fn unite(fields: &mut Map<String, Value>, more: &Map<String, Value>) {
    for (key, below) in more {
        match (fields.get_mut(key).and_then(Value::as_object_mut), below.as_object()) {
            (Some(fields), Some(more)) => unite(fields, more),
            (Some(_), None) => {}
            (None, _) => {
                fields.insert(key.clone(), below.clone());
            }
        }
    }
}

/// Gathers the leaves of `theirs` that are not in `ours`, both in the form of `fieldsV1`
/// (<https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management>).
fn gather(theirs: &Value, ours: Option<&Value>, path: &str, held: &mut Vec<String>) {
    let Some(fields) = theirs.as_object() else { return };
    for (key, below) in fields.iter().filter(|(key, _)| *key != ".") {
        let path = match key.split_once(':') {
            Some(("f", name)) if path.is_empty() => name.to_owned(),
            Some(("f", name)) => format!("{path}.{name}"),
            Some((_, item)) => format!("{path}[{item}]"),
            None => continue,
        };
        let ours = ours.and_then(|ours| ours.get(key));
        let is_leaf = below.as_object().is_none_or(serde_json::Map::is_empty);
        match is_leaf {
            true if ours.is_none() => held.push(path),
            true => {}
            false => gather(below, ours, &path, held),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(theirs: Value, ours: Value) -> Value {
        json!({"metadata": {"managedFields": [
            {"manager": MANAGER, "operation": "Update", "fieldsV1": theirs},
            {"manager": "switchyard/a", "operation": "Apply", "fieldsV1": ours},
        ]}})
    }

    #[test]
    fn what_kubectl_alone_owns_is_named() {
        let theirs = json!({
            "f:data": {".": {}, "f:both": {}, "f:old": {}},
            "f:metadata": {"f:annotations": {"f:kubectl.kubernetes.io/last-applied-configuration": {}}},
            "f:spec": {"f:ports": {"k:{\"port\":80}": {".": {}, "f:name": {}}}},
        });
        let held = held(&object(theirs, json!({"f:data": {"f:both": {}}})), "switchyard/a").unwrap();
        assert_eq!(held, r#"data.old, spec.ports[{"port":80}].name"#);
    }

    #[test]
    fn what_kubectl_owns_becomes_ours_and_nothing_else_does() {
        let theirs = json!({"f:data": {".": {}, "f:both": {}, "f:old": {}}});
        let mut object = object(theirs, json!({"f:data": {"f:both": {}, "f:ours": {}}}));
        let another =
            json!({"manager": "kube-controller-manager", "operation": "Update", "fieldsV1": {"f:status": {}}});
        object["metadata"]["managedFields"].as_array_mut().unwrap().push(another.clone());
        object["metadata"]["resourceVersion"] = json!("7");
        let patch = taking_over(&object, "switchyard/a").unwrap();
        let ours = json!({"f:data": {".": {}, "f:both": {}, "f:old": {}, "f:ours": {}}});
        let ours = json!({"manager": "switchyard/a", "operation": "Apply", "fieldsV1": ours});
        assert_eq!(patch[0]["value"], json!([ours, another]));
        assert_eq!(patch[1]["value"], "7");
        // Without an entry of ours, or in another version, nothing is said of what would become of the fields.
        assert_eq!(taking_over(&object, "switchyard/b"), None);
        object["metadata"]["managedFields"][0]["apiVersion"] = json!("v0");
        assert_eq!(taking_over(&object, "switchyard/a"), None);
    }

    #[test]
    fn nothing_is_said_where_all_is_shared() {
        let fields = json!({"f:data": {"f:both": {}}});
        assert_eq!(held(&object(fields.clone(), fields), "switchyard/a"), None);
        assert_eq!(held(&json!({"metadata": {}}), "switchyard/a"), None);
    }
}
