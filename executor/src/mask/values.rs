//! Which values are secret: everything in a Secret, and elsewhere what stands under a telling key, in an environment variable of a
//! telling name, or in a URL where credentials stand.

use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use percent_encoding::percent_decode_str;
use serde_json::Value;
use switchyard_proto::userinfo;

/// Lines of a value are masked by themselves from this length on, in bytes.
const LINE: usize = 12;

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

/// Base64 as whoever writes it by hand does, with or without padding.
const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// Secret values, as they are gathered.
#[derive(Default)]
pub(super) struct Values(Vec<Vec<u8>>);

impl Values {
    pub(super) fn into_inner(self) -> Vec<Vec<u8>> {
        self.0
    }

    /// Takes in what is secret in an object.
    pub(super) fn object(&mut self, object: &Value) {
        if object["kind"] == "Secret" {
            self.everything(&object["data"]);
            self.everything(&object["stringData"]);
        }
        self.telling(object);
    }

    /// Takes in the credentials in a kubeconfig.
    pub(super) fn kubeconfig(&mut self, kubeconfig: &Value) {
        let users = kubeconfig["users"].as_array();
        users.into_iter().flatten().for_each(|user| self.everything(&user["user"]));
        self.telling(kubeconfig);
    }

    /// Takes in the credentials in a URL: who it says it is, and the values of its query, which may be a signature.
    pub(super) fn url(&mut self, url: &str) {
        for part in userinfo(url).into_iter().flat_map(|userinfo| [Some(userinfo), password(userinfo)]).flatten() {
            self.value(part);
        }
        self.query(url);
    }

    fn query(&mut self, url: &str) {
        let query = url.split_once("://").and_then(|(_, rest)| rest.split_once('?'));
        let query = query.map(|(_, query)| query.split('#').next().unwrap_or_default()).unwrap_or_default();
        for (_, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            self.value(value);
        }
    }

    /// Takes in one secret value, with what is in it and may be quoted without it.
    pub(super) fn value(&mut self, value: &str) {
        self.parts(value);
        let packed: String = value.split_ascii_whitespace().collect();
        let decoded = STANDARD.decode(&packed).or_else(|_| URL_SAFE.decode(&packed));
        if let Ok(decoded) = decoded {
            match std::str::from_utf8(&decoded) {
                Ok(text) => self.parts(text),
                Err(_) => self.0.push(decoded),
            }
        }
    }

    fn parts(&mut self, value: &str) {
        let mut add = |text: &str| self.0.push(text.as_bytes().to_vec());
        add(value);
        add(value.trim());
        for line in value.lines().map(str::trim) {
            if line.len() >= LINE {
                add(line);
            }
            // A file of settings in a Secret: its values are quoted without their names.
            let setting = line.split_once('=').or_else(|| line.split_once(": "));
            if let Some((_, value)) = setting.filter(|(key, _)| is_telling(key)) {
                add(value.trim().trim_matches(['"', '\'']));
            }
        }
        if let Some(password) = userinfo(value).and_then(password) {
            add(password);
            self.0.push(percent_decode_str(password).collect());
        }
        if value.contains('%') {
            self.0.push(percent_decode_str(value).collect());
        }
        if value.trim_start().starts_with('{')
            && let Ok(inner) = serde_json::from_str::<Value>(value)
        {
            self.telling(&inner);
        }
    }

    /// Takes in what stands under telling names, at any depth.
    fn telling(&mut self, value: &Value) {
        match value {
            Value::Object(map) => {
                let env_name = map.get("name").and_then(Value::as_str).is_some_and(is_telling);
                for (key, value) in map {
                    if is_telling(key) || (env_name && key == "value") {
                        self.everything(value);
                    } else if let ("auth", Value::String(text)) = (key.as_str(), value) {
                        // Where Docker's configuration has user and password.
                        self.value(text);
                    } else {
                        self.telling(value);
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.telling(item)),
            Value::String(text) => {
                if let Some(password) = userinfo(text).and_then(password) {
                    self.value(password);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Takes in everything below `value`.
    fn everything(&mut self, value: &Value) {
        match value {
            Value::Object(map) => map.values().for_each(|value| self.everything(value)),
            Value::Array(items) => items.iter().for_each(|item| self.everything(item)),
            Value::String(text) => self.value(text),
            Value::Number(number) => self.value(&number.to_string()),
            Value::Null | Value::Bool(_) => {}
        }
    }
}

fn password(userinfo: &str) -> Option<&str> {
    let (_, password) = userinfo.split_once(':')?;
    (!password.is_empty()).then_some(password)
}

/// Whether what stands under this name is a secret.
fn is_telling(key: &str) -> bool {
    let plain: String = key.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    // `secretName`, `secretKeyRef`, `imagePullSecrets` name objects; they do not hold what those hold.
    let names_an_object = ["name", "ref", "secrets", "names", "refs"].iter().any(|end| plain.ends_with(end));
    !names_an_object && TELLING.iter().any(|word| plain.contains(word))
}
