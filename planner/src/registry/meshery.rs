//! Meshery's own documents: connections (registrants), models, components, registrations, and lists of them as its REST API
//! answers them.
//!
//! Of a registrant's `metadata` only host and port are read; the rest, whole kubeconfigs among it, is never kept (D25).

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{Address, Chart, Model, Port, Protocol, Registrant, Registry};
use crate::document::{self, Limits, Map, Node, Text, Value};
use crate::problem::quoted;

/// What documents said so far. Connections and models refer to each other by id, so both are gathered first.
#[derive(Default)]
pub struct Gathering {
    connections: HashMap<String, Registrant>,
    models: Vec<Listed>,
    /// Entries that were understood, those that are switched off included.
    understood: usize,
}

/// Two registrants behind one model that lead to different places.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "model {} {} is listed with two registrants, {} and {}, that lead to different addresses; keep one of the two",
    quoted(.model), quoted(.version), quoted(.first), quoted(.second)
)]
pub struct Conflict {
    /// The model.
    pub model: String,
    /// Its version.
    pub version: String,
    /// Name and address of the one.
    pub first: String,
    /// Name and address of the other.
    pub second: String,
}

struct Listed {
    name: String,
    version: String,
    registrant: Option<Registrant>,
    registrant_id: String,
    updated: String,
    chart_url: String,
    is_annotation: bool,
}

impl Gathering {
    /// How many entries were understood so far, those that are switched off included.
    pub fn understood(&self) -> usize {
        self.understood
    }

    /// Takes in a document. Answers whether it was one of Meshery's registry at all.
    pub fn take(&mut self, node: &Node<'_>) -> bool {
        match &node.value {
            Value::List(list) => list.iter().fold(false, |any, node| self.take(node) | any),
            Value::Map(map) => self.take_map(map),
            _ => false,
        }
    }

    fn take_map(&mut self, map: &Map<'_>) -> bool {
        if map.get("entityType").is_some() && map.get("entity").is_some() {
            self.take_registration(map);
            return true;
        }
        if is_model(map) {
            self.take_model(map, None);
            return true;
        }
        let model = map.get("model").and_then(Node::as_map).filter(|model| model.get("name").is_some());
        if let (Some(model), true) = (model, map.get("component").is_some() || map.get("kind").is_some()) {
            self.take_model(model, None);
            return true;
        }
        let mut any = false;
        for key in ["registrants", "models", "components"] {
            if let Some(list) = map.get(key).filter(|node| node.as_list().is_some()) {
                any |= self.take(list) | list.as_list().is_some_and(<[_]>::is_empty);
            }
        }
        if any {
            return true;
        }
        let connection = text(map, &["schemaVersion"]).starts_with("connections.meshery.io/")
            || (map.get("kind").is_some() && map.get("metadata").is_some() && map.get("status").is_some());
        if connection {
            let registrant = registrant(map);
            self.understood += usize::from(registrant.is_some() || is_off(map));
            if let Some(registrant) = registrant {
                self.connections.insert(id(map, &["id"]), registrant);
            }
        }
        connection
    }

    /// What an adapter posts to register a component: who it is, and the component in base64.
    fn take_registration(&mut self, map: &Map<'_>) {
        let who = ["connection", "host"].iter().find_map(|key| map.get(key)?.as_map()).and_then(registrant);
        let Ok(entity) = STANDARD.decode(text(map, &["entity"])) else { return };
        let Ok(entity) = String::from_utf8(entity) else { return };
        let (entity, _) = document::read(Text::new(&entity), &Limits::default());
        let model = entity.as_ref().and_then(|entity| entity.get(&["model"])).and_then(Node::as_map);
        if let Some(model) = model {
            self.take_model(model, who);
        }
    }

    fn take_model(&mut self, map: &Map<'_>, who: Option<Registrant>) {
        let name = text(map, &["name"]);
        if name.is_empty() {
            return;
        }
        self.understood += 1;
        if matches!(text(map, &["status"]).as_str(), "ignored" | "duplicate") {
            return;
        }
        let version = match text(map, &["model", "version"]) {
            // The shape of old adapters has the software's version in the model's own field.
            version if version.is_empty() && map.get("model").is_none() => text(map, &["version"]),
            version => version,
        };
        let embedded = ["registrant", "connection"].iter().find_map(|key| map.get(key)?.as_map());
        let registrant = who.or_else(|| embedded.and_then(registrant));
        let registrant_id = ["connection_id", "connectionId", "registrantId"].iter().map(|key| id(map, &[key]));
        let updated = ["updated_at", "updatedAt"].iter().map(|key| embedded.map_or(String::new(), |e| text(e, &[key])));
        let carries_chart = registrant.as_ref().is_some_and(|registrant| registrant.kind == "artifacthub");
        let chart_url = if carries_chart { text(map, &["metadata", "source_uri"]) } else { String::new() };
        self.models.push(Listed {
            name,
            version,
            registrant,
            registrant_id: registrant_id.into_iter().find(|id| !id.is_empty()).unwrap_or_default(),
            updated: updated.into_iter().find(|time| !time.is_empty()).unwrap_or_default(),
            chart_url,
            is_annotation: map
                .get("metadata")
                .and_then(|m| m.get(&["isAnnotation"]))
                .is_some_and(|flag| flag.value == Value::Bool(true)),
        });
    }

