//! Whether an object holds what was declared, leaf by leaf. Pure.
//!
//! Only what is declared is looked at: what an API server, a controller or an admission plugin adds is no difference. Values
//! that an API server stores in another spelling are the same value: quantities, numbers, times, `stringData`, base64 with
//! line breaks. The object's schema is not known here, so a zero value that is declared and absent counts as held, except
//! where a table says that absence means something else.

use std::collections::{HashMap, HashSet};

use base64::{Engine, prelude::BASE64_STANDARD};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value};

use super::quantity::Quantity;
use crate::present::diff::{self, FieldDiff};

/// Differences that are told; an object that differs in more was not written at all.
const MOST: usize = 50;

/// Pairs of items that are compared to find a list's items in another at most.
const MOST_PAIRS: usize = 100_000;

/// Metadata that the API server owns, that the path already names, or that is never stored.
const NOT_COMPARED: [&str; 10] = [
    "name",
    "namespace",
    "generateName",
    "managedFields",
    "resourceVersion",
    "generation",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "selfLink",
];

/// Annotations that others keep, or that tell where an object came from and not what it is (L4).
const BOOKKEEPING: [&str; 6] = [
    crate::proof::APPLIED,
    crate::proof::DEPENDS_ON,
    "kubectl.kubernetes.io/last-applied-configuration",
    "deployment.kubernetes.io/revision",
    "design.meshery.io/version",
    "component.meshery.io/id",
];

/// Lists of maps that Kubernetes merges by key
/// (<https://kubernetes.io/docs/reference/using-api/server-side-apply/#merge-strategy>). Others may add items to them.
const KEYED: [(&str, &[&str]); 21] = [
    ("containers", &["name"]),
    ("initContainers", &["name"]),
    ("ephemeralContainers", &["name"]),
    ("volumes", &["name"]),
    ("env", &["name"]),
    ("imagePullSecrets", &["name"]),
    ("webhooks", &["name"]),
    ("matchConditions", &["name"]),
    ("resourceClaims", &["name"]),
    ("schedulingGates", &["name"]),
    ("versions", &["name"]),
    ("secrets", &["name"]),
    ("volumeMounts", &["mountPath"]),
    ("volumeDevices", &["devicePath"]),
    ("hostAliases", &["ip"]),
    ("topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
    ("ports", &["containerPort", "protocol"]),
    ("ports", &["port", "protocol"]),
    ("conditions", &["type"]),
    ("ownerReferences", &["uid"]),
    ("resources", &["resourceName"]),
];

/// Lists without a key to which admission plugins and controllers add items, or that an API server fills when they are empty.
const ADDED_TO: [&str; 6] = ["finalizers", "tolerations", "policyTypes", "ipFamilies", "clusterIPs", "externalIPs"];

/// Fields whose absence means something else than their zero value, and that an API server therefore keeps.
const ZERO_COUNTS: [&str; 16] = [
    "replicas",
    "automountServiceAccountToken",
    "enableServiceLinks",
    "hostUsers",
    "runAsUser",
    "runAsGroup",
    "runAsNonRoot",
    "fsGroup",
    "allowPrivilegeEscalation",
    "readOnlyRootFilesystem",
    "minAvailable",
    "maxUnavailable",
    "parallelism",
    "completions",
    "backoffLimit",
    "terminationGracePeriodSeconds",
];

/// Below these keys text is text: `1Gi` is another text than `1024Mi`.
const TEXT: [&str; 10] = [
    "data",
    "stringData",
    "annotations",
    "labels",
    "matchLabels",
    "nodeSelector",
    "selector",
    "env",
    "args",
    "command",
];

/// A field that is declared and that the object does not hold so.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Difference<'a> {
    pub(crate) path: String,
    pub(crate) declared: &'a Value,
    /// None when the object has no such field.
    pub(crate) found: Option<&'a Value>,
}

/// The declared fields that the object does not hold, at most 50, in the order of the declaration. Both are whole objects.
pub(crate) fn differences<'a>(declared: &'a Value, object: &'a Value) -> Vec<Difference<'a>> {
    let mut walk = Walk::default();
    let is_secret = declared["kind"] == "Secret";
    for (key, field) in declared.as_object().into_iter().flatten() {
        let place = Place::root(key);
        match key.as_str() {
            "status" | "apiVersion" | "kind" => {}
            "metadata" => walk.metadata(&place, field, &object["metadata"]),
            "stringData" if is_secret => walk.string_data(&place, field, &object["data"]),
            "data" if is_secret => walk.data(&place, field, &object["data"], &declared["stringData"]),
            _ => walk.value(&place, field, object.get(key)),
        }
    }
    walk.found
}

