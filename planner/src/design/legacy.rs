//! The legacy generation: a map of `services` (until 2024).
//!
//! As Meshery converts it, with three differences. Dependencies name service *keys*, so the key is kept beside the name
//! (Meshery loses it, and with it the order). `isAnnotation` of the service counts as well as the one in `traits.meshmap`.
//! Traits that are no drawing are kept for adapters.

use std::borrow::Cow;

use super::current::resolve;
use super::fields::{Reader, first, scalar};
use super::reference::References;
use super::{
    Component, Components, Design, Field, Ignored, Listed, MOST_ID, Places, Position, Renamed, derived_id, is_no_id,
};
use crate::document::{At, Entry, Map, Node, Text, Value};
use crate::problem::{Kind, Problem, Problems, Subject};

pub(super) fn read<'t>(
    mut map: Map<'t>,
    at: At,
    source: Option<Text<'t>>,
    references: References,
    problems: &mut Problems,
) -> Design<'t> {
    let text = |key| map.get(key).and_then(|node| scalar(node, source)).unwrap_or_default();
    let (id, name, version) = (text("patternID"), text("name"), text("version"));
    let id = if is_no_id(&id) { text("id") } else { id };
    let id = if is_no_id(&id) { Cow::Borrowed("") } else { id };
    let ignored = map.get("components").and_then(Node::as_list).filter(|components| !components.is_empty());
    let ignored = ignored.map(|components| Ignored { field: "components", count: components.len() });
    let services = match map.remove("services") {
        Some(Node { value: Value::Map(services), .. }) => services.0,
        Some(node) => {
            let message = format!("`services` is {}; it must be a map", node.value.type_name());
            problems.push(Problem::new(Kind::WrongType, "services", at.max(node.at), message));
            Vec::new()
        }
        None => Vec::new(),
    };
    let design = if id.is_empty() { name.clone() } else { id.clone() };
    let components = Components { listed: Listed::Legacy(services.into_iter()), design, references, source };
    Design { id, name, version, components, ignored }
}

pub(super) fn component<'t>(
    Entry { key, node }: Entry<'t>,
    design: &str,
    source: Option<Text<'t>>,
    references: &References,
    problems: &mut Problems,
) -> Option<Component<'t>> {
    let position = Position::Legacy(key.clone());
    let at = node.at;
    let Value::Map(mut map) = node.value else {
        let path = position.path();
        let message = format!("`{path}` is {}; a service must be a map", node.value.type_name());
        problems.push(
            Problem::new(Kind::WrongType, path, at, message)
                .of(Subject::new(&derived_id(design, &position.path().to_string()), &key)),
        );
        return None;
    };
    let drawing = map.get("traits").and_then(|traits| traits.get(&["meshmap"]));
    let drawn_id = drawing.and_then(|drawing| drawing.get(&["id"])).and_then(Node::as_str);
    let drawn_id = drawn_id.filter(|id| uuid::Uuid::try_parse(id).is_ok() && !is_no_id(id)).map(str::to_owned);
    let given_id = map.get("id").and_then(|node| scalar(node, source)).filter(|id| drawn_id.is_none() && !is_no_id(id));
    let id = drawn_id
        .map(Cow::Owned)
        .or_else(|| given_id.clone().filter(|id| id.len() <= MOST_ID))
        .unwrap_or_else(|| Cow::Owned(derived_id(design, &position.path().to_string())));
    let name = match map.get("name").and_then(|node| scalar(node, source)) {
        Some(name) if !name.is_empty() => name,
        _ => key.clone(),
    };
    let mut reader = Reader { references, id: id.clone(), name: name.clone(), problems };
    let path = |key: &'static str| {
        let position = &position;
        move || position.path().key(key)
    };

    reader.text(map.get("id"), source, path("id"));
    reader.id_length(given_id.as_deref().unwrap_or_default(), map.get("id"), path("id"));
    reader.text(map.get("name"), source, path("name"));
    let drawing = drawing.filter(|drawing| !drawing.is_null());
    if let Some(drawing) = drawing.filter(|drawing| drawing.as_map().is_none()) {
        reader.wrong_type(drawing, position.path().keys(&["traits", "meshmap"]), "a map");
    }
    let meta = drawing.and_then(|drawing| drawing.get(&["meshmodel-metadata", "isAnnotation"]));
    let drawn =
        reader.flag(meta, || position.path().keys(&["traits", "meshmap", "meshmodel-metadata", "isAnnotation"]));
    let annotation = reader.flag(map.get("isAnnotation"), path("isAnnotation")) || drawn;
    let declared = map.get("dependsOn").or_else(|| map.get("depends On"));
    let depends_on = reader.depends_on(declared, path("dependsOn"));
    let place = |key: &str| map.get(key).map(|node| node.at);
    let places = Places {
        id: place("id"),
        name: place("name"),
        kind: place("type"),
        api_version: place("apiVersion"),
        model: place("model"),
    };
    let text = |node: Option<&Node<'t>>| node.and_then(|node| scalar(node, source)).unwrap_or_default();
    let (kind, api_version, model, model_version) = if annotation {
        (without_suffix(text(map.get("type"))), text(map.get("apiVersion")), text(map.get("model")), Cow::Borrowed(""))
    } else {
        (
            without_suffix(reader.text(map.get("type"), source, path("type"))),
            reader.text(map.get("apiVersion"), source, path("apiVersion")),
            reader.text(first([map.get("model")]), source, path("model")),
            reader.text(map.get("version"), source, path("version")),
        )
    };
    let (configuration, rest, renamed) = if annotation {
        (Map::default(), Map::default(), Renamed::default())
    } else {
        let mut configuration = reader.map(map.remove("settings"), path("settings"));
        resolve(&mut reader, &mut configuration, || position.field(Field::Configuration));
        let renamed = reader.tidy(&mut configuration, &kind, || position.field(Field::Configuration));
        metadata(&mut reader, &mut map, &mut configuration, &position, source);
        let mut traits = match map.remove("traits") {
            Some(Node { value: Value::Map(traits), .. }) => traits,
            _ => Map::default(),
        };
        traits.remove("meshmap");
        (configuration, traits, renamed)
    };
    Some(Component {
        at,
        places,
        id,
        name,
        kind,
        api_version,
        model,
        model_version,
        annotation,
        depends_on,
        configuration,
        rest,
        renamed,
        position,
    })
}

