//! A component of a design -> what adapters in the field expect of `ProcessOAM` (`meshes` contract). Pure.

use serde_json::{Map, Value, json};

/// Three generations of adapters read three pairs of annotations for apiVersion and kind; each ignores the others'.
const ANNOTATIONS: [(&str, &str); 3] = [
    ("design.meshmodel.io.k8s.APIVersion", "design.meshmodel.io.k8s.Kind"),
    ("pattern.meshery.io.k8s.k8sAPIVersion", "pattern.meshery.io.k8s.k8sKind"),
    ("pattern.meshery.io.mesh.workload.k8sAPIVersion", "pattern.meshery.io.mesh.workload.k8sKind"),
];

/// One entry of `oam_comps`.
pub(crate) fn component(declaration: &str) -> Result<String, serde_json::Error> {
    let declaration: Value = serde_json::from_str(declaration)?;
    let (name, kind, api_version) = identity(&declaration);
    let (model, model_version) = model(&declaration);
    let configuration = &declaration["configuration"];
    let metadata = &configuration["metadata"];
    let mut annotations = metadata["annotations"].as_object().cloned().unwrap_or_default();
    for (of_version, of_kind) in ANNOTATIONS {
        annotations.insert(of_version.into(), api_version.into());
        annotations.insert(of_kind.into(), kind.into());
    }
    annotations.insert("design.meshmodel.io.model.name".into(), model.into());
    annotations.insert("design.meshmodel.io.model.version".into(), model_version.into());
    let mut of_object = Map::new();
    of_object.insert("name".into(), name.into());
    if let Some(namespace) = metadata["namespace"].as_str() {
        of_object.insert("namespace".into(), namespace.into());
    }
    of_object.insert("labels".into(), metadata.get("labels").filter(|it| it.is_object()).cloned().unwrap_or(json!({})));
    of_object.insert("annotations".into(), annotations.into());
    let component = json!({
        "apiVersion": "core.oam.dev/v1alpha1",
        "kind": "Component",
        "metadata": of_object,
        "spec": {
            "type": kind,
            "version": model_version,
            "apiVersion": api_version,
            "model": model,
            "settings": settings(configuration),
            "parameters": null,
        },
    });
    Ok(component.to_string())
}

/// `oam_config`: traits, where the component has some.
pub(crate) fn configuration(declaration: &str) -> Result<String, serde_json::Error> {
    let declaration: Value = serde_json::from_str(declaration)?;
    let (name, ..) = identity(&declaration);
    let traits: Vec<_> = declaration["traits"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| *name != "meshmap")
        .map(|(name, properties)| json!({"Name": name, "Properties": properties}))
        .collect();
    let configuration = json!({
        "apiVersion": "core.oam.dev/v1alpha1",
        "kind": "ApplicationConfiguration",
        "metadata": {"name": name},
        "spec": {"Components": [{"ComponentName": name, "Traits": traits, "Scopes": []}]},
    });
    Ok(configuration.to_string())
}

/// Name, kind and apiVersion of a declared component.
pub(crate) fn identity(declaration: &Value) -> (&str, &str, &str) {
    (
        declaration["displayName"].as_str().unwrap_or_default(),
        declaration["component"]["kind"].as_str().unwrap_or_default(),
        declaration["component"]["version"].as_str().unwrap_or_default(),
    )
}

fn model(declaration: &Value) -> (&str, &str) {
    let of = |key: &str, path: &str| declaration[key].pointer(path).and_then(Value::as_str).filter(|it| !it.is_empty());
    let either = |path: &str| of("model", path).or_else(|| of("modelReference", path)).unwrap_or_default();
    (either("/name"), either("/model/version"))
}

/// The component without a namespace, which a cluster-scoped kind has none of.
pub(crate) fn without_namespace(declaration: &str) -> Result<String, serde_json::Error> {
    let mut declaration: Value = serde_json::from_str(declaration)?;
    if let Some(metadata) = declaration.pointer_mut("/configuration/metadata").and_then(Value::as_object_mut) {
        metadata.remove("namespace");
    }
    Ok(declaration.to_string())
}

