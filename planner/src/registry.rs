//! Model -> registrant: who stands behind what a component is made of (S1, S4).
//!
//! A registry belongs to the installation, never to the design. It comes from a file or folder ([`mod@file`]), in the JSON form
//! of `switchyard.v1.Registry` ([`form`]) or as Meshery's own documents ([`meshery`]), and from the request, whose entries
//! win. What registrants carry beside host and port (kubeconfigs have been seen) is never kept (D25).

pub mod address;
pub mod file;
pub mod form;
pub mod meshery;
pub mod watch;

use std::collections::{BTreeMap, HashMap};

pub use address::{Address, Port};
pub use form::Form;

use crate::graph;
use crate::problem::quoted;

/// Who registered a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registrant {
    /// The name.
    pub name: String,
    /// The kind, such as `kubernetes`, `artifacthub`, `github`, `meshery`. Plays no part in routing (S2).
    pub kind: String,
    /// Where its adapter is.
    pub address: Address,
    /// How the adapter is asked.
    pub protocol: Protocol,
}

/// How an adapter is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// `Provision`, then `ProcessOAM` when that is not there.
    #[default]
    Auto,
    /// `Provision`.
    Provision,
    /// `ProcessOAM`.
    ProcessOam,
}

/// What Include Dependencies installs for the components of a model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chart {
    /// `https://…` or `oci://…`; empty when there is none.
    pub url: String,
    /// The chart's version; may be empty.
    pub version: String,
    /// The release's namespace; may be empty.
    pub namespace: String,
}

/// A model and who registered it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// The version of the software; empty means any.
    pub version: String,
    /// Index of its registrant; a model of drawings may have none.
    registrant: Option<usize>,
    /// What it needs installed.
    pub chart: Option<Chart>,
    /// Whether it holds drawings only (D3).
    pub is_annotation: bool,
}

/// Registrants and models, checked: every name leads somewhere.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Registry {
    registrants: Vec<Registrant>,
    models: HashMap<String, Versions>,
    default: Option<usize>,
}

/// The entries of one model. Each is found in one look-up, however many versions are listed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Versions {
    entries: Vec<Model>,
    /// Where each version is, once there are more than a few.
    places: HashMap<String, usize>,
    /// Whether the entries have different registrants.
    divided: bool,
}

/// Why entries make no registry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct Error {
    /// The path of the entry.
    pub field: String,
    /// What is wrong and what to do.
    pub message: String,
}

/// What a registry knows of a component's model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Found<'r> {
    /// The model's entry; none when the model is not listed.
    pub model: Option<&'r Model>,
    /// Who stands behind it.
    pub registrant: Option<&'r Registrant>,
}

impl Registry {
    /// What the planner knows without a registry: the model `kubernetes`, direct.
    pub fn builtin() -> Self {
        let registrant =
            Registrant { name: "kubernetes".into(), kind: "kubernetes".into(), ..Registrant::named("kubernetes") };
        let model = Model { version: String::new(), registrant: Some(0), chart: None, is_annotation: false };
        Self {
            registrants: vec![registrant],
            models: HashMap::from([("kubernetes".into(), Versions::from_iter([model]))]),
            default: None,
        }
    }

    /// A registry of these entries. Registrants that they name and do not hold are looked for in `known`.
    pub fn from_form(form: Form, known: Option<&Self>) -> Result<Self, Error> {
        let Form { registrants, models, default_registrant } = form;
        let mut registry = Self::default();
        let mut by_name: BTreeMap<String, usize> = BTreeMap::new();
        for (index, registrant) in registrants.into_iter().enumerate() {
            let field = |name: &str| format!("registrants[{index}].{name}");
            if registrant.name.is_empty() {
                return Err(Error { field: field("name"), message: "a registrant needs a name".into() });
            }
            if by_name.insert(registrant.name.clone(), registry.registrants.len()).is_some() {
                let message = format!("there are two registrants {}; names must be unique", quoted(&registrant.name));
                return Err(Error { field: field("name"), message });
            }
            registry.registrants.push(registrant);
        }
        let mut find = |registry: &mut Self, name: &str, field: &dyn Fn() -> String| {
            if let Some(&index) = by_name.get(name) {
                return Ok(index);
            }
            let known = known.and_then(|known| known.registrants.iter().find(|registrant| registrant.name == name));
            let Some(known) = known else {
                let message = format!("there is no registrant {}; add it to `registrants`", quoted(name));
                return Err(Error { field: field(), message });
            };
            registry.registrants.push(known.clone());
            by_name.insert(name.to_owned(), registry.registrants.len() - 1);
            Ok(registry.registrants.len() - 1)
        };
        for (index, model) in models.into_iter().enumerate() {
            let form::Model { name, version, registrant, chart, is_annotation } = model;
            let field = |name: &str| format!("models[{index}].{name}");
            if name.is_empty() {
                return Err(Error { field: field("name"), message: "a model needs a name".into() });
            }
            let registrant = match registrant.as_str() {
                "" if is_annotation => None,
                "" => {
                    let message = format!("model {} names no registrant", quoted(&name));
                    return Err(Error { field: field("registrant"), message });
                }
                registrant => Some(find(&mut registry, registrant, &|| field("registrant"))?),
            };
            let url = chart.as_ref().map_or("https://", |chart| chart.url.as_str());
            // Without one the model carries nothing, which a plan that would need it says.
            if !url.is_empty() && !["https://", "oci://"].iter().any(|scheme| url.starts_with(scheme)) {
                let message = format!("the chart of model {} must lie at https:// or oci://", quoted(&name));
                return Err(Error { field: field("chart.url"), message });
            }
            let entries = registry.models.entry(name.clone()).or_default();
            if entries.find(&version).is_some() {
                let version = if version.is_empty() { "without a version".into() } else { quoted(&version) };
                let message = format!("model {} {version} is listed twice; keep one of the two", quoted(&name));
                return Err(Error { field: field("name"), message });
            }
            entries.push(Model { version, registrant, chart, is_annotation });
        }
        if !default_registrant.is_empty() {
            let index = find(&mut registry, &default_registrant, &|| "default_registrant".into())?;
            registry.default = Some(index);
        }
        Ok(registry)
    }

