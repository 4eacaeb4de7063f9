//! A document -> a [`Design`]: one reader a format generation, every problem collected, places kept.
//!
//! `$(#ref.…)` is resolved first, by position in the whole document (D5). What a design carries under
//! `model.registrant.metadata`, whole kubeconfigs among it, is dropped here and goes no further (D25).

mod current;
mod fields;
mod keys;
mod legacy;
mod reference;

use std::borrow::Cow;
use std::fmt;
use std::iter::Enumerate;
use std::vec;

use uuid::Uuid;

use crate::budget::Budget;
use crate::document::{At, Entry, Limits, Map, Node, Path, Text, Value};
use crate::problem::{Kind, Problem, Problems, Subject};

/// What a design says.
pub struct Design<'t> {
    /// The id, as it was given; empty when there is none.
    pub id: Cow<'t, str>,
    /// The name; may be empty.
    pub name: Cow<'t, str>,
    /// The version; may be empty.
    pub version: Cow<'t, str>,
    /// Everything the design lists, in document order.
    pub components: Components<'t>,
    /// Where components that are not looked at stand, when a document lists some in both shapes.
    pub ignored: Option<Ignored>,
}

/// Components of a shape that the document's generation does not use.
pub struct Ignored {
    /// The key that is not looked at.
    pub field: &'static str,
    /// How many there are.
    pub count: usize,
}

/// The components of a design, in document order. Each is read when it is asked for, so that what nobody needs of it is gone
/// again before the next.
pub struct Components<'t> {
    listed: Listed<'t>,
    /// What ids are derived from: the design's id, else its name.
    design: Cow<'t, str>,
    references: reference::References,
    /// The text it was read from, if it was.
    source: Option<Text<'t>>,
}

enum Listed<'t> {
    Current(Enumerate<vec::IntoIter<Node<'t>>>),
    Legacy(vec::IntoIter<Entry<'t>>),
}

/// One entry of a design.
pub struct Component<'t> {
    /// Where it stands, and in which generation.
    pub position: Position<'t>,
    /// Where it starts.
    pub at: At,
    /// Where its fields stand.
    pub places: Places,
    /// The id, given or derived from the position.
    pub id: Cow<'t, str>,
    /// `displayName`; may be empty.
    pub name: Cow<'t, str>,
    /// The kind; may be empty.
    pub kind: Cow<'t, str>,
    /// The Kubernetes apiVersion; may be empty.
    pub api_version: Cow<'t, str>,
    /// The model's name; may be empty.
    pub model: Cow<'t, str>,
    /// The version of the software the model stands for; may be empty.
    pub model_version: Cow<'t, str>,
    /// Whether it is flagged as a drawing.
    pub annotation: bool,
    /// What it declares to depend on, in order, repetitions included.
    pub depends_on: Vec<Dependency<'t>>,
    /// The user's settings.
    pub configuration: Map<'t>,
    /// The rest of the entry, for adapters. Legacy: the traits that are no drawing.
    pub rest: Map<'t>,
    /// Keys of the configuration that were put together.
    pub renamed: Renamed,
}

/// Keys that were broken up with spaces and have been put together: some of them, and how many there are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Renamed {
    /// Where the first few stand now, and how they were written.
    pub first: Vec<(Path, String)>,
    /// How many there are.
    pub count: usize,
}

impl Renamed {
    const FEW: usize = 3;

    fn add(&mut self, key: impl FnOnce() -> (Path, String)) {
        self.count += 1;
        if self.first.len() < Self::FEW {
            self.first.push(key());
        }
    }
}

/// Where the fields of a component stand; none for those that are not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Places {
    /// The id.
    pub id: Option<At>,
    /// The name.
    pub name: Option<At>,
    /// The kind.
    pub kind: Option<At>,
    /// The apiVersion.
    pub api_version: Option<At>,
    /// The model's name.
    pub model: Option<At>,
}

/// One entry of a `dependsOn`.
#[derive(Clone, PartialEq)]
pub struct Dependency<'t> {
    /// What it names.
    pub name: Cow<'t, str>,
    /// Its place in the list.
    pub index: usize,
    /// Where it stands.
    pub at: At,
}

