//! Kinds that are treated in a way of their own.

/// Whether objects of the kind define kinds.
pub(crate) fn is_definition(api_version: &str, kind: &str) -> bool {
    kind == "CustomResourceDefinition" && group(api_version) == "apiextensions.k8s.io"
}

/// Whether objects of the kind are namespaces.
pub(crate) fn is_namespace(api_version: &str, kind: &str) -> bool {
    (api_version, kind) == ("v1", "Namespace")
}

/// Whether all values of objects of the kind are secret.
pub(crate) fn is_secret(api_version: &str, kind: &str) -> bool {
    (api_version, kind) == ("v1", "Secret")
}

/// The group of an apiVersion; empty for the core group.
pub(crate) fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}
