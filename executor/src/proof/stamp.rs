//! The annotation that says what was applied: a digest of manifest and schema, put into the manifest's own bytes.
//!
//! A manifest is not taken apart and put together again for that: it goes out as the plan has it, with one entry more.

use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, value::RawValue};
use sha2::{Digest, Sha256};

use super::{APPLIED, DEPENDS_ON};

/// What the digest begins with, so that what it is made of can change.
const FORM: &[u8] = b"switchyard.dev/applied 1\n";
/// Bytes of the digest that are kept.
const KEPT: usize = 16;

/// A manifest that can be stamped.
#[derive(Clone, Debug)]
pub struct Stamp {
    /// Without the annotation.
    manifest: Bytes,
    /// Of the manifest, without the version of the design.
    digest: Sha256,
    /// Where the annotation goes, and what stands around it.
    at: usize,
    around: (&'static str, &'static str),
    /// The other annotation that the executor adds, with its comma; empty if there is none.
    depends_on: String,
}

/// A manifest as it is sent.
#[derive(Clone, Debug)]
pub struct Stamped {
    /// The object as JSON, with the annotation.
    pub manifest: Bytes,
    /// The annotation's value.
    pub digest: String,
}

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow, default, deserialize_with = "even_null")]
    annotations: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Annotations<'a> {
    #[serde(borrow, default, rename = "design.meshery.io/version", deserialize_with = "even_null")]
    version: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "switchyard.dev/applied", deserialize_with = "even_null")]
    applied: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "switchyard.dev/depends-on", deserialize_with = "even_null")]
    depends_on: Option<&'a RawValue>,
}

