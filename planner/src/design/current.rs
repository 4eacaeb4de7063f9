//! The current generation: `components`, `designs.meshery.io/v1beta1` and every later one. Their shapes are the same.

use std::borrow::Cow;

use super::fields::{Reader, first};
use super::reference::References;
use super::{
    Component, Components, Design, Field, Ignored, Listed, MOST_ID, Places, Position, Renamed, derived_id, is_no_id,
};
use crate::document::{At, Map, Node, Path, Text, Value};
use crate::problem::{Kind, Problem, Problems};

pub(super) fn read<'t>(
    mut map: Map<'t>,
    source: Option<Text<'t>>,
    references: References,
    problems: &mut Problems,
) -> Design<'t> {
    let components = map.remove("components");
    let mut top = |key: &'static str| {
        let mut text = Cow::Borrowed("");
        if let Some(node) = map.get(key) {
            match super::fields::scalar(node, source) {
                Some(found) => text = found,
                None => {
                    let message = format!("`{key}` is {}; it must be text", node.value.type_name());
                    problems.push(Problem::new(Kind::WrongType, key, node.at, message));
                }
            }
        }
        text
    };
    let (id, name, version) = (top("id"), top("name"), top("version"));
    let ignored = map.get("services").and_then(Node::as_map).filter(|services| !services.is_empty());
    let ignored = ignored.map(|services| Ignored { field: "services", count: services.iter().count() });
    let id = if is_no_id(&id) { Cow::Borrowed("") } else { id };
    let list = match components {
        None => Vec::new(),
        Some(Node { value: Value::Null, .. }) => Vec::new(),
        Some(Node { value: Value::List(list), .. }) => list,
        Some(node) => {
            let message = format!("`components` is {}; it must be a list", node.value.type_name());
            problems.push(Problem::new(Kind::WrongType, "components", node.at, message));
            Vec::new()
        }
    };
    let design = if id.is_empty() { name.clone() } else { id.clone() };
    let components = Components { listed: Listed::Current(list.into_iter().enumerate()), design, references, source };
    Design { id, name, version, components, ignored }
}

