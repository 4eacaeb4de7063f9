//! Keeps secret values of a manifest out of everything that is said about it (D25, cases 138 and 140).
//!
//! API servers quote what they refuse. Which values are secret is decided by where they stand in the manifest: everything in
//! a Secret, and elsewhere what stands under a telling key, in an environment variable of a telling name, or as the password
//! of a URL.

use std::sync::{Arc, OnceLock};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use serde_json::Value;

const MASK: &str = "[redacted]";
/// A value as short as this is masked only where it stands in quotes: elsewhere it would tear holes into words.
const SHORT: usize = 4;
/// An API server may cut a long value; from this length on its beginning is enough to be masked.
const BEGINNING: usize = 12;

const TELLING: [&str; 13] = [
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "signingkey",
    "credential",
    "kubeconfig",
    "authorization",
];

/// What another component's Secret holds is masked from this length on: words such as `admin` are in many Secrets and in
/// many a harmless sentence.
const FOREIGN: usize = 8;

/// The secret values of one manifest, in every spelling in which a server may quote them.
#[derive(Default)]
pub(crate) struct Secrets {
    values: Vec<String>,
    foreign: Option<Arc<Secrets>>,
}

/// The Secrets of a whole design, which any of its components may repeat (case 140). Read when first asked for: only refusals
/// and warnings need them.
#[derive(Default)]
pub(crate) struct OfDesign {
    manifests: Vec<Bytes>,
    secrets: OnceLock<Arc<Secrets>>,
}

impl OfDesign {
    /// From the manifests of the design's Secrets.
    pub(crate) fn new(manifests: Vec<Bytes>) -> Self {
        Self { manifests, secrets: OnceLock::new() }
    }

    fn secrets(&self) -> Arc<Secrets> {
        let gather = || {
            let each = self.manifests.iter().map(|manifest| Secrets::read(manifest).values);
            Arc::new(Secrets::ordered(each.flatten().filter(|value| value.len() >= FOREIGN).collect()))
        };
        self.secrets.get_or_init(gather).clone()
    }
}

impl Secrets {
    /// The secret values that may be quoted where it is about `manifest`: its own, and those of the design's Secrets.
    pub(crate) fn around(manifest: &[u8], design: &OfDesign) -> Self {
        Self { foreign: Some(design.secrets()), ..Self::read(manifest) }
    }

    fn read(manifest: &[u8]) -> Self {
        std::str::from_utf8(manifest).map_or_else(|_| Self::default(), Self::of)
    }

    /// The secret values of `manifest`, which is JSON. Text that is no JSON has none that could be told.
    pub(crate) fn of(manifest: &str) -> Self {
        serde_json::from_str(manifest).map_or_else(|_| Self::default(), |object| Self::of_value(&object))
    }

    /// The credentials in a kubeconfig, which is JSON.
    pub(crate) fn of_kubeconfig(kubeconfig: &str) -> Self {
        let mut found = Vec::new();
        if let Ok(kubeconfig) = serde_json::from_str::<Value>(kubeconfig) {
            let users = kubeconfig["users"].as_array();
            users.into_iter().flatten().for_each(|user| collect(&user["user"], &mut found));
            walk(&kubeconfig, &mut found);
        }
        Self::from(found)
    }

    /// The credentials in a URL.
    pub(crate) fn of_url(url: &str) -> Self {
        Self::from(userinfo(url).into_iter().chain(url_password(url)).map(str::to_owned).collect())
    }

    /// The secret values of a component in the design's own shape, which is JSON.
    pub(crate) fn of_declaration(declaration: &str) -> Self {
        let Ok(mut declaration) = serde_json::from_str::<Value>(declaration) else { return Self::default() };
        let mut object = declaration["configuration"].take();
        if let Some(object) = object.as_object_mut() {
            object.insert("kind".into(), declaration["component"]["kind"].take());
        }
        Self::of_value(&object)
    }

    /// The secret values of an object.
    pub(crate) fn of_value(object: &Value) -> Self {
        let mut found = Vec::new();
        if object["kind"] == "Secret" {
            collect(&object["data"], &mut found);
            collect(&object["stringData"], &mut found);
        }
        walk(object, &mut found);
        Self::from(found)
    }

    fn from(found: Vec<String>) -> Self {
        let mut values = Vec::new();
        for value in found {
            spellings(&value, &mut values);
        }
        Self::ordered(values)
    }

    /// The longest first, so that a value which contains another is masked whole.
    fn ordered(mut values: Vec<String>) -> Self {
        values.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        values.dedup();
        Self { values, foreign: None }
    }

    /// `text` with every secret value replaced.
    pub(crate) fn mask(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for value in self.values.iter().chain(self.foreign.iter().flat_map(|foreign| &foreign.values)) {
            if value.len() < SHORT {
                text = text.replace(&format!("\"{value}\""), &format!("\"{MASK}\""));
                continue;
            }
            text = text.replace(value.as_str(), MASK);
            if let Some(beginning) = value.get(..BEGINNING).filter(|beginning| beginning.len() < value.len()) {
                text = mask_from(&text, beginning, value);
            }
        }
        text
    }
}