/// The object that adapters make of one without a `spec`: all of it but the metadata is the spec. None if it has one.
pub(crate) fn as_spec(object: &Value) -> Option<Value> {
    let (head, rest): (Map<_, _>, Map<_, _>) = object
        .as_object()?
        .clone()
        .into_iter()
        .partition(|(key, _)| matches!(key.as_str(), "apiVersion" | "kind" | "metadata"));
    let mut object = head;
    (!rest.contains_key("spec")).then(|| {
        object.insert("spec".into(), rest.into());
        object.into()
    })
}

/// Adapters make `settings` the object's whole `spec`: a spec is not nested in itself.
fn settings(configuration: &Value) -> Value {
    if let Some(spec) = configuration.get("spec") {
        return spec.clone();
    }
    let mut rest = configuration.as_object().cloned().unwrap_or_default();
    rest.remove("metadata");
    rest.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declaration() -> String {
        json!({
            "displayName": "routes",
            "component": {"kind": "VirtualService", "version": "networking.istio.io/v1beta1"},
            "modelReference": {"name": "istio", "model": {"version": "1.20.0"}},
            "configuration": {
                "metadata": {"namespace": "shop", "labels": {"design.meshery.io/id": "d"}, "annotations": {"a": "b"}},
                "spec": {"hosts": ["shop.example"], "weight": 9007199254740993i64},
            },
            "traits": {"meshmap": {"x": 1}, "mTLS": {"policy": "mutual"}},
        })
        .to_string()
    }

    #[test]
    fn component_carries_marks_all_annotation_pairs_and_a_spec_that_is_not_nested() {
        let component: Value = serde_json::from_str(&component(&declaration()).unwrap()).unwrap();
        assert_eq!(component["metadata"]["name"], "routes");
        assert_eq!(component["metadata"]["namespace"], "shop");
        assert_eq!(component["metadata"]["labels"]["design.meshery.io/id"], "d");
        let annotations = component["metadata"]["annotations"].as_object().unwrap();
        for (of_version, of_kind) in ANNOTATIONS {
            assert_eq!(annotations[of_version], "networking.istio.io/v1beta1");
            assert_eq!(annotations[of_kind], "VirtualService");
        }
        assert_eq!(annotations["a"], "b");
        assert_eq!(component["spec"]["version"], "1.20.0");
        assert_eq!(component["spec"]["settings"]["hosts"][0], "shop.example");
        assert_eq!(component["spec"]["settings"]["weight"], 9007199254740993i64);
        assert!(component["spec"]["settings"].get("spec").is_none());
    }

    #[test]
    fn what_has_no_spec_is_settings_as_a_whole() {
        let text = json!({"displayName": "m", "component": {"kind": "IstioMesh"}, "configuration": {"metadata": {}, "profile": "demo"}});
        let component: Value = serde_json::from_str(&component(&text.to_string()).unwrap()).unwrap();
        assert_eq!(component["spec"]["settings"], json!({"profile": "demo"}));
    }

    #[test]
    fn cluster_scoped_component_has_no_namespace() {
        let component: Value =
            serde_json::from_str(&component(&without_namespace(&declaration()).unwrap()).unwrap()).unwrap();
        assert_eq!(component["metadata"].get("namespace"), None);
        assert_eq!(component["spec"]["settings"]["hosts"][0], "shop.example");
    }

    #[test]
    fn object_without_a_spec_has_all_but_its_head_as_one() {
        let object = json!({"apiVersion": "a/v1", "kind": "B", "metadata": {"name": "c"}, "hosts": [1]});
        let wanted = json!({"apiVersion": "a/v1", "kind": "B", "metadata": {"name": "c"}, "spec": {"hosts": [1]}});
        assert_eq!(as_spec(&object), Some(wanted.clone()));
        assert_eq!(as_spec(&wanted), None);
    }

    #[test]
    fn traits_of_drawings_stay_behind() {
        let configuration: Value = serde_json::from_str(&configuration(&declaration()).unwrap()).unwrap();
        let traits = configuration["spec"]["Components"][0]["Traits"].as_array().unwrap();
        assert_eq!(traits.len(), 1);
        assert_eq!(traits[0]["Name"], "mTLS");
    }
}
