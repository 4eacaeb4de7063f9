//! Whether a status speaks of the object as it was written, or of the one before (case 273): pure.
//!
//! Most controllers say which generation they have seen. Of those that do not, a status counts that was written after the
//! object was; the API server keeps the time of both, to the second.

use serde_json::Value;

/// Whether what the object's status says is about the object as it is. `written` is the object as the write's answer showed it.
pub(super) fn is_fresh(object: &Value, written: Option<&Value>) -> bool {
    let generation = object["metadata"]["generation"].as_i64().unwrap_or_default();
    let covers = |observed: &Value| observed.as_i64().is_some_and(|observed| observed >= generation);
    let conditions = object["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    generation <= 1
        || covers(&object["status"]["observedGeneration"])
        || conditions.iter().any(|condition| condition["type"] == "Ready" && covers(&condition["observedGeneration"]))
        || written.is_some_and(|written| written["status"] != object["status"])
        || newest(object, is_of_status) > newest(object, is_of_spec(object))
}

/// The time of the newest write among those of the managed fields' entries, as RFC 3339 in UTC: such texts are in order.
fn newest(object: &Value, wanted: impl Fn(&Value) -> bool) -> &str {
    let entries = object["metadata"]["managedFields"].as_array().map_or(&[][..], Vec::as_slice);
    let times = entries.iter().filter(|entry| wanted(entry)).filter_map(|entry| entry["time"].as_str());
    times.max().unwrap_or_default()
}

fn is_of_status(entry: &Value) -> bool {
    entry["subresource"] == "status"
}

/// Those who say what is wanted: whoever applies it, or else all who write anything but a status.
fn is_of_spec(object: &Value) -> impl Fn(&Value) -> bool {
    let is_applied = |entry: &Value| entry["operation"] == "Apply" && entry["subresource"].is_null();
    let entries = object["metadata"]["managedFields"].as_array().map_or(&[][..], Vec::as_slice);
    let applied = entries.iter().any(is_applied);
    move |entry| if applied { is_applied(entry) } else { entry["subresource"].is_null() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const BEFORE: &str = "2026-11-30T10:00:00Z";
    const WRITE: &str = "2026-11-30T10:00:05Z";
    const AFTER: &str = "2026-11-30T10:00:06Z";

    fn object(status: Value, reported: &str) -> Value {
        json!({
            "metadata": {"generation": 2, "managedFields": [
                {"manager": "switchyard", "operation": "Apply", "time": WRITE},
                {"manager": "controller", "operation": "Update", "subresource": "status", "time": reported},
            ]},
            "status": status,
        })
    }

    #[test]
    fn status_counts_that_names_the_generation_or_was_written_after_the_object() {
        let ready = || json!({"conditions": [{"type": "Ready", "status": "True"}]});
        assert!(!is_fresh(&object(ready(), BEFORE), None));
        assert!(!is_fresh(&object(ready(), WRITE), None), "within one second nobody can tell");
        assert!(is_fresh(&object(ready(), AFTER), None));
        let seen = |generation: i64| json!({"observedGeneration": generation});
        assert!(is_fresh(&object(seen(2), BEFORE), None) && !is_fresh(&object(seen(1), BEFORE), None));
        let of_condition = json!({"conditions": [{"type": "Ready", "status": "True", "observedGeneration": 2}]});
        assert!(is_fresh(&object(of_condition, BEFORE), None));
        let mut first = object(ready(), BEFORE);
        first["metadata"]["generation"] = json!(1);
        assert!(is_fresh(&first, None), "there was nothing before it");
    }

    #[test]
    fn status_counts_that_has_changed_since_the_writes_answer() {
        let written = object(json!({"phase": "Old"}), BEFORE);
        assert!(!is_fresh(&written, Some(&written)));
        assert!(is_fresh(&object(json!({"phase": "New"}), WRITE), Some(&written)));
    }

    #[test]
    fn notes_of_controllers_on_an_object_make_no_status_old() {
        let mut noted = object(json!({"phase": "Up"}), AFTER);
        let note = json!({"manager": "controller", "operation": "Update", "time": "2026-11-30T10:00:30Z"});
        noted["metadata"]["managedFields"].as_array_mut().unwrap().push(note);
        assert!(is_fresh(&noted, None));
    }
}
