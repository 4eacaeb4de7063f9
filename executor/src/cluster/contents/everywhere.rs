//! What controllers put into every namespace: nobody's work, so nobody's loss (case 207).

use std::{collections::BTreeSet, str::FromStr};

/// An object by resource, group and name, in whatever namespace: `configmaps/kube-root-ca.crt`, `widgets.example.com/default`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    resource: String,
    group: String,
    name: String,
}

/// Why a text names no such object.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not RESOURCE/NAME or RESOURCE.GROUP/NAME, such as `configmaps/kube-root-ca.crt`")]
pub struct NotAPlace(String);

impl FromStr for Place {
    type Err = NotAPlace;

    fn from_str(text: &str) -> Result<Self, NotAPlace> {
        let (resource, name) = text.split_once('/').ok_or_else(|| NotAPlace(text.into()))?;
        let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
        if resource.is_empty() || name.is_empty() || name.contains('/') {
            return Err(NotAPlace(text.into()));
        }
        Ok(Self { resource: resource.into(), group: group.into(), name: name.into() })
    }
}

/// All such objects that an installation knows of.
#[derive(Debug, Default)]
pub(crate) struct Everywhere(BTreeSet<Place>);

impl Everywhere {
    /// Whether the object is one of them.
    pub(super) fn includes(&self, resource: &str, group: &str, name: &str) -> bool {
        self.0.iter().any(|place| place.name == name && place.resource == resource && place.group == group)
    }
}

impl FromIterator<Place> for Everywhere {
    fn from_iter<T: IntoIterator<Item = Place>>(places: T) -> Self {
        Self(places.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_a_resource_and_a_name() {
        let everywhere: Everywhere = ["configmaps/kube-root-ca.crt", "widgets.a.example/w"]
            .map(|text| text.parse().unwrap())
            .into_iter()
            .collect();
        assert!(everywhere.includes("configmaps", "", "kube-root-ca.crt"));
        assert!(!everywhere.includes("secrets", "", "kube-root-ca.crt"));
        assert!(everywhere.includes("widgets", "a.example", "w"));
        assert!(!everywhere.includes("widgets", "b.example", "w"));
        for text in ["", "configmaps", "configmaps/", "/name", "a/b/c"] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }
}
