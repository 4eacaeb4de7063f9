//! The JSON form of `switchyard.v1.Registry`, in JSON or YAML.
//!
//! As proto3 JSON: `camelCase` and `snake_case` names are both taken, enums by name. A key that the form does not have is
//! refused, so that a slip of the finger is not read as silence.

use super::{Address, Chart, Error, Port, Protocol, Registrant};
use crate::document::{Map, Node, Path, Value};
use crate::problem::quoted;

/// The entries of a registry, not yet checked against each other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Form {
    /// Who registered models.
    pub registrants: Vec<Registrant>,
    /// The models.
    pub models: Vec<Model>,
    /// The registrant of models that are not listed; empty for none.
    pub default_registrant: String,
}

/// A model as the form lists it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Model {
    /// The name.
    pub name: String,
    /// The version; empty for any.
    pub version: String,
    /// The registrant's name.
    pub registrant: String,
    /// What it needs installed.
    pub chart: Option<Chart>,
    /// Whether it holds drawings only.
    pub is_annotation: bool,
}

/// Reads the form out of a document.
pub fn read(map: &Map<'_>) -> Result<Form, Error> {
    let mut form = Form::default();
    let root = Fields { map, path: Path::root() };
    root.known(&["registrants", "models", "default_registrant"])?;
    for fields in root.maps("registrants")? {
        form.registrants.push(registrant(&fields)?);
    }
    for fields in root.maps("models")? {
        form.models.push(model(&fields)?);
    }
    form.default_registrant = root.text("default_registrant")?;
    Ok(form)
}

fn registrant(fields: &Fields<'_, '_>) -> Result<Registrant, Error> {
    fields.known(&["name", "kind", "host", "port", "protocol"])?;
    let port = match fields.get("port").map(|node| &node.value) {
        None | Some(Value::Null) => Port::Absent,
        Some(Value::Number(text)) => Port::Number(text.to_string()),
        Some(Value::String(text)) => Port::Text(text.to_string()),
        Some(_) => Port::Other,
    };
    let protocol = match fields.text("protocol")?.as_str() {
        "" | "ADAPTER_PROTOCOL_UNSPECIFIED" | "ADAPTER_PROTOCOL_AUTO" => Protocol::Auto,
        "ADAPTER_PROTOCOL_PROVISION" => Protocol::Provision,
        "ADAPTER_PROTOCOL_PROCESS_OAM" => Protocol::ProcessOam,
        other => {
            let message = format!(
                "{} is no protocol; give ADAPTER_PROTOCOL_AUTO, ADAPTER_PROTOCOL_PROVISION or \
                 ADAPTER_PROTOCOL_PROCESS_OAM",
                quoted(other)
            );
            return Err(Error { field: fields.path.clone().key("protocol").into(), message });
        }
    };
    let address = Address::new(&fields.text("host")?, &port);
    Ok(Registrant { name: fields.text("name")?, kind: fields.text("kind")?, address, protocol })
}

fn model(fields: &Fields<'_, '_>) -> Result<Model, Error> {
    fields.known(&["name", "version", "registrant", "chart", "is_annotation"])?;
    let chart = match fields.map("chart")? {
        None => None,
        Some(chart) => {
            chart.known(&["url", "version", "namespace"])?;
            let (url, version, namespace) = (chart.text("url")?, chart.text("version")?, chart.text("namespace")?);
            Some(Chart { url, version, namespace })
        }
    };
    Ok(Model {
        name: fields.text("name")?,
        version: fields.text("version")?,
        registrant: fields.text("registrant")?,
        chart,
        is_annotation: fields.flag("is_annotation")?,
    })
}

/// A map and its path. Names of fields are given in `snake_case`.
struct Fields<'n, 't> {
    map: &'n Map<'t>,
    path: Path,
}

impl<'n, 't> Fields<'n, 't> {
    fn get(&self, name: &str) -> Option<&'n Node<'t>> {
        self.map.get(name).or_else(|| self.map.get(&camel(name)))
    }

    fn known(&self, names: &[&str]) -> Result<(), Error> {
        let unknown =
            self.map.iter().find(|entry| !names.iter().any(|name| entry.key == *name || entry.key == camel(name)));
        match unknown {
            None => Ok(()),
            Some(entry) => Err(Error {
                field: self.path.clone().key(&entry.key).into(),
                message: format!("there is no such field; there are {}", names.join(", ")),
            }),
        }
    }

    fn wrong(&self, name: &str, node: &Node<'_>, wanted: &str) -> Error {
        let message = format!("it is {} and must be {wanted}", node.value.type_name());
        Error { field: self.path.clone().key(name).into(), message }
    }

    fn text(&self, name: &str) -> Result<String, Error> {
        match self.get(name).map(|node| (node, &node.value)) {
            None | Some((_, Value::Null)) => Ok(String::new()),
            Some((_, Value::String(text))) => Ok(text.to_string()),
            // `version: 1.20` in YAML.
            Some((_, Value::Number(text))) if name == "version" => Ok(text.to_string()),
            Some((node, _)) => Err(self.wrong(name, node, "text")),
        }
    }

    fn flag(&self, name: &str) -> Result<bool, Error> {
        match self.get(name).map(|node| (node, &node.value)) {
            None | Some((_, Value::Null)) => Ok(false),
            Some((_, Value::Bool(value))) => Ok(*value),
            Some((node, _)) => Err(self.wrong(name, node, "true or false")),
        }
    }

    fn map(&self, name: &str) -> Result<Option<Fields<'n, 't>>, Error> {
        match self.get(name).map(|node| (node, &node.value)) {
            None | Some((_, Value::Null)) => Ok(None),
            Some((_, Value::Map(map))) => Ok(Some(Fields { map, path: self.path.clone().key(name) })),
            Some((node, _)) => Err(self.wrong(name, node, "a map")),
        }
    }

    fn maps(&self, name: &str) -> Result<Vec<Fields<'n, 't>>, Error> {
        let list = match self.get(name).map(|node| (node, &node.value)) {
            None | Some((_, Value::Null)) => return Ok(Vec::new()),
            Some((_, Value::List(list))) => list,
            Some((node, _)) => return Err(self.wrong(name, node, "a list")),
        };
        let mut maps = Vec::with_capacity(list.len());
        for (index, node) in list.iter().enumerate() {
            let path = self.path.clone().key(name).index(index);
            match node.as_map() {
                Some(map) => maps.push(Fields { map, path }),
                None => {
                    let message = format!("it is {} and must be a map", node.value.type_name());
                    return Err(Error { field: path.into(), message });
                }
            }
        }
        Ok(maps)
    }
}

/// The name that proto3 JSON gives a field.
fn camel(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut upper = false;
    for c in name.chars() {
        match c {
            '_' => upper = true,
            c if upper => {
                out.push(c.to_ascii_uppercase());
                upper = false;
            }
            c => out.push(c),
        }
    }
    out
}