    /// How many registrants and models there are, for a log line.
    pub fn size(&self) -> (usize, usize) {
        (self.registrants.len(), self.models.values().map(|versions| versions.entries.len()).sum())
    }

    /// The entry of a model: the exact version, else the one without a version, else any when all have one registrant
    /// (D2).
    fn model(&self, name: &str, version: &str) -> Option<&Model> {
        let versions = self.models.get(name)?;
        let exact = versions.find(version).or_else(|| versions.find(""));
        exact.map(|index| &versions.entries[index]).or_else(|| versions.entries.first().filter(|_| !versions.divided))
    }

    fn registrant(&self, index: Option<usize>) -> Option<&Registrant> {
        self.registrants.get(index?)
    }
}

impl Chart {
    /// How many bytes its texts have: every step that needs it names it.
    pub fn bytes(&self) -> usize {
        self.url.len() + self.version.len() + self.namespace.len()
    }
}

impl Versions {
    const FEW: usize = 8;

    /// Where the entry of a version is.
    fn find(&self, version: &str) -> Option<usize> {
        match self.entries.len() {
            0..=Self::FEW => self.entries.iter().position(|entry| entry.version == version),
            _ => self.places.get(version).copied(),
        }
    }

    /// Adds an entry of a version that is not there.
    fn push(&mut self, model: Model) {
        self.divided |= self.entries.first().is_some_and(|first| first.registrant != model.registrant);
        self.entries.push(model);
        let new = match self.entries.len() - 1 {
            0..Self::FEW => return,
            Self::FEW => 0,
            last => last,
        };
        self.places.extend(self.entries[new..].iter().map(|entry| entry.version.clone()).zip(new..));
    }

    /// Puts another entry of the same version in the place of one.
    fn replace(&mut self, index: usize, model: Model) {
        self.entries[index] = model;
        self.divided = self.entries.iter().any(|entry| entry.registrant != self.entries[0].registrant);
    }
}

impl FromIterator<Model> for Versions {
    fn from_iter<T: IntoIterator<Item = Model>>(models: T) -> Self {
        let mut versions = Self::default();
        models.into_iter().for_each(|model| versions.push(model));
        versions
    }
}

impl Registrant {
    /// How many bytes its texts have: every step names it.
    pub fn bytes(&self) -> usize {
        self.name.len() + self.kind.len() + self.address.bytes()
    }

    /// A registrant that is not reached through an adapter.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into(), kind: String::new(), address: Address::None, protocol: Protocol::Auto }
    }
}

/// The planner's registry under that of the request.
#[derive(Debug, Clone, Copy)]
pub struct Layers<'r> {
    /// The request's entries, which win.
    pub request: Option<&'r Registry>,
    /// The planner's own.
    pub own: &'r Registry,
}

