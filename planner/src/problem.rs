//! What is wrong with a design: every problem, each with the component, the field and, for text, the place.
//!
//! Messages quote names, kinds and `dependsOn` entries, because a person needs them to find the mistake. They never quote
//! a value out of `configuration` (D25).

mod found;

use std::fmt;

pub use found::Problems;

use crate::text::{At, Place, Text};

/// The kind of a problem, for programs and tables. The message is for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The text is neither JSON nor YAML.
    Syntax,
    /// A map has one key twice.
    DuplicateKey,
    /// The document is larger, deeper or denser than the planner reads.
    LimitExceeded,
    /// The document is readable and no design.
    NotADesign,
    /// A field holds a value of a type it cannot have.
    WrongType,
    /// `$(#ref.…)` leads nowhere, or `$(#use …)` is used.
    UnresolvedReference,
    /// A component has no name (D10).
    NameMissing,
    /// A component has no kind.
    KindMissing,
    /// A component on the direct path has no apiVersion.
    ApiVersionMissing,
    /// An apiVersion is not `version` or `group/version`.
    ApiVersionInvalid,
    /// A component is a `List` of objects.
    ListKind,
    /// Two components share an id (D5).
    DuplicateId,
    /// Two components mean one Kubernetes object (D15).
    DuplicateObject,
    /// `dependsOn` is not a list of names (S10).
    InvalidDependency,
    /// `dependsOn` names a component that the design does not contain (S10).
    UnknownDependency,
    /// `dependsOn` names several semantic components (S10).
    AmbiguousDependency,
    /// Declared dependencies form a cycle (S10).
    DependencyCycle,
    /// No registrant stands behind the component's model (S6).
    NoRegistrant,
}

impl Kind {
    /// Every kind, in the order of the enum.
    pub const ALL: [Self; 18] = [
        Self::Syntax,
        Self::DuplicateKey,
        Self::LimitExceeded,
        Self::NotADesign,
        Self::WrongType,
        Self::UnresolvedReference,
        Self::NameMissing,
        Self::KindMissing,
        Self::ApiVersionMissing,
        Self::ApiVersionInvalid,
        Self::ListKind,
        Self::DuplicateId,
        Self::DuplicateObject,
        Self::InvalidDependency,
        Self::UnknownDependency,
        Self::AmbiguousDependency,
        Self::DependencyCycle,
        Self::NoRegistrant,
    ];

    /// The name of the kind as it appears in answers: UPPER_SNAKE.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Syntax => "SYNTAX",
            Self::DuplicateKey => "DUPLICATE_KEY",
            Self::LimitExceeded => "LIMIT_EXCEEDED",
            Self::NotADesign => "NOT_A_DESIGN",
            Self::WrongType => "WRONG_TYPE",
            Self::UnresolvedReference => "UNRESOLVED_REFERENCE",
            Self::NameMissing => "NAME_MISSING",
            Self::KindMissing => "KIND_MISSING",
            Self::ApiVersionMissing => "API_VERSION_MISSING",
            Self::ApiVersionInvalid => "API_VERSION_INVALID",
            Self::ListKind => "LIST_KIND",
            Self::DuplicateId => "DUPLICATE_ID",
            Self::DuplicateObject => "DUPLICATE_OBJECT",
            Self::InvalidDependency => "INVALID_DEPENDENCY",
            Self::UnknownDependency => "UNKNOWN_DEPENDENCY",
            Self::AmbiguousDependency => "AMBIGUOUS_DEPENDENCY",
            Self::DependencyCycle => "DEPENDENCY_CYCLE",
            Self::NoRegistrant => "NO_REGISTRANT",
        }
    }
}