    /// Adds what was gathered to a registry, whose own entries win.
    pub fn into_registry(self, mut registry: Registry) -> Result<Registry, Conflict> {
        let Self { connections, models, understood: _ } = self;
        let given: std::collections::HashSet<String> = registry.models.keys().cloned().collect();
        let mut updated: HashMap<(String, String), String> = HashMap::new();
        for listed in models {
            let Listed { name, version, registrant, registrant_id, updated: time, chart_url, is_annotation } = listed;
            if given.contains(&name) {
                continue;
            }
            let registrant = registrant.or_else(|| connections.get(&registrant_id).cloned());
            let index = match registrant {
                Some(registrant) => Some(registry.index_of(registrant)),
                None if is_annotation => None,
                // Nobody stands behind it: as good as not listed.
                None => continue,
            };
            let chart = Some(Chart { url: chart_url, ..Chart::default() }).filter(|chart| is_chart(&chart.url));
            let model = Model { version, registrant: index, chart, is_annotation };
            let key = (name, model.version.clone());
            let entries = registry.models.entry(key.0.clone()).or_default();
            let Some(index) = entries.find(&model.version) else {
                entries.push(model);
                updated.insert(key, time);
                continue;
            };
            let entry = &mut entries.entries[index];
            let known = updated.get(&key).cloned().unwrap_or_default();
            let address = |index: Option<usize>| index.map(|index| &registry.registrants[index].address);
            if address(entry.registrant) == address(model.registrant) {
                entry.chart = entry.chart.take().or(model.chart);
                continue;
            }
            // Registering again under a new address leaves the old entry behind; the newer one is meant.
            match time.cmp(&known) {
                std::cmp::Ordering::Greater => {
                    entries.replace(index, model);
                    updated.insert(key, time);
                }
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => {
                    let named = |index: Option<usize>| match index.map(|index| &registry.registrants[index]) {
                        Some(Registrant { name, address, .. }) => format!("{name} ({address})"),
                        None => "none".into(),
                    };
                    let (first, second) = (named(entry.registrant), named(model.registrant));
                    let (model, version) = key;
                    return Err(Conflict { model, version, first, second });
                }
            }
        }
        Ok(registry)
    }
}

impl Registry {
    fn index_of(&mut self, registrant: Registrant) -> usize {
        match self.registrants.iter().position(|known| *known == registrant) {
            Some(index) => index,
            None => {
                self.registrants.push(registrant);
                self.registrants.len() - 1
            }
        }
    }
}

fn is_model(map: &Map<'_>) -> bool {
    let stated = text(map, &["schemaVersion"]).starts_with("models.meshery.io/");
    let shaped = ["registrant", "connection_id", "registrantId", "hostID"].iter().any(|key| map.get(key).is_some())
        && map.get("component").is_none()
        && map.get("kind").is_none();
    map.get("name").is_some() && (stated || shaped)
}

/// Whether a registrant is there and not to be used.
fn is_off(map: &Map<'_>) -> bool {
    matches!(text(map, &["status"]).as_str(), "deleted" | "ignored")
}

/// A registrant, in the shape of a connection or of the old host row. One that says nothing is none.
fn registrant(map: &Map<'_>) -> Option<Registrant> {
    let kind = text(map, &["kind"]);
    let hostname = text(map, &["Hostname"]);
    if is_off(map) {
        return None;
    }
    let metadata = map.get("metadata").and_then(Node::as_map);
    let places = || metadata.into_iter().chain([map]);
    let port = places().find_map(|map| map.get("port").or_else(|| map.get("Port"))).map(|node| &node.value);
    let port = match port {
        None | Some(Value::Null) => Port::Absent,
        // The old host row has 0 for "none".
        Some(Value::Number(text)) if text == "0" && !hostname.is_empty() => Port::Absent,
        Some(Value::Number(text)) => Port::Number(text.to_string()),
        Some(Value::String(text)) => Port::Text(text.to_string()),
        Some(_) => Port::Other,
    };
    let host = ["host_name", "hostname", "host", "Hostname"];
    let host = places().find_map(|map| host.iter().find_map(|key| map.get(key)?.as_str()));
    let address = Address::new(host.unwrap_or_default(), &port);
    let name = [text(map, &["name"]), text(map, &["hostname"]), hostname, kind.clone()];
    let name = name.into_iter().find(|name| !name.is_empty())?;
    let kind = if kind.is_empty() { name.clone() } else { kind };
    Some(Registrant { name, kind, address, protocol: Protocol::Auto })
}

fn is_chart(url: &str) -> bool {
    url.starts_with("oci://") || (url.starts_with("https://") && url.ends_with(".tgz"))
}

fn text(map: &Map<'_>, keys: &[&str]) -> String {
    let Some((first, rest)) = keys.split_first() else { return String::new() };
    map.get(first).and_then(|node| node.get(rest)).and_then(Node::as_str).unwrap_or_default().to_owned()
}

/// An id; the nil uuid is none.
fn id(map: &Map<'_>, keys: &[&str]) -> String {
    Some(text(map, keys)).filter(|id| id != "00000000-0000-0000-0000-000000000000").unwrap_or_default()
}