impl<'r> Layers<'r> {
    fn each(self) -> impl Iterator<Item = &'r Registry> {
        self.request.into_iter().chain([self.own])
    }

    /// What is known of a model. `default_registrant` stands behind models that nobody lists (D3).
    pub fn find(self, name: &str, version: &str) -> Found<'r> {
        for registry in self.each() {
            if let Some(model) = registry.model(name, version) {
                return Found { model: Some(model), registrant: registry.registrant(model.registrant) };
            }
        }
        let listed = self.each().any(|registry| registry.models.contains_key(name));
        let default = || self.each().find_map(|registry| registry.registrant(registry.default));
        Found { model: None, registrant: if listed { None } else { default() } }
    }

    /// The versions of a model that are listed, when none of them could be chosen.
    pub fn versions(self, name: &str) -> impl Iterator<Item = &'r str> {
        let versions = self.request.into_iter().chain([self.own]).filter_map(move |registry| registry.models.get(name));
        versions.flat_map(|versions| &versions.entries).map(|entry| entry.version.as_str())
    }

    /// Starts a search for models that were meant.
    pub fn near_misses(self) -> NearMisses<'r> {
        NearMisses { registries: self, search: None, found: HashMap::new() }
    }
}

/// Finds the model that was most likely meant, once for each wrong name.
pub struct NearMisses<'r> {
    /// Where models are looked for.
    pub registries: Layers<'r>,
    search: Option<graph::Slips<'r>>,
    found: HashMap<String, Option<&'r str>>,
}

impl<'r> NearMisses<'r> {
    /// A model of nearly this name.
    pub fn find(&mut self, wrong: &str) -> Option<&'r str> {
        if let Some(found) = self.found.get(wrong) {
            return *found;
        }
        let search = self.search.get_or_insert_with(|| {
            let mut names: Vec<&str> =
                self.registries.each().flat_map(|registry| registry.models.keys()).map(String::as_str).collect();
            names.sort_unstable();
            names.dedup();
            graph::Slips::new(names)
        });
        let found = search.find(wrong);
        self.found.insert(wrong.to_owned(), found);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registry(models: &[(&str, &str, &str)], default: &str) -> Registry {
        let names: std::collections::BTreeSet<_> = models.iter().map(|m| m.2).chain([default]).collect();
        let form = Form {
            registrants: names.into_iter().filter(|name| !name.is_empty()).map(Registrant::named).collect(),
            models: models
                .iter()
                .map(|(name, version, registrant)| form::Model {
                    name: (*name).into(),
                    version: (*version).into(),
                    registrant: (*registrant).into(),
                    ..Default::default()
                })
                .collect(),
            default_registrant: default.into(),
        };
        Registry::from_form(form, None).expect("a registry")
    }

    fn who(own: &Registry, request: Option<&Registry>, name: &str, version: &str) -> Option<String> {
        Layers { request, own }.find(name, version).registrant.map(|registrant| registrant.name.clone())
    }

    #[test]
    fn the_exact_version_wins_then_none_then_the_only_registrant() {
        let own = registry(
            &[("a", "1", "x"), ("a", "", "y"), ("b", "1", "x"), ("b", "2", "x"), ("c", "1", "x"), ("c", "2", "y")],
            "",
        );
        assert_eq!(who(&own, None, "a", "1").as_deref(), Some("x"));
        assert_eq!(who(&own, None, "a", "9").as_deref(), Some("y"));
        assert_eq!(who(&own, None, "b", "9").as_deref(), Some("x"));
        assert_eq!(who(&own, None, "c", "9"), None);
        assert_eq!(who(&own, None, "d", ""), None);
    }

    #[test]
    fn the_default_stands_behind_models_nobody_lists() {
        let own = registry(&[("c", "1", "x"), ("c", "2", "y")], "z");
        assert_eq!(who(&own, None, "d", "").as_deref(), Some("z"));
        assert_eq!(who(&own, None, "c", "9"), None);
    }

    #[test]
    fn entries_of_the_request_win() {
        let own = registry(&[("a", "1", "x"), ("b", "", "x")], "x");
        let request = registry(&[("a", "", "r")], "q");
        assert_eq!(who(&own, Some(&request), "a", "1").as_deref(), Some("r"));
        assert_eq!(who(&own, Some(&request), "b", "").as_deref(), Some("x"));
        assert_eq!(who(&own, Some(&request), "c", "").as_deref(), Some("q"));
    }

    #[test]
    fn names_that_lead_nowhere_are_refused() {
        let model =
            |registrant: &str| form::Model { name: "a".into(), registrant: registrant.into(), ..Default::default() };
        let form = |models: Vec<form::Model>| Form { models, ..Default::default() };
        let field = |form: Form| Registry::from_form(form, None).expect_err("refused").field;
        assert_eq!(field(form(vec![model("x")])), "models[0].registrant");
        assert_eq!(field(form(vec![model("")])), "models[0].registrant");
        let default = Form { default_registrant: "x".into(), ..Default::default() };
        assert_eq!(field(default), "default_registrant");
        let known = registry(&[("a", "", "x")], "");
        assert!(Registry::from_form(form(vec![model("x")]), Some(&known)).is_ok());
    }
}
