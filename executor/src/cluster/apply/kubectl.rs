//! What `kubectl apply` (client-side) wrote and still owns: leaving it out of a design does not remove it (case 295). Pure.

use serde_json::Value;

/// The field manager of client-side `kubectl apply`.
pub(super) const MANAGER: &str = "kubectl-client-side-apply";
/// Fields that are named; the rest is counted.
const NAMED: usize = 10;
/// kubectl's own note, which belongs to nobody else.
const LAST_APPLIED: &str = "metadata.annotations.kubectl.kubernetes.io/last-applied-configuration";

/// A warning that names the fields which kubectl owns and the manager `ours` does not; none when there are none.
pub(super) fn warning(object: &Value, ours: &str) -> Option<String> {
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
    Some(format!(
        "{MANAGER} owns fields that the design does not have, and they stay: {}{rest}; remove them with kubectl if they are \
         not wanted",
        held.join(", ")
    ))
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
        let warning = warning(&object(theirs, json!({"f:data": {"f:both": {}}})), "switchyard/a").unwrap();
        assert!(warning.contains(r#"they stay: data.old, spec.ports[{"port":80}].name; "#), "{warning}");
    }

    #[test]
    fn nothing_is_said_where_all_is_shared() {
        let fields = json!({"f:data": {"f:both": {}}});
        assert_eq!(warning(&object(fields.clone(), fields), "switchyard/a"), None);
        assert_eq!(warning(&json!({"metadata": {}}), "switchyard/a"), None);
    }
}