/// `Deployment.K8s` is a Deployment. References were resolved before, so what is cut is a kind.
fn without_suffix(kind: Cow<'_, str>) -> Cow<'_, str> {
    match kind {
        Cow::Borrowed(kind) => Cow::Borrowed(kind.split('.').next().unwrap_or(kind)),
        Cow::Owned(mut kind) => {
            kind.truncate(kind.find('.').unwrap_or(kind.len()));
            Cow::Owned(kind)
        }
    }
}

/// Puts the service's namespace, labels and annotations where the current generation has them. They win over what the
/// settings say in that place; the rest of `settings.metadata` is kept.
fn metadata<'t>(
    reader: &mut Reader<'_>,
    map: &mut Map<'t>,
    configuration: &mut Map<'t>,
    position: &Position<'t>,
    source: Option<Text<'t>>,
) {
    let namespace_at = map.get("namespace").map_or(At::START, |node| node.at);
    let namespace = reader.text(map.get("namespace"), source, || position.field(Field::Namespace));
    let mut parts = Vec::new();
    if !namespace.is_empty() {
        parts.push(("namespace", Node::string(namespace_at, namespace)));
    }
    for (key, field) in [("labels", Field::Labels), ("annotations", Field::Annotations)] {
        let node = map.remove(key);
        let at = node.as_ref().map_or(At::START, |node| node.at);
        let mut labels = reader.map(node, || position.field(field));
        if !labels.is_empty() {
            resolve(reader, &mut labels, || position.field(field));
            // To Meshery these are texts in this generation, whatever they look like.
            for Entry { node, .. } in &mut labels.0 {
                if let (Value::Bool(_) | Value::Number(_), Some(text)) = (&node.value, scalar(node, source)) {
                    node.value = Value::String(text);
                }
            }
            parts.push((key, Node::new(at, Value::Map(labels))));
        }
    }
    if parts.is_empty() {
        return;
    }
    let metadata = configuration.map_mut("metadata");
    for (key, node) in parts {
        metadata.set(key, node);
    }
}