/// Differences as they may be told: values masked and cut. `before` is what is there, `after` what is declared.
pub(crate) fn tell(differences: &[Difference<'_>], mask: impl Fn(&str) -> String) -> Vec<FieldDiff> {
    let show = |value: Option<&Value>| value.map(|value| diff::shown(value, &mask)).unwrap_or_default();
    let tell = |it: &Difference<'_>| FieldDiff {
        path: it.path.clone(),
        before: show(it.found),
        after: show(Some(it.declared)),
    };
    differences.iter().map(tell).collect()
}

/// Where the walk is.
struct Place<'p> {
    parent: Option<&'p Place<'p>>,
    step: Step<'p>,
    /// The nearest key, which says what the values of a list are.
    field: &'p str,
    /// Whether text is compared as text.
    text: bool,
}

enum Step<'p> {
    Key(&'p str),
    Item(usize),
}

impl<'p> Place<'p> {
    fn root(key: &'p str) -> Self {
        Self { parent: None, step: Step::Key(key), field: key, text: TEXT.contains(&key) }
    }

    fn key(&'p self, key: &'p str) -> Self {
        Self { parent: Some(self), step: Step::Key(key), field: key, text: self.text || TEXT.contains(&key) }
    }

    fn item(&'p self, ix: usize) -> Self {
        Self { parent: Some(self), step: Step::Item(ix), field: self.field, text: self.text }
    }

    fn path(&self) -> String {
        let parent = self.parent.map(Place::path).unwrap_or_default();
        match self.step {
            Step::Key(key) => diff::join(&parent, key),
            Step::Item(ix) => format!("{parent}[{ix}]"),
        }
    }
}

#[derive(Default)]
struct Walk<'a> {
    found: Vec<Difference<'a>>,
}

impl<'a> Walk<'a> {
    fn add(&mut self, place: &Place<'_>, declared: &'a Value, found: Option<&'a Value>) {
        if self.found.len() < MOST {
            self.found.push(Difference { path: place.path(), declared, found });
        }
    }

    fn metadata(&mut self, place: &Place<'_>, declared: &'a Value, object: &'a Value) {
        for (key, field) in declared.as_object().into_iter().flatten() {
            let place = place.key(key);
            match (key.as_str(), field) {
                (key, _) if NOT_COMPARED.contains(&key) => {}
                ("annotations", Value::Object(annotations)) => {
                    for (key, value) in annotations.iter().filter(|(key, _)| !BOOKKEEPING.contains(&key.as_str())) {
                        self.value(&place.key(key), value, object["annotations"].get(key));
                    }
                }
                _ => self.value(&place, field, object.get(key)),
            }
        }
    }

    /// Write-only: an API server stores it in `data`.
    fn string_data(&mut self, place: &Place<'_>, declared: &'a Value, data: &'a Value) {
        for (key, value) in declared.as_object().into_iter().flatten() {
            let found = data.get(key);
            let stored = value.as_str().map(|text| BASE64_STANDARD.encode(text));
            if !value.is_null() && (stored.is_none() || stored.as_deref() != found.and_then(Value::as_str)) {
                self.add(&place.key(key), value, found);
            }
        }
    }

    fn data(&mut self, place: &Place<'_>, declared: &'a Value, data: &'a Value, overruled_by: &Value) {
        for (key, value) in declared.as_object().into_iter().flatten() {
            if overruled_by.get(key).is_none_or(Value::is_null) {
                self.value(&place.key(key), value, data.get(key));
            }
        }
    }

    fn value(&mut self, place: &Place<'_>, declared: &'a Value, found: Option<&'a Value>) {
        let Some(found) = found.filter(|found| !found.is_null()) else {
            if !is_nothing(place.field, declared) {
                self.add(place, declared, found);
            }
            return;
        };
        match (declared, found) {
            // Nothing is declared, so that an API server fills in its default.
            (Value::Null, _) => {}
            (Value::Object(declared), Value::Object(found)) => {
                for (key, value) in declared {
                    self.value(&place.key(key), value, found.get(key));
                }
            }
            (Value::Array(items), Value::Array(others)) => self.list(place, (declared, items), (found, others)),
            _ if is_same(declared, found, place.text) => {}
            _ => self.add(place, declared, Some(found)),
        }
    }

