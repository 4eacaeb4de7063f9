//! Whose an object is: the one place that decides it, from the object's mark and the design's id (D11, D19, L1).
//!
//! Each design has a field manager of its own, so that two designs which mean one object conflict in the API server, over the
//! mark if over nothing else. That is atomic, and it costs no request.

use serde_json::Value;
use uuid::Uuid;

use super::object::{DESIGN_LABEL, Metadata};
use crate::{
    answers::failure::Cause,
    proof::{APPLIED, DEPENDS_ON},
};

/// What the field managers of designs begin with. Changing it would orphan the fields of everything that was ever deployed.
const MANAGER: &str = "switchyard/";
/// Longest field manager that an API server takes, in bytes.
const LONGEST_MANAGER: usize = 128;
/// The annotations that mark an object (D11), or say what its design applied (L4, L6).
const MARKS: [&str; 4] = ["design.meshery.io/version", "component.meshery.io/id", APPLIED, DEPENDS_ON];

/// Whose an object is, as a design sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner<'a> {
    /// It carries the mark of the design that asks.
    Ours,
    /// It carries the mark of another design, which has this id.
    Design(&'a str),
    /// It carries no design's mark.
    Nobody,
}

/// Tells whose the object is. An empty mark is none.
pub(crate) fn owner<'a>(metadata: &'a Metadata, design_id: &str) -> Owner<'a> {
    match metadata.design() {
        None | Some("") => Owner::Nobody,
        Some(id) if id == design_id => Owner::Ours,
        Some(id) => Owner::Design(id),
    }
}

/// The field manager of a design: `switchyard/` and its id. An id that no label can hold, or that is too long, is replaced by
/// one derived from it; the planner makes no such plans.
pub(crate) fn manager(design_id: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let fits = !design_id.is_empty() && MANAGER.len() + design_id.len() <= LONGEST_MANAGER;
    if fits && design_id.bytes().all(is_plain) {
        format!("{MANAGER}{design_id}")
    } else {
        format!("{MANAGER}{}", Uuid::new_v5(&Uuid::NAMESPACE_OID, design_id.as_bytes()))
    }
}

/// What a conflict over fields is about (HTTP 409 with causes `FieldManagerConflict`).
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Conflict<'a> {
    /// The designs, as their field managers name them, that own fields in question.
    pub(crate) designs: Vec<&'a str>,
    /// Whether somebody else owns a field in question.
    pub(crate) others: bool,
    /// Whether the mark is in question, so that the object is, or may be, of another design.
    pub(crate) over_the_mark: bool,
}

impl<'a> Conflict<'a> {
    /// Reads the causes of a refusal. None when it is no conflict over fields.
    pub(crate) fn of(causes: &'a [Cause]) -> Option<Self> {
        let mut conflict = Self::default();
        let mut any = false;
        for cause in causes.iter().filter(|cause| cause.reason == "FieldManagerConflict") {
            any = true;
            if is_a_mark(&cause.field) {
                conflict.over_the_mark |= cause.field.ends_with(DESIGN_LABEL);
                // Who owns a mark owns the object or nothing of it: the mark itself tells whose it is.
                conflict.designs.extend(design_of(&cause.message));
                continue;
            }
            match design_of(&cause.message) {
                Some(design) => conflict.designs.push(design),
                None => conflict.others = true,
            }
        }
        conflict.designs.sort_unstable();
        conflict.designs.dedup();
        any.then_some(conflict)
    }
}

/// The design whose field manager a cause names: `conflict with "switchyard/ID"`, and what may follow.
fn design_of(message: &str) -> Option<&str> {
    let (manager, _) = message.strip_prefix("conflict with \"")?.split_once('"')?;
    manager.strip_prefix(MANAGER)
}

fn is_a_mark(field: &str) -> bool {
    let of = |map: &str, key: &str| field.strip_prefix(map).is_some_and(|rest| rest == key);
    of(".metadata.labels.", DESIGN_LABEL) || MARKS.iter().any(|mark| of(".metadata.annotations.", mark))
}