/// Where a component stands in its document. The generation is part of it, because fields lie elsewhere in each.
#[derive(Clone, PartialEq)]
pub enum Position<'t> {
    /// Item of `components`.
    Current(usize),
    /// Key of `services`.
    Legacy(Cow<'t, str>),
}

/// A field of a component that problems and warnings are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// The component's id.
    Id,
    /// Its name.
    Name,
    /// Its kind.
    Kind,
    /// Its apiVersion.
    ApiVersion,
    /// Its model.
    Model,
    /// Whether it is a drawing.
    Annotation,
    /// Its dependencies.
    DependsOn,
    /// The user's settings.
    Configuration,
    /// The object's namespace.
    Namespace,
    /// The object's labels.
    Labels,
    /// The object's annotations.
    Annotations,
}

impl<'t> Components<'t> {
    /// The next component; what is wrong with it is reported. What is no component at all is reported and passed over.
    pub fn next(&mut self, problems: &mut Problems) -> Option<Component<'t>> {
        let Self { listed, design, references, source } = self;
        match listed {
            Listed::Current(nodes) => {
                nodes.find_map(|(index, node)| current::component(node, index, design, *source, references, problems))
            }
            Listed::Legacy(services) => {
                services.find_map(|service| legacy::component(service, design, *source, references, problems))
            }
        }
    }

    /// How many are left at most.
    pub fn left(&self) -> usize {
        match &self.listed {
            Listed::Current(nodes) => nodes.len(),
            Listed::Legacy(services) => services.len(),
        }
    }
}

impl Position<'_> {
    /// The path of the component.
    pub fn path(&self) -> Path {
        match self {
            Self::Current(index) => Path::root().key("components").index(*index),
            Self::Legacy(key) => Path::root().key("services").key(key),
        }
    }

    /// The path of one of its fields.
    pub fn field(&self, field: Field) -> Path {
        let keys: &[&str] = match (self, field) {
            (_, Field::Id) => &["id"],
            (Self::Current(_), Field::Name) => &["displayName"],
            (Self::Current(_), Field::Kind) => &["component", "kind"],
            (Self::Current(_), Field::ApiVersion) => &["component", "version"],
            (_, Field::Model) => &["model"],
            (Self::Current(_), Field::Annotation) => &["metadata", "isAnnotation"],
            (Self::Current(_), Field::DependsOn) => &["metadata", "dependsOn"],
            (Self::Current(_), Field::Configuration) => &["configuration"],
            (Self::Current(_), Field::Namespace) => &["configuration", "metadata", "namespace"],
            (Self::Current(_), Field::Labels) => &["configuration", "metadata", "labels"],
            (Self::Current(_), Field::Annotations) => &["configuration", "metadata", "annotations"],
            (Self::Legacy(_), Field::Name) => &["name"],
            (Self::Legacy(_), Field::Kind) => &["type"],
            (Self::Legacy(_), Field::ApiVersion) => &["apiVersion"],
            (Self::Legacy(_), Field::Annotation) => &["isAnnotation"],
            (Self::Legacy(_), Field::DependsOn) => &["dependsOn"],
            (Self::Legacy(_), Field::Configuration) => &["settings"],
            (Self::Legacy(_), Field::Namespace) => &["namespace"],
            (Self::Legacy(_), Field::Labels) => &["labels"],
            (Self::Legacy(_), Field::Annotations) => &["annotations"],
        };
        self.path().keys(keys)
    }

    /// The name by which other components of a legacy file refer to this one before they try its name.
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Current(_) => None,
            Self::Legacy(key) => Some(key),
        }
    }
}

