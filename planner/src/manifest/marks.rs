//! What every object is marked with, so that it can be found and told from others again (D11).

use std::borrow::Cow;

use crate::document::{At, Map, Node};

/// Label: the design an object belongs to.
pub(super) const DESIGN_ID: &str = "design.meshery.io/id";
/// Annotation: the design's version.
pub(super) const DESIGN_VERSION: &str = "design.meshery.io/version";
/// Annotation: the component.
pub(super) const COMPONENT_ID: &str = "component.meshery.io/id";

/// The marks of a design.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marks {
    /// The design's id.
    pub design: String,
    /// The design's version.
    pub version: String,
}

impl Marks {
    /// Puts the marks on an object's metadata. What stands there under their names is replaced.
    pub fn put<'a>(&'a self, metadata: &mut Map<'a>, component: Cow<'a, str>) {
        let text = |text| Node::string(At::START, text);
        metadata.map_mut("labels").set(DESIGN_ID, text(Cow::Borrowed(self.design.as_str())));
        let annotations = metadata.map_mut("annotations");
        annotations.set(DESIGN_VERSION, text(Cow::Borrowed(self.version.as_str())));
        annotations.set(COMPONENT_ID, text(component));
    }
}