/// Takes the marks off an object, which differ between designs whatever else is equal.
pub(crate) fn without_marks(mut object: Value) -> Value {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return object };
    for (map, marks) in [("labels", [DESIGN_LABEL].as_slice()), ("annotations", MARKS.as_slice())] {
        let Some(Value::Object(entries)) = metadata.get_mut(map) else { continue };
        marks.iter().for_each(|mark| {
            entries.remove(*mark);
        });
        if entries.is_empty() {
            metadata.remove(map);
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cause(field: &str, message: &str) -> Cause {
        Cause { field: field.into(), reason: "FieldManagerConflict".into(), message: message.into() }
    }

    #[test]
    fn each_design_has_a_manager_that_the_api_server_takes() {
        assert_eq!(manager("a-1"), "switchyard/a-1");
        let managers: Vec<_> = ["", "a b", "ä", &"x".repeat(118), &"x".repeat(119)].map(manager).into();
        for manager in &managers {
            assert!(manager.len() <= LONGEST_MANAGER && manager.starts_with(MANAGER), "{manager}");
        }
        assert_eq!(managers.iter().collect::<std::collections::BTreeSet<_>>().len(), managers.len());
        assert_eq!(manager(&"x".repeat(117)).len(), LONGEST_MANAGER);
    }

    #[test]
    fn a_conflict_says_who_is_in_the_way() {
        let causes = [
            cause(".metadata.labels.design.meshery.io/id", r#"conflict with "switchyard/b""#),
            cause(".metadata.annotations.component.meshery.io/id", r#"conflict with "switchyard/b""#),
        ];
        let wanted = Conflict { designs: vec!["b"], others: false, over_the_mark: true };
        assert_eq!(Conflict::of(&causes), Some(wanted));
        let causes = [
            cause(".spec.replicas", r#"conflict with "autoscaler" with subresource "scale" using apps/v1"#),
            cause(".data.key", r#"conflict with "switchyard/c" using v1"#),
        ];
        let wanted = Conflict { designs: vec!["c"], others: true, over_the_mark: false };
        assert_eq!(Conflict::of(&causes), Some(wanted));
        // An adapter put the mark there.
        let causes = [cause(".metadata.labels.design.meshery.io/id", r#"conflict with "adapter" using v1"#)];
        let wanted = Conflict { designs: vec![], others: false, over_the_mark: true };
        assert_eq!(Conflict::of(&causes), Some(wanted));
        let race = Cause { reason: "Other".into(), ..cause("", "") };
        assert_eq!(Conflict::of(&[race]), None);
    }

    #[test]
    fn without_marks_two_designs_objects_are_equal() {
        let object = |design: &str| {
            json!({"metadata": {
                "name": "shop",
                "labels": {"design.meshery.io/id": design, "team": "a"},
                "annotations": {"design.meshery.io/version": design, "component.meshery.io/id": design},
            }})
        };
        assert_eq!(without_marks(object("a")), without_marks(object("b")));
        assert_eq!(without_marks(object("a")), json!({"metadata": {"name": "shop", "labels": {"team": "a"}}}));
    }

    #[test]
    fn the_mark_says_whose_an_object_is() {
        let marked = |id: Option<&str>| Metadata {
            labels: id.map(|id| (DESIGN_LABEL.to_owned(), id.to_owned())).into_iter().collect(),
            ..Metadata::default()
        };
        assert_eq!(owner(&marked(Some("a")), "a"), Owner::Ours);
        assert_eq!(owner(&marked(Some("b")), "a"), Owner::Design("b"));
        assert_eq!(owner(&marked(None), "a"), Owner::Nobody);
        assert_eq!(owner(&marked(Some("")), ""), Owner::Nobody);
        assert_eq!(owner(&marked(None), ""), Owner::Nobody);
    }
}