pub(super) fn component<'t>(
    node: Node<'t>,
    index: usize,
    design: &str,
    source: Option<Text<'t>>,
    references: &References,
    problems: &mut Problems,
) -> Option<Component<'t>> {
    let position = Position::Current(index);
    let at = node.at;
    let Value::Map(mut map) = node.value else {
        let path = position.path();
        let message = format!("`{path}` is {}; a component must be a map", node.value.type_name());
        problems.push(Problem::new(Kind::WrongType, path, at, message));
        return None;
    };
    let plain = |key| map.get(key).and_then(|node| super::fields::scalar(node, source)).unwrap_or_default();
    let given = plain("id");
    let id = match given.clone() {
        id if is_no_id(&id) || id.len() > MOST_ID => Cow::Owned(derived_id(design, &position.path().to_string())),
        id => id,
    };
    let mut reader = Reader { references, id: id.clone(), name: plain("displayName"), problems };

    // Only the types are of interest; the values were needed above, to name the component.
    reader.text(map.get("id"), source, || position.field(Field::Id));
    reader.id_length(&given, map.get("id"), || position.field(Field::Id));
    let name = reader.text(map.get("displayName"), source, || position.field(Field::Name));
    let metadata = nested(&mut reader, &map, "metadata", &position);
    let annotation = reader.flag(metadata.and_then(|m| m.get("isAnnotation")), || position.field(Field::Annotation));
    let depends_on = reader.depends_on(metadata.and_then(|m| m.get("dependsOn")), || position.field(Field::DependsOn));
    // A drawing is never sent anywhere: whatever else is wrong with it does no harm.
    let mut nested = |key: &str| match annotation {
        true => map.get(key).and_then(Node::as_map),
        false => self::nested(&mut reader, &map, key, &position),
    };
    let definition = nested("component");
    let kind = definition.and_then(|d| d.get("kind"));
    let version = definition.and_then(|d| d.get("version"));
    let (model, reference) = (nested("model"), nested("modelReference"));
    let model_name = first([model.and_then(|m| m.get("name")), reference.and_then(|m| m.get("name"))]);
    let in_model = |m: Option<&'_ Map<'t>>| -> Option<Node<'t>> { m?.get("model")?.get(&["version"]).cloned() };
    let model_version = [in_model(model), in_model(reference)]
        .into_iter()
        .flatten()
        .find(|node| !node.is_null() && node.as_str() != Some(""));
    let place = |node: Option<&Node<'t>>| node.map(|node| node.at);
    let places = Places {
        id: place(map.get("id")),
        name: place(map.get("displayName")),
        kind: place(kind),
        api_version: place(version),
        model: place(model_name),
    };
    let (kind, api_version, model, model_version) = if annotation {
        let text =
            |node: Option<&Node<'t>>| node.and_then(|node| super::fields::scalar(node, source)).unwrap_or_default();
        (text(kind), text(version), text(model_name), Cow::Borrowed(""))
    } else {
        (
            reader.text(kind, source, || position.field(Field::Kind)),
            reader.text(version, source, || position.field(Field::ApiVersion)),
            reader.text(model_name, source, || position.field(Field::Model).key("name")),
            reader.text(model_version.as_ref(), source, || position.field(Field::Model).keys(&["model", "version"])),
        )
    };
    let configuration = map.remove("configuration");
    let (configuration, rest, renamed) = if annotation {
        (Map::default(), Map::default(), Renamed::default())
    } else {
        let mut configuration = reader.map(configuration, || position.field(Field::Configuration));
        resolve(&mut reader, &mut configuration, || position.field(Field::Configuration));
        let renamed = reader.tidy(&mut configuration, &kind, || position.field(Field::Configuration));
        for model in ["model", "modelReference"] {
            forget_registrant(&mut map, model);
        }
        (configuration, map, renamed)
    };
    Some(Component {
        position,
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
    })
}

/// The map under `key`; `null` and absent are none, anything else is told.
fn nested<'n, 't>(
    reader: &mut Reader<'_>,
    map: &'n Map<'t>,
    key: &str,
    position: &Position<'t>,
) -> Option<&'n Map<'t>> {
    let node = map.get(key).filter(|node| !node.is_null())?;
    if node.as_map().is_none() {
        reader.wrong_type(node, position.path().key(key), "a map");
    }
    node.as_map()
}

/// Drops what a registrant carries: whole kubeconfigs, private keys included, have been seen there (D25).
fn forget_registrant(map: &mut Map<'_>, model: &str) {
    let model = map.get_mut(model).map(|node| &mut node.value);
    if let Some(Value::Map(model)) = model {
        for key in ["registrant", "connection"] {
            if let Some(Node { value: Value::Map(registrant), .. }) = model.get_mut(key) {
                registrant.remove("metadata");
            }
        }
    }
}

/// Resolves the references in a configuration, at any depth.
pub(super) fn resolve<'t>(reader: &mut Reader<'_>, configuration: &mut Map<'t>, path: impl FnOnce() -> Path) {
    if reader.references.is_empty() {
        return;
    }
    let path = path();
    for entry in &mut configuration.0 {
        resolve_node(reader, &mut entry.node, &|| path.clone().key(&entry.key));
    }
}

fn resolve_node<'t>(reader: &mut Reader<'_>, node: &mut Node<'t>, path: &dyn Fn() -> Path) {
    let at: At = node.at;
    match &mut node.value {
        Value::String(text) if text.contains("$(#") => {
            *text = reader.resolved(std::mem::take(text), at, path);
        }
        Value::List(list) => {
            for (index, item) in list.iter_mut().enumerate() {
                resolve_node(reader, item, &|| path().index(index));
            }
        }
        Value::Map(map) => {
            for entry in &mut map.0 {
                let key = &entry.key;
                resolve_node(reader, &mut entry.node, &|| path().key(key));
            }
        }
        _ => {}
    }
}