/// Masks every place where `text` holds the beginning of `value` and goes on with it for a while before it was cut.
fn mask_from(text: &str, beginning: &str, value: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(beginning) {
        out.push_str(&rest[..at]);
        out.push_str(MASK);
        let same =
            rest[at..].chars().zip(value.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum::<usize>();
        rest = &rest[at + same..];
    }
    out.push_str(rest);
    out
}

fn is_telling(key: &str) -> bool {
    let plain: String = key.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    // `secretName`, `secretKeyRef`, `imagePullSecrets` name objects; they do not hold what those hold.
    let names_an_object = ["name", "ref", "secrets", "names", "refs"].iter().any(|end| plain.ends_with(end));
    !names_an_object && TELLING.iter().any(|word| plain.contains(word))
}

fn walk(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            let env_name = map.get("name").and_then(Value::as_str).is_some_and(is_telling);
            for (key, value) in map {
                if is_telling(key) || (env_name && key == "value") {
                    collect(value, found);
                } else {
                    walk(value, found);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| walk(item, found)),
        Value::String(text) => found.extend(url_password(text).map(str::to_owned)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Takes in everything below `value`.
fn collect(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.values().for_each(|value| collect(value, found)),
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        Value::String(text) => found.push(text.clone()),
        Value::Number(number) => found.push(number.to_string()),
        Value::Null | Value::Bool(_) => {}
    }
}

/// The part of a URL that may hold credentials, with the `@` left out.
pub(crate) fn userinfo(url: &str) -> Option<&str> {
    let authority = url.split_once("://")?.1.split(['/', '?', '#']).next()?;
    Some(authority.rsplit_once('@')?.0)
}

/// The URL without credentials.
pub(crate) fn without_userinfo(url: &str) -> String {
    match userinfo(url) {
        Some(userinfo) => url.replacen(&format!("{userinfo}@"), "", 1),
        None => url.to_owned(),
    }
}

fn url_password(text: &str) -> Option<&str> {
    let (_, password) = userinfo(text)?.split_once(':')?;
    (!password.is_empty()).then_some(password)
}

fn spellings(value: &str, values: &mut Vec<String>) {
    let mut add = |text: &str| {
        if !text.is_empty() {
            values.push(text.to_owned());
        }
    };
    let mut plain = |text: &str| {
        add(text);
        add(text.trim());
        // As it stands inside quotes in JSON and in Go's %q.
        add(Value::from(text).to_string().trim_matches('"'));
        add(&BASE64_STANDARD.encode(text));
        text.lines().map(str::trim).filter(|line| line.len() >= BEGINNING).for_each(&mut add);
    };
    plain(value);
    if let Some(decoded) = BASE64_STANDARD.decode(value.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok()) {
        plain(&decoded);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mask(manifest: &Value, text: &str) -> String {
        Secrets::of(&manifest.to_string()).mask(text)
    }

    #[test]
    fn values_of_another_components_secret_are_masked_unless_they_are_common_words() {
        let secret = json!({"kind": "Secret", "stringData": {"password": "S3CR3T-7f1", "user": "admin"}}).to_string();
        let design = OfDesign::new(vec![Bytes::from(secret)]);
        let pod = json!({"kind": "Pod", "spec": {"args": ["S3CR3T-7f1"]}}).to_string();
        let masked = Secrets::around(pod.as_bytes(), &design).mask("admin said S3CR3T-7f1");
        assert_eq!(masked, "admin said [redacted]");
    }

    #[test]
    fn values_of_a_secret_are_masked_in_every_spelling() {
        let plain = "S3CR3T-7f1";
        let encoded = BASE64_STANDARD.encode(plain);
        let manifest = json!({"kind": "Secret", "data": {"a": encoded}, "stringData": {"b": "multi\nline-of-text-that-is-long", "n": 5432}});
        for text in [
            format!("bad \"{plain}\""),
            format!("bad {encoded}!"),
            "bad multi\\nline-of-text-that-is-long".into(),
            "got line-of-text-that-is-long".into(),
            "number 5432".into(),
        ] {
            let masked = mask(&manifest, &text);
            assert!(masked.contains(MASK), "{masked}");
            for value in [plain, encoded.as_str(), "line-of-text", "5432"] {
                assert!(!masked.contains(value), "{masked}");
            }
        }
    }

    #[test]
    fn cut_value_is_masked_too() {
        let manifest = json!({"kind": "Secret", "stringData": {"key": "0123456789abcdefghijklmnop"}});
        assert_eq!(mask(&manifest, "value 0123456789abcdef... is bad"), "value [redacted]... is bad");
    }

    #[test]
    fn telling_names_are_masked_and_references_are_not() {
        let manifest = json!({
            "kind": "Deployment",
            "spec": {
                "env": [
                    {"name": "DB_PASSWORD", "value": "hunter2!"},
                    {"name": "MODE", "value": "verbose"},
                    {"name": "X", "valueFrom": {"secretKeyRef": {"name": "shop-db", "key": "pw"}}},
                ],
                "api-token": "tok-123456",
                "url": "postgres://shop:pa55word@db/shop",
                "secretName": "shop-tls",
            }
        });
        assert_eq!(mask(&manifest, "hunter2! tok-123456 pa55word"), "[redacted] [redacted] [redacted]");
        assert_eq!(mask(&manifest, "verbose shop-db shop-tls"), "verbose shop-db shop-tls");
    }

    #[test]
    fn config_map_text_is_not_masked() {
        let manifest = json!({"kind": "ConfigMap", "data": {"colour": "blueish"}});
        assert_eq!(mask(&manifest, "blueish"), "blueish");
    }

    #[test]
    fn short_values_are_masked_in_quotes_only() {
        let manifest = json!({"kind": "Secret", "stringData": {"pin": "no"}});
        assert_eq!(mask(&manifest, "\"no\" is not known"), "\"[redacted]\" is not known");
    }
}