    fn list(
        &mut self,
        place: &Place<'_>,
        (declared, items): (&'a Value, &'a [Value]),
        (found, others): (&'a Value, &'a [Value]),
    ) {
        if let Some(pairs) = by_key(place.field, items, others) {
            let mut last = None;
            for (ix, (item, other)) in items.iter().zip(pairs).enumerate() {
                self.value(&place.item(ix), item, other.map(|other| &others[other]));
                if other.is_some() && other < last {
                    // Containers start, and variables are resolved, in the order of their lists.
                    return self.add(place, declared, Some(found));
                }
                last = other.or(last);
            }
        } else if ADDED_TO.contains(&place.field) && items.len().saturating_mul(others.len()) <= MOST_PAIRS {
            for (ix, item) in items.iter().enumerate().filter(|(_, item)| !others.iter().any(|it| holds(item, it))) {
                self.add(&place.item(ix), item, None);
            }
        } else if items.len() == others.len() {
            for (ix, (item, other)) in items.iter().zip(others).enumerate() {
                self.value(&place.item(ix), item, Some(other));
            }
        } else {
            self.add(place, declared, Some(found));
        }
    }
}

/// Whether an item of a list holds what a declared one says.
fn holds(declared: &Value, item: &Value) -> bool {
    let mut walk = Walk::default();
    walk.value(&Place::root(""), declared, Some(item));
    walk.found.is_empty()
}

/// For each item the position of the other that has the same key. None if the list is not known to have a key, or not each
/// item has one of its own.
fn by_key(field: &str, items: &[Value], others: &[Value]) -> Option<Vec<Option<usize>>> {
    let keys = KEYED.iter().filter(|(list, _)| *list == field).map(|(_, key)| *key);
    let mut keys = keys.filter(|key| items.iter().all(|item| item.get(key[0]).is_some()));
    keys.find_map(|key| {
        let of = |item: &Value| key.iter().map(|part| key_part(item, part)).collect::<Vec<_>>();
        let declared: HashSet<_> = items.iter().map(of).collect();
        let positions: HashMap<_, _> = others.iter().enumerate().map(|(ix, other)| (of(other), ix)).collect();
        let unique = declared.len() == items.len() && positions.len() == others.len();
        unique.then(|| items.iter().map(|item| positions.get(&of(item)).copied()).collect())
    })
}

fn key_part(item: &Value, part: &str) -> String {
    match item.get(part) {
        Some(Value::String(text)) => text.clone(),
        Some(value) if !value.is_null() => value.to_string(),
        _ if part == "protocol" => "TCP".into(),
        _ => String::new(),
    }
}

/// Whether a declared value is as good as none, so that an API server need not store it.
fn is_nothing(field: &str, declared: &Value) -> bool {
    match declared {
        Value::Null => true,
        Value::Bool(value) => !value && !ZERO_COUNTS.contains(&field),
        Value::Number(number) => number.as_f64() == Some(0.0) && !ZERO_COUNTS.contains(&field),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => are_nothing(map),
    }
}

fn are_nothing(map: &Map<String, Value>) -> bool {
    map.iter().all(|(key, value)| is_nothing(key, value))
}

/// Whether two values that are no lists and no maps are the same, however they are spelt.
fn is_same(declared: &Value, found: &Value, as_text: bool) -> bool {
    if declared == found {
        return true;
    }
    match (declared, found) {
        (Value::Number(a), Value::Number(b)) => same_quantity(&a.to_string(), &b.to_string()),
        (Value::String(a), Value::String(b)) if same_base64(a, b) => true,
        (Value::String(a), Value::String(b)) => !as_text && (same_quantity(a, b) || same_time(a, b)),
        (Value::String(text), Value::Number(number)) | (Value::Number(number), Value::String(text)) => {
            !as_text && same_quantity(text, &number.to_string())
        }
        _ => false,
    }
}

fn same_quantity(a: &str, b: &str) -> bool {
    Quantity::parse(a).is_some_and(|a| Quantity::parse(b) == Some(a))
}

fn same_time(a: &str, b: &str) -> bool {
    let parse = |text: &str| text.parse::<Timestamp>().ok();
    // Most texts are no times, and this is cheaper than to find out.
    let may_be = |text: &str| text.len() >= 20 && text.as_bytes()[10].eq_ignore_ascii_case(&b't');
    may_be(a) && may_be(b) && parse(a).is_some_and(|a| parse(b) == Some(a))
}

/// An API server stores bytes without the line breaks that they may be declared with.
fn same_base64(declared: &str, found: &str) -> bool {
    let is_break = |c: char| c == '\n' || c == '\r';
    declared.contains(is_break)
        && declared.chars().filter(|c| !is_break(*c)).eq(found.chars())
        && BASE64_STANDARD.decode(found).is_ok()
}

#[cfg(test)]
mod tests;