impl Kind {
    /// What helps against problems of this kind.
    pub fn hint(self) -> &'static str {
        match self {
            Self::Syntax => "Correct the text at this place; text that has characters of YAML in it needs quotes.",
            Self::DuplicateKey => "Keep one of the two entries.",
            Self::LimitExceeded => "Split the design, or write less of it by aliases and references.",
            Self::NotADesign => {
                "Send a design: a document with `components`, or with `services` as older versions have them."
            }
            Self::WrongType => "Give the field a value of the type that it has.",
            Self::UnresolvedReference => "Name a field of this document that is there, by its path.",
            Self::NameMissing => "Give the component a `displayName`.",
            Self::KindMissing => "Give the component a kind.",
            Self::ApiVersionMissing => "Give the component an apiVersion, such as `v1` or `apps/v1`.",
            Self::ApiVersionInvalid => "Write it as `version` or `group/version`, such as `v1` or `apps/v1`.",
            Self::ListKind => "Make each object of the list a component of its own.",
            Self::DuplicateId => "Give one of the two components another id.",
            Self::DuplicateObject => "Give one of the two another name or namespace, or leave it out.",
            Self::InvalidDependency => "Write `dependsOn` as a list of names of components.",
            Self::UnknownDependency => {
                "Name a component of this design as its `displayName` spells it, or leave the entry out."
            }
            Self::AmbiguousDependency => "Give the components that share the name different ones.",
            Self::DependencyCycle => "Leave out one of the dependencies that form the cycle.",
            Self::NoRegistrant => "Register the model, correct its name, or give the registry a default registrant.",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The component a problem or a warning is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// The component's id, given or derived.
    pub id: String,
    /// The component's name; may be empty.
    pub name: String,
}

impl Subject {
    /// A component, its id and name shortened when they are longer than any that Kubernetes takes.
    pub fn new(id: &str, name: &str) -> Self {
        Self { id: cut(id, MOST_NAME).into(), name: cut(name, MOST_NAME).into() }
    }
}

/// The longest name of an object.
const MOST_NAME: usize = 253;

/// The first `most` bytes of a text, or a little less so that no character is cut.
fn cut(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// A name as it is, shortened when it is longer than anyone reads.
pub fn shortened(name: &str) -> String {
    let short = cut(name, MOST_NAME);
    if short.len() == name.len() { name.into() } else { format!("{short}…") }
}

/// Where the first of two things stands that cannot both be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Earlier {
    /// Where in the document.
    pub at: At,
    /// Line and column, for text.
    pub place: Option<Place>,
}

/// One thing that is wrong with a design.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What kind of mistake it is.
    pub kind: Kind,
    /// The component it is about; none when it is about the document.
    pub component: Option<Subject>,
    /// Path in the document, such as `components[3].metadata.dependsOn[0]`; empty for the whole document.
    pub field: String,
    /// Where in the document; orders problems.
    pub at: At,
    /// Line and column, for text.
    pub place: Option<Place>,
    /// Where that stands which this repeats.
    pub earlier: Option<Earlier>,
    /// What is wrong and what to do.
    pub message: String,
}

impl Problem {
    /// A problem of the document as a whole, or of a part that belongs to no component.
    pub fn new(kind: Kind, field: impl Into<String>, at: At, message: impl Into<String>) -> Self {
        Self { kind, component: None, field: field.into(), at, place: None, earlier: None, message: message.into() }
    }

    /// Says that the problem is a repetition of what stands at `at`.
    #[must_use]
    pub fn repeats(mut self, at: At) -> Self {
        self.earlier = Some(Earlier { at, place: None });
        self
    }

    /// Says which component the problem is about.
    #[must_use]
    pub fn of(mut self, component: Subject) -> Self {
        self.component = Some(component);
        self
    }
}

/// The sentence for a person: component, what is wrong, what to do, where.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Subject { id, name }) = &self.component {
            if name.is_empty() {
                write!(f, "component without a name ({id}): ")?;
            } else {
                write!(f, "component {} ({id}): ", quoted(name))?;
            }
        }
        f.write_str(&self.message)?;
        match (self.place, self.earlier.and_then(|earlier| earlier.place)) {
            (Some(place), Some(first)) => write!(f, " (first in {first}; again in {place})"),
            (Some(place), None) => write!(f, " ({place})"),
            (None, _) => Ok(()),
        }
    }
}

/// Puts problems into document order and, when the document is text, finds line and column of each.
pub fn settle(problems: &mut [Problem], text: Option<&Text<'_>>) {
    problems.sort_by_key(|problem| problem.at);
    let Some(text) = text else { return };
    let mut asked: Vec<(At, &mut Option<Place>)> = Vec::with_capacity(problems.len());
    for Problem { at, place, earlier, .. } in problems {
        asked.push((*at, place));
        asked.extend(earlier.as_mut().map(|Earlier { at, place }| (*at, place)));
    }
    asked.sort_by_key(|(at, _)| *at);
    let mut places = text.places();
    for (at, place) in asked {
        *place = Some(places.find(at));
    }
}

/// A name in quotes, shortened when it is longer than anyone reads, with what cannot be seen made visible.
pub fn quoted(name: &str) -> String {
    const LONGEST: usize = 80;
    let mut text = String::with_capacity(name.len().min(LONGEST) + 2);
    text.push('"');
    for (count, c) in name.chars().enumerate() {
        if count == LONGEST {
            text.push('…');
            break;
        }
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            c if c.is_control() => text.extend(c.escape_default()),
            c => text.push(c),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_names_component_and_place() {
        let problem = Problem {
            place: Some(Place { line: 12, column: 9 }),
            ..Problem::new(
                Kind::UnknownDependency,
                "components[0].metadata.dependsOn[0]",
                At::START,
                "depends on \"DB\"",
            )
        }
        .of(Subject { id: "u2".into(), name: "api".into() });
        assert_eq!(problem.to_string(), "component \"api\" (u2): depends on \"DB\" (line 12, column 9)");
    }

    #[test]
    fn quoting_shows_blanks_and_shortens() {
        assert_eq!(quoted(" db\t"), "\" db\\t\"");
        assert_eq!(quoted(&"x".repeat(500)).chars().count(), 83);
    }
}