fn even_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl Stamp {
    /// Prepares a manifest. One that brings the annotation along loses it. None when it is not an object with metadata that
    /// could hold annotations; an API server will say so.
    pub fn new(manifest: &Bytes) -> Option<Self> {
        Self::plain(manifest).or_else(|| Self::plain(&cleaned(manifest)?))
    }

    /// The stamp of a manifest that says everything once and has no such annotation.
    fn plain(manifest: &Bytes) -> Option<Self> {
        let text = std::str::from_utf8(manifest).ok()?;
        let place = |raw: &RawValue| raw.get().as_ptr() as usize - text.as_ptr() as usize;
        // serde takes lists for structs too.
        let is_map = |text: &str| text.trim_start().starts_with('{');
        let Object { metadata } = serde_json::from_str(text).ok().filter(|_| is_map(text))?;
        let metadata_at = place(metadata);
        if !is_map(metadata.get()) {
            return None;
        }
        let Metadata { annotations } = serde_json::from_str(metadata.get()).ok()?;
        let mut version = None;
        let (at, around) = match annotations {
            None if is_empty(metadata.get()) => (metadata_at + 1, (r#""annotations":{"#, "}")),
            None => (metadata_at + 1, (r#""annotations":{"#, "},")),
            Some(annotations) => {
                let known: Annotations<'_> = serde_json::from_str(annotations.get()).ok()?;
                if known.applied.is_some() || known.depends_on.is_some() || !is_map(annotations.get()) {
                    return None;
                }
                version = known.version.map(|version| (place(version), version.get().len()));
                let after = if is_empty(annotations.get()) { "" } else { "," };
                (place(annotations) + 1, ("", after))
            }
        };
        let mut digest = Sha256::new_with_prefix(FORM);
        match version {
            Some((start, length)) => {
                digest.update(&manifest[..start]);
                digest.update(&manifest[start + length..]);
            }
            None => digest.update(manifest),
        }
        Some(Self { manifest: manifest.clone(), digest, at, around, depends_on: String::new() })
    }

    /// The same with the components that it depends on written down (L6), if there are any.
    #[must_use]
    pub fn after(mut self, components: &[&str]) -> Self {
        if !components.is_empty() {
            let list = serde_json::Value::from(components.join(","));
            self.depends_on = format!("\"{DEPENDS_ON}\":{list}");
            self.digest.update("\n");
            self.digest.update(&self.depends_on);
        }
        self
    }

    /// The manifest as it is sent to a cluster whose schema of the object's group version has this hash.
    pub fn put(&self, schema: &str) -> Stamped {
        let mut digest = self.digest.clone();
        digest.update("\n");
        digest.update(schema);
        let digest = hex::encode(&digest.finalize()[..KEPT]);
        let comma = if self.depends_on.is_empty() { "" } else { "," };
        let manifest = self.insert(&["\"", APPLIED, "\":\"", &digest, "\"", comma, &self.depends_on]);
        Stamped { manifest, digest }
    }

    /// The manifest as it is sent to a cluster whose schema nobody can tell: without the annotation.
    pub fn unstamped(&self) -> Bytes {
        if self.depends_on.is_empty() { self.manifest.clone() } else { self.insert(&[&self.depends_on]) }
    }

    /// The manifest with more annotations.
    fn insert(&self, annotations: &[&str]) -> Bytes {
        let (head, tail) = self.manifest.split_at(self.at);
        let (before, after) = self.around;
        let mut whole = Vec::with_capacity(self.manifest.len() + 256);
        whole.extend_from_slice(head);
        for text in std::iter::once(&before).chain(annotations).chain([&after]) {
            whole.extend_from_slice(text.as_bytes());
        }
        whole.extend_from_slice(tail);
        whole.into()
    }
}

fn is_empty(map: &str) -> bool {
    map.trim_start_matches('{').trim_start().starts_with('}')
}

/// The manifest without the annotation, everything once, and no null where annotations go.
fn cleaned(manifest: &[u8]) -> Option<Bytes> {
    let mut object: Value = serde_json::from_slice(manifest).ok()?;
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    match metadata.get_mut("annotations") {
        Some(Value::Object(annotations)) => {
            annotations.shift_remove(APPLIED);
            annotations.shift_remove(DEPENDS_ON);
        }
        Some(Value::Null) => {
            metadata.shift_remove("annotations");
        }
        Some(_) | None => {}
    }
    serde_json::to_vec(&object).ok().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamped(manifest: &str) -> Value {
        let stamped = Stamp::new(&Bytes::from(manifest.to_owned())).unwrap().put("hash");
        let mut object: Value = serde_json::from_slice(&stamped.manifest).unwrap();
        let annotation = object["metadata"]["annotations"].as_object_mut().unwrap().shift_remove(APPLIED);
        assert_eq!(annotation, Some(Value::from(stamped.digest)));
        object
    }

    fn digest(manifest: &str, schema: &str) -> String {
        Stamp::new(&Bytes::from(manifest.to_owned())).unwrap().put(schema).digest
    }

    #[test]
    fn nothing_but_the_annotation_is_added() {
        for manifest in [
            r#"{"kind":"A","metadata":{"name":"a","annotations":{"b":"c"}},"n":1.10}"#,
            r#"{"metadata":{"annotations":{ },"name":"a"}}"#,
            r#" { "metadata" : { "name" : "a" } } "#,
        ] {
            let mut wanted: Value = serde_json::from_str(manifest).unwrap();
            if wanted["metadata"]["annotations"].is_null() {
                wanted["metadata"]["annotations"] = Value::Object(serde_json::Map::new());
            }
            assert_eq!(stamped(manifest), wanted, "{manifest}");
        }
        let bare: Value = serde_json::from_str(r#"{"metadata":{"annotations":{}}}"#).unwrap();
        assert_eq!(stamped(r#"{"metadata":{}}"#), bare);
        // As it was written, to the byte.
        let out = Stamp::new(&Bytes::from(r#"{"metadata":{"name":"a"},"n":1.10}"#)).unwrap().put("").manifest;
        assert!(out.ends_with(br#"},"name":"a"},"n":1.10}"#), "{out:?}");
    }

    /// L4: a design that brings the annotation along does not get it through, however it is written.
    #[test]
    fn annotation_of_a_design_does_not_get_through() {
        let plain = r#"{"metadata":{"name":"a","annotations":{"b":"c"}}}"#;
        for forged in [
            r#"{"metadata":{"name":"a","annotations":{"b":"c","switchyard.dev/applied":"forged"}}}"#,
            r#"{"metadata":{"name":"a","annotations":{"switchyard.dev\/applied":"forged","b":"c"}}}"#,
            r#"{"metadata":{"name":"a","annotations":{"b":"c","switchyard.dev/applied":null}}}"#,
            r#"{"metadata":{"name":"x"},"metadata":{"name":"a","annotations":{"b":"c","switchyard.dev/applied":"f"}}}"#,
            r#"{"metadata":{"name":"a","annotations":{"switchyard.dev/applied":"f"},"annotations":{"b":"c"}}}"#,
        ] {
            assert_eq!(digest(forged, "s"), digest(plain, "s"), "{forged}");
            assert!(!String::from_utf8_lossy(&Stamp::new(&Bytes::from(forged)).unwrap().unstamped()).contains("dev"));
        }
        assert_eq!(stamped(r#"{"metadata":{"annotations":null}}"#), stamped(r#"{"metadata":{}}"#));
    }

    /// L6.
    #[test]
    fn what_it_depends_on_is_written_down_and_counts() {
        let manifest =
            Bytes::from(r#"{"metadata":{"name":"a","annotations":{"switchyard.dev/depends-on":"x","b":"c"}}}"#);
        let after = |components: &[&str]| Stamp::new(&manifest).unwrap().after(components);
        let annotations = |manifest: &[u8]| {
            let object: Value = serde_json::from_slice(manifest).unwrap();
            object["metadata"]["annotations"].clone()
        };
        let stamped = after(&["one", "t\"wo"]).put("");
        let wanted = serde_json::json!({APPLIED: stamped.digest, DEPENDS_ON: "one,t\"wo", "b": "c"});
        assert_eq!(annotations(&stamped.manifest), wanted);
        assert_eq!(annotations(&after(&["one"]).unstamped()), serde_json::json!({DEPENDS_ON: "one", "b": "c"}));
        assert_eq!(annotations(&after(&[]).unstamped()), serde_json::json!({"b": "c"}));
        assert_ne!(after(&["one"]).put("").digest, after(&[]).put("").digest);
    }

    #[test]
    fn digest_tells_manifests_and_schemas_apart_and_not_versions_of_the_design() {
        let manifest = |version: &str, value: &str| {
            let version = format!(r#""design.meshery.io/version":"{version}""#);
            format!(r#"{{"metadata":{{"name":"a","annotations":{{{version},"b":"{value}"}}}}}}"#)
        };
        let known = digest(&manifest("1", "c"), "schema");
        assert_eq!(known.len(), 2 * KEPT);
        assert_eq!(known, digest(&manifest("2", "c"), "schema"));
        assert_ne!(known, digest(&manifest("1", "d"), "schema"));
        assert_ne!(known, digest(&manifest("1", "c"), "other"));
    }

    #[test]
    fn what_cannot_be_annotated_is_left_to_the_api_server() {
        for odd in ["", "[]", "{}", r#"{"metadata":[]}"#, r#"{"metadata":{"annotations":"a"}}"#, "{\"metadata\":"] {
            assert!(Stamp::new(&Bytes::from(odd)).is_none(), "{odd}");
        }
    }
}