impl Component<'_> {
    /// The component as problems and warnings name it.
    pub fn subject(&self) -> Subject {
        Subject::new(&self.id, &self.name)
    }

    /// Where a field stands, or where the component starts when the field is not there.
    pub fn at(&self, field: Field) -> At {
        let Places { id, name, kind, api_version, model } = self.places;
        let place = match field {
            Field::Id => id,
            Field::Name => name,
            Field::Kind => kind,
            Field::ApiVersion => api_version,
            Field::Model => model,
            _ => None,
        };
        place.unwrap_or(self.at)
    }

    /// The path of a field.
    pub fn path(&self, field: Field) -> Path {
        let is_map = |key: &str| self.rest.get(key).is_some_and(|node| node.as_map().is_some());
        if field == Field::Model && !is_map("model") && is_map("modelReference") {
            return self.position.path().key("modelReference");
        }
        self.position.field(field)
    }

    /// A problem with one of its fields.
    pub fn problem(&self, kind: Kind, field: Field, message: impl Into<String>) -> Problem {
        Problem::new(kind, self.path(field), self.at(field), message).of(self.subject())
    }
}

/// Configurations hold secrets; what is printed by mistake is the name.
impl fmt::Debug for Component<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Component").field("id", &self.id).field("name", &self.name).finish_non_exhaustive()
    }
}

/// Reads a design of any generation, all but its components. Answers none when the document is no design at all; the
/// problems say why.
///
/// The generation follows the shape first: a list of `components` is current, a map of `services` is legacy.
/// `schemaVersion` only decides when both or neither are there. (Meshery goes by `schemaVersion` alone and reads a current
/// design without one as an empty legacy design.)
///
/// `text` is what the tree was read from, if it was: whether it can hold a reference is seen faster there.
pub fn read<'t>(
    root: Node<'t>,
    text: Option<&Text<'t>>,
    limits: &Limits,
    budget: &Budget,
    problems: &mut Problems,
) -> Option<Design<'t>> {
    let Value::Map(map) = &root.value else {
        problems.push(not_a_design(&root));
        return None;
    };
    let stated = map.get("schemaVersion").and_then(Node::as_str).is_some_and(|v| v.starts_with("designs.meshery.io/"));
    let components = map.get("components");
    let services = map.get("services").filter(|services| !services.is_null());
    let listed = components.is_some_and(|components| components.as_list().is_some());
    let current = match (components, services) {
        (Some(_), None) => true,
        (Some(_), Some(_)) => stated || listed,
        (None, Some(_)) => false,
        (None, None) if stated => true,
        (None, None) => {
            problems.push(not_a_design(&root));
            return None;
        }
    };
    let references = match text.is_some_and(reference::is_without) {
        true => reference::References::default(),
        false => reference::References::collect(&root, !current, limits, budget),
    };
    let Value::Map(map) = root.value else { return None };
    let source = text.copied();
    Some(if current {
        current::read(map, source, references, problems)
    } else {
        legacy::read(map, root.at, source, references, problems)
    })
}

fn not_a_design(root: &Node<'_>) -> Problem {
    let looks = match &root.value {
        Value::Null => "the document is empty",
        Value::List(_) => "the document is a list",
        Value::Map(map) if map.get("kind").is_some() && map.get("apiVersion").is_some() => {
            "the document is a Kubernetes manifest, which must be imported into a design first"
        }
        Value::Map(_) => "the document has neither `components` nor `services`",
        _ => "the document is a single value",
    };
    let message =
        format!("{looks}; a design is a map with a list of `components` (or, before 2024, a map of `services`)");
    Problem::new(Kind::NotADesign, "", root.at, message)
}

/// The space in which ids are derived, so that they cannot meet anybody else's.
const IDS: Uuid = Uuid::from_u128(0x6f0b_6f3e_7c0d_5a55_9f5e_7a3b_1d0c_42e7);

/// An id that is the same whenever the same design is read: derived from the design and a position in it.
pub fn derived_id(design: &str, position: &str) -> String {
    Uuid::new_v5(&IDS, format!("{design}\n{position}").as_bytes()).to_string()
}

/// The longest id of a component in bytes. Ids are told in every step that depends on the component; this is as long as the
/// name of any object can be.
const MOST_ID: usize = 253;

/// Whether an id says nothing: Meshery writes the nil uuid for "none".
fn is_no_id(id: &str) -> bool {
    id.is_empty() || id == "00000000-0000-0000-0000-000000000000"
}
