//! Component -> Kubernetes object (D10, D11), or the declaration that an adapter gets.
//!
//! What the design says is kept as it was written: numbers, `null`, empty maps and the order of keys. Only what the server
//! owns is taken away, and the marks are added.

mod clean;
mod marks;
mod name;

pub use clean::{Cleaned, clean};
pub use marks::Marks;
pub use name::{Chosen, choose, is_label};

use crate::design::{Component, Position};
use crate::document::{At, Map, Node, Value, map_to_json};

/// What makes two objects the same object (D15): the API version plays no part, and neither does the namespace of kinds
/// that are known to have none.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The API group; empty for the core group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The namespace; empty for a cluster-scoped kind.
    pub namespace: String,
    /// The object's name.
    pub name: String,
}

/// The API group of an apiVersion; empty for the core group.
pub fn group(api_version: &str) -> &str {
    api_version.rsplit_once('/').map_or("", |(group, _)| group)
}

/// Kinds of Kubernetes itself that have no namespace. The planner sees no cluster, so it knows no others; the executor asks
/// each cluster. Sorted.
const CLUSTER_SCOPED: [(&str, &str); 24] = [
    ("", "Namespace"),
    ("", "Node"),
    ("", "PersistentVolume"),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("apiregistration.k8s.io", "APIService"),
    ("certificates.k8s.io", "CertificateSigningRequest"),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"),
    ("gateway.networking.k8s.io", "GatewayClass"),
    ("networking.k8s.io", "IPAddress"),
    ("networking.k8s.io", "IngressClass"),
    ("networking.k8s.io", "ServiceCIDR"),
    ("node.k8s.io", "RuntimeClass"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("scheduling.k8s.io", "PriorityClass"),
    ("storage.k8s.io", "CSIDriver"),
    ("storage.k8s.io", "CSINode"),
    ("storage.k8s.io", "StorageClass"),
    ("storage.k8s.io", "VolumeAttachment"),
];

/// Whether a kind is one of Kubernetes' own without a namespace.
pub fn is_cluster_scoped(group: &str, kind: &str) -> bool {
    CLUSTER_SCOPED.binary_search(&(group, kind)).is_ok()
}

/// The namespace that a component's configuration gives, when it gives one.
pub fn namespace<'c>(component: &'c Component<'_>) -> Option<&'c str> {
    let namespace = component.configuration.get("metadata")?.get(&["namespace"])?;
    namespace.as_str().filter(|namespace| !namespace.is_empty())
}

/// The object of a component on the direct path, as JSON. The component is used up.
///
/// The namespace is written out, the default one too, except for kinds known to have none; what other kinds have only the
/// cluster knows, and the executor drops what does not belong.
pub fn object(component: Component<'_>, name: &str, namespace: Option<&str>, marks: &Marks) -> String {
    let Component { api_version, kind, mut configuration, id, .. } = component;
    let given = configuration.remove("metadata").map(|node| node.value);
    let mut metadata = Map::default();
    metadata.set("name", Node::string(At::START, name.to_owned()));
    if let Some(namespace) = namespace {
        metadata.set("namespace", Node::string(At::START, namespace.to_owned()));
    }
    if let Some(Value::Map(given)) = given {
        let rest = given.0.into_iter().filter(|entry| !matches!(entry.key.as_ref(), "name" | "namespace"));
        metadata.0.extend(rest);
    }
    marks.put(&mut metadata, &id);
    let mut object = Map::default();
    object.set("apiVersion", Node::string(At::START, api_version));
    object.set("kind", Node::string(At::START, kind));
    object.set("metadata", Node::new(At::START, Value::Map(metadata)));
    object.0.extend(configuration.0);
    map_to_json(&object)
}

/// What an adapter gets: the component in the shape of the current generation, with marks, as JSON. The component is used
/// up. Legacy components are converted as Meshery does it; traits that are no drawing are kept beside.
pub fn declaration(component: Component<'_>, marks: &Marks) -> String {
    let Component { position, id, name, kind, api_version, model, model_version, mut configuration, rest, .. } =
        component;
    marks.put(configuration.map_mut("metadata"), &id);
    let configuration = Node::new(At::START, Value::Map(configuration));
    let text = |text| Node::string(At::START, text);
    let mut map = match position {
        Position::Current(_) => rest,
        Position::Legacy(_) => {
            let mut map = Map::default();
            map.set("schemaVersion", text("components.meshery.io/v1beta1".into()));
            map.set("version", text("v1.0.0".into()));
            map.set("format", text("JSON".into()));
            let of_model = map.map_mut("model");
            of_model.set("name", text(model));
            of_model.map_mut("model").set("version", text(model_version));
            if !rest.is_empty() {
                map.set("traits", Node::new(At::START, Value::Map(rest)));
            }
            map
        }
    };
    map.set("id", text(id));
    map.set("displayName", text(name));
    let definition = map.map_mut("component");
    definition.set("kind", text(kind));
    definition.set("version", text(api_version));
    map.set("configuration", configuration);
    map_to_json(&map)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_scoped_kinds_can_be_searched() {
        assert!(CLUSTER_SCOPED.is_sorted());
        assert!(is_cluster_scoped("", "Namespace"));
        assert!(!is_cluster_scoped("apps", "Namespace"));
    }

    #[test]
    fn a_group_is_what_stands_before_the_version() {
        assert_eq!(group("v1"), "");
        assert_eq!(group("apps/v1"), "apps");
    }
}
