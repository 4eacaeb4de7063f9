//! Components -> objects and declarations: D10, D11, D15, D25, S1–S6, D1–D3, D21, and the generations of the format.
#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]

mod common;

use common::*;
use serde_json::{Value, json};
use switchyard_planner::plan::{self, Plan, Refusal, Request};
use switchyard_planner::registry::{Address, Chart, Form, Layers, Port, Registrant, Registry, form::Model};
use switchyard_planner::route::Route;

fn with(own: &Registry, text: &str) -> Result<Plan, Refusal> {
    plan::plan(request(text), Layers { request: None, own })
}

#[test]
fn an_object_is_built_as_d10_and_d11_say() {
    let configuration = json!({
        "metadata": {"namespace": "shop", "labels": {"team": "retail"}, "finalizers": ["x.example.com/y"]},
        "data": {"colour": "blue", "k": ""}, "immutable": null,
    });
    let plan = plan(&design([configured(component("config"), configuration)]));
    let expected = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"config","namespace":"shop","finalizers":["x.example.com/y"],"labels":{"team":"retail","design.meshery.io/id":"7d0f2f4e-3f0e-4f3b-9a52-0b4a51f6d001"},"annotations":{"design.meshery.io/version":"0.0.3","component.meshery.io/id":"id-config"}},"data":{"colour":"blue","k":""},"immutable":null}"#;
    let object = manifest(&plan);
    assert_eq!(object, serde_json::from_str::<Value>(expected).unwrap());
    assert_eq!(warned(&plan), Vec::<String>::new());
}

#[test]
fn values_are_kept_as_they_were_written() {
    let settings = r#"{"spec":{"replicas":3,"big":18446744073709551616,"cpu":0.50,"huge":1e400,"maxSurge":"25%","memory":"1Gi","emptyDir":{},"env":[],"none":null}}"#;
    let text = design([component("a")]).replace(r#""configuration":{}"#, &format!(r#""configuration":{settings}"#));
    let payload = plan(&text).steps[0].payload.clone();
    assert!(payload.0.ends_with(&settings[1..]), "{}", payload.0);
}

#[test]
fn yaml_and_json_give_the_same_plan() {
    let json = design([
        configured(component("a"), json!({"data": {"on": "yes", "n": "08", "m": "a\nb\n"}})),
        dependent("b", &["a"]),
    ]);
    let value: Value = serde_json::from_str(&json).unwrap();
    let yaml = format!(
        "id: {}\nname: Shop\nversion: 0.0.3\nschemaVersion: designs.meshery.io/v1beta3\ncomponents:\n- id: id-a\n  displayName: a\n  \
         component: &c {{kind: ConfigMap, version: v1}}\n  model: &m {{name: kubernetes, model: {{version: v1.32.0}}}}\n  \
         metadata: {{isAnnotation: false}}\n  configuration:\n    data:\n      on: yes\n      n: '08'\n      m: |\n        a\n        b\n\
         - id: id-b\n  displayName: b\n  component: *c\n  model: *m\n  metadata: {{isAnnotation: false, dependsOn: [a]}}\n  configuration: ~\n",
        value["id"].as_str().unwrap()
    );
    assert_eq!(plan(&yaml).steps, plan(&json).steps);
}

#[test]
fn what_the_server_owns_is_dropped_with_a_warning() {
    let configuration =
        json!({"metadata": {"uid": "u", "creationTimestamp": null, "generateName": "a-"}, "status": {}});
    let plan = plan(&design([configured(component("a"), configuration)]));
    assert_eq!(
        warned(&plan),
        ["SERVER_FIELD_DROPPED components[0].configuration", "GENERATE_NAME_DROPPED components[0].configuration"]
    );
    assert_eq!(
        manifest(&plan)["metadata"].as_object().unwrap().keys().collect::<Vec<_>>(),
        ["name", "namespace", "labels", "annotations"]
    );
}

#[test]
fn names_are_chosen_as_d10_says() {
    let named = |display: &str, configured_name: Value| {
        let mut component = configured(component("x"), json!({"metadata": {"name": configured_name}}));
        component["displayName"] = json!(display);
        let plan = plan(&design([component]));
        (manifest(&plan)["metadata"]["name"].as_str().unwrap().to_owned(), warned(&plan))
    };
    let warning = |code: &str| vec![format!("{code} components[0].displayName")];
    assert_eq!(named("web", json!("web")), ("web".into(), vec![]));
    assert_eq!(named("web", json!(null)), ("web".into(), vec![]));
    assert_eq!(named("web", json!("other")), ("web".into(), warning("NAME_CHOSEN")));
    assert_eq!(named("My Web", json!("web")), ("web".into(), vec![]));
    assert_eq!(named("My Web", json!("Web!")), ("My Web".into(), warning("NAME_NOT_VALID")));
    assert_eq!(named("", json!("web")), ("web".into(), vec![]));
    assert_eq!(
        told(&design([configured(component(""), json!({"metadata": {"generateName": "a-"}}))])),
        ["NAME_MISSING components[0].displayName"]
    );
}

#[test]
fn a_component_without_a_name_of_its_own_is_called_like_its_object() {
    let unnamed = configured(component(""), json!({"metadata": {"name": "web"}}));
    assert_eq!(edges(&plan(&design([unnamed.clone()]))), ["web"]);
    // That is not a name to depend on: dependencies go by `displayName` (S9), which others may well have.
    assert_eq!(
        told(&design([unnamed.clone(), dependent("api", &["web"])])),
        ["UNKNOWN_DEPENDENCY components[1].metadata.dependsOn[0]"]
    );
    let other = kind(component("web"), "v1", "Secret");
    assert_eq!(edges(&plan(&design([unnamed, other, dependent("api", &["web"])]))), ["web", "web", "api < web"]);
}

#[test]
fn a_namespace_is_the_designs_then_the_requests() {
    let mut request_ = request("");
    let text = design([component("a"), configured(component("b"), json!({"metadata": {"namespace": "own"}}))]);
    request_.source = switchyard_planner::plan::Source::Text(&text);
    request_.default_namespace = "team".into();
    let plan = plan::plan(request_, Layers { request: None, own: &Registry::builtin() }).unwrap();
    let namespaces: Vec<_> = plan
        .steps
        .iter()
        .map(|step| serde_json::from_str::<Value>(&step.payload.0).unwrap()["metadata"]["namespace"].clone())
        .collect();
    assert_eq!(namespaces, ["team", "own"]);
    let cluster_scoped = common::plan(&design([kind(component("a"), "v1", "Namespace")]));
    assert_eq!(manifest(&cluster_scoped)["metadata"].get("namespace"), None);
}

#[test]
fn two_components_that_mean_one_object_are_refused() {
    let twin = |id: &str, version: &str, configuration: Value| {
        let mut twin = configured(kind(component("web"), version, "Deployment"), configuration);
        twin["id"] = json!(id);
        twin
    };
    let here = json!({"metadata": {"namespace": "default"}});
    let text = design([twin("a", "apps/v1", here.clone()), twin("b", "apps/v1beta2", json!({}))]);
    let problems = problems(&text);
    assert_eq!(problems.len(), 1);
    assert!(problems[0].message.contains("\"web\" (a)") && problems[0].to_string().contains("(b)"), "{}", problems[0]);
    let elsewhere = json!({"metadata": {"namespace": "other"}});
    assert_eq!(plan(&design([twin("a", "apps/v1", here), twin("b", "apps/v1", elsewhere)])).steps.len(), 2);
    let mut service = kind(component("web"), "v1", "Service");
    service["id"] = json!("b");
    assert_eq!(plan(&design([twin("a", "apps/v1", json!({})), service])).steps.len(), 2);
}

#[test]
fn a_cluster_scoped_object_is_one_whatever_namespace_it_is_given() {
    let role = |id: &str, namespace: &str| {
        let mut role = configured(
            kind(component("reader"), "rbac.authorization.k8s.io/v1", "ClusterRole"),
            json!({"metadata": {"namespace": namespace}}),
        );
        role["id"] = json!(id);
        role
    };
    assert_eq!(told(&design([role("a", "x"), role("b", "y")])), ["DUPLICATE_OBJECT components[1].displayName"]);
}

#[test]
fn what_can_be_no_object_is_refused() {
    let text = design([
        kind(component("a"), "apps/v1/x", "Deployment"),
        kind(component("b"), "", "Deployment"),
        kind(component("c"), "v1", ""),
        configured(kind(component("d"), "v1", "List"), json!({"items": null})),
        configured(kind(component("e"), "v1", "ConfigMapList"), json!({"items": []})),
        configured(component("f"), json!("text")),
        configured(component("g"), json!({"metadata": []})),
        configured(component("h"), json!({"metadata": {"labels": "x", "namespace": 7}})),
    ]);
    assert_eq!(
        told(&text),
        [
            "API_VERSION_INVALID components[0].component.version",
            "API_VERSION_MISSING components[1].component.version",
            "KIND_MISSING components[2].component.kind",
            "LIST_KIND components[3].component.kind",
            "LIST_KIND components[4].component.kind",
            "WRONG_TYPE components[5].configuration",
            "WRONG_TYPE components[6].configuration.metadata",
            "WRONG_TYPE components[7].configuration.metadata.labels",
            "WRONG_TYPE components[7].configuration.metadata.namespace",
        ]
    );
}

#[test]
fn null_is_taken_where_a_map_may_be() {
    let mut component = configured(component("a"), json!({"metadata": null, "data": null}));
    component["modelReference"] = json!({"name": "kubernetes"});
    component["model"] = json!(null);
    component["metadata"] = json!(null);
    assert_eq!(manifest(&plan(&design([component.clone()])))["data"], json!(null));
    component["configuration"] = json!(null);
    assert_eq!(plan(&design([component])).steps.len(), 1);
}

#[test]
fn the_registry_routes_and_the_design_does_not() {
    let mut component = of_model(kind(component("mesh"), "", "IstioMesh"), "istio");
    component["model"]["registrant"] = json!({"kind": "kubernetes", "metadata": {"port": 1, "host_name": "canary"}});
    let text = design([component]);
    let adapter = registry(&[("istio", Some(("adapter", 10000)))]);
    let plan = with(&adapter, &text).unwrap();
    assert!(matches!(&plan.steps[0].route, Route::Adapter { host, port: 10000, .. } if host == "adapter"));
    let refusal = with(&registry(&[("istio", None)]), &text).unwrap_err();
    assert!(matches!(refusal, Refusal::Design { problems, .. } if problems[0].kind.as_str() == "API_VERSION_MISSING"));
    let refusal = with(&Registry::builtin(), &text).unwrap_err();
    let Refusal::Design { problems, .. } = refusal else { panic!("refused") };
    assert_eq!(problems[0].kind.as_str(), "NO_REGISTRANT");
    assert!(problems[0].to_string().contains("\"mesh\"") && problems[0].to_string().contains("\"istio\""));
}

#[test]
fn a_model_of_nearly_the_same_name_is_pointed_out() {
    let Err(Refusal::Design { problems, .. }) =
        with(&registry(&[("istio", None)]), &design([of_model(component("a"), "ISTIO")]))
    else {
        panic!("refused")
    };
    assert!(problems[0].message.contains("did you mean \"istio\"?"), "{}", problems[0].message);
}

#[test]
fn models_of_drawings_are_set_aside() {
    let form = Form {
        models: vec![Model { name: "kanvas-local".into(), is_annotation: true, ..Model::default() }],
        ..Form::default()
    };
    let own = Registry::from_form(form, None).unwrap();
    let plan = with(&own, &design([of_model(component(""), "kanvas-local")])).unwrap();
    assert_eq!((plan.steps.len(), plan.set_aside.len()), (0, 1));
}

#[test]
fn an_unusable_address_refuses_a_run_and_warns_a_dry_one() {
    let form = Form {
        registrants: vec![Registrant {
            address: Address::new("http://mesh", &Port::Number("1".into())),
            ..Registrant::named("r")
        }],
        models: vec![Model { name: "istio".into(), registrant: "r".into(), ..Model::default() }],
        ..Form::default()
    };
    let own = Registry::from_form(form, None).unwrap();
    let text = design([of_model(component("a"), "istio"), of_model(component("b"), "istio")]);
    let Err(Refusal::Addresses(addresses)) = with(&own, &text) else { panic!("refused for the address") };
    assert_eq!(addresses.len(), 1);
    assert_eq!((addresses[0].model.as_str(), addresses[0].unusable.registrant.as_str()), ("istio", "r"));
    let mut dry = request(&text);
    dry.dry_run = true;
    let plan = plan::plan(dry, Layers { request: None, own: &own }).unwrap();
    assert_eq!(warned(&plan), ["ADDRESS_UNUSABLE components[0].model", "ADDRESS_UNUSABLE components[1].model"]);
    // A design that is wrong as well hears of both.
    let both = design([of_model(dependent("a", &["nobody"]), "istio")]);
    assert!(
        matches!(with(&own, &both), Err(Refusal::Design { problems, addresses, .. }) if problems.len() == 1 && addresses.len() == 1)
    );
}

#[test]
fn what_registrants_carry_goes_nowhere() {
    let carried =
        json!({"kind": "kubernetes", "metadata": {"auth": {"client-key-data": "canary"}, "server": "canary"}});
    let mut component = of_model(kind(component("mesh"), "v1", "IstioMesh"), "istio");
    component["model"]["registrant"] = carried.clone();
    component["modelReference"] = json!({"name": "istio", "registrant": carried});
    component["configuration"] = json!({"data": {"stolen": "$(#ref.components.0.model.registrant.metadata.server)"}});
    let text = design([component.clone()]);
    for own in [registry(&[("istio", Some(("adapter", 1)))]), registry(&[("istio", None)])] {
        let answer = format!("{:?}", with(&own, &text));
        assert!(answer.contains("UnresolvedReference") && !answer.contains("canary"), "{answer}");
        component["configuration"] = json!({});
        let plan = with(&own, &design([component.clone()])).unwrap();
        assert!(!format!("{plan:?} {}", plan.steps[0].payload.0).contains("canary"));
    }
}

#[test]
fn no_problem_tells_a_value_of_the_configuration() {
    let secret = kind(component("s"), "v1", "Secret");
    let text = design([
        configured(
            secret.clone(),
            json!({"data": {"password": {"canary": "canary"}}, "metadata": {"labels": {"a": ["canary"]}}}),
        ),
        configured(component("t"), json!({"metadata": {"namespace": {"canary": 1}, "annotations": "canary"}})),
        configured(component("u"), json!({"x y": "canary", "xy": "canary"})),
        configured(component("v"), json!("canary")),
        configured(component("w"), json!({"x": "canary $(#ref.nowhere) canary"})),
    ]);
    let answer = format!("{:?}", try_plan(&text));
    assert!(answer.contains("WrongType") && answer.contains("DuplicateKey") && !answer.contains("canary"), "{answer}");
    for broken in [
        "{\"components\": [{\"configuration\": {\"password\": \"canary\" \"canary\"}}]}",
        "components:\n- configuration:\n    password: *canary\n",
        "components:\n- configuration:\n    password: \"canary\n  other: x\n",
        "components:\n- configuration:\n    password: canary: canary\n",
        "components:\n- configuration:\n    password: [canary}\n",
    ] {
        let answer = format!("{:?}", problems(broken));
        assert!(!answer.contains("canary"), "{answer}");
    }
}

#[test]
fn an_adapter_gets_the_component_with_marks() {
    let mut component = of_model(kind(component("mesh"), "", "IstioMesh"), "istio");
    component["styles"] = json!({"primaryColor": "#fff"});
    component["configuration"] = json!({"pro file": "demo", "metadata": {"namespace": "istio-system"}});
    let plan = with(&registry(&[("istio", Some(("adapter", 1)))]), &design([component])).unwrap();
    let declaration = manifest(&plan);
    assert_eq!(declaration["displayName"], "mesh");
    assert_eq!(declaration["styles"]["primaryColor"], "#fff");
    assert_eq!(declaration["configuration"]["profile"], "demo");
    assert_eq!(
        declaration["configuration"]["metadata"]["labels"]["design.meshery.io/id"],
        "7d0f2f4e-3f0e-4f3b-9a52-0b4a51f6d001"
    );
    assert_eq!(declaration["configuration"]["metadata"]["annotations"]["component.meshery.io/id"], "id-mesh");
    assert_eq!(declaration["configuration"]["metadata"]["namespace"], "istio-system");
}

/// Case 345.
#[test]
fn components_that_disagree_on_a_charts_namespace_are_warned_of() {
    let chart = |namespace: &str| Chart { url: "oci://h/app".into(), namespace: namespace.into(), ..Chart::default() };
    let model = |chart| Model { name: "m".into(), registrant: "hub".into(), chart: Some(chart), ..Model::default() };
    let form = |chart| Form {
        registrants: vec![Registrant::named("hub")],
        models: vec![model(chart)],
        default_registrant: String::new(),
    };
    let placed = |name: &str, namespace: &str| {
        configured(of_model(component(name), "m"), json!({"metadata": {"namespace": namespace}}))
    };
    let text = design([placed("a", "x"), placed("b", "y"), placed("c", "x"), of_model(component("d"), "m")]);
    let warnings = |chart, charts| {
        let own = Registry::from_form(form(chart), None).unwrap();
        let plan = plan::plan(Request { charts, ..request(&text) }, Layers { request: None, own: &own }).unwrap();
        plan.warnings.into_iter().map(|told| (told.component, told.code.as_str(), told.message)).collect::<Vec<_>>()
    };
    let told = warnings(chart(""), true);
    let of: Vec<_> = told.iter().map(|(component, code, _)| (component.as_str(), *code)).collect();
    assert_eq!(of, [("id-b", "CHART_NAMESPACES"), ("id-d", "CHART_NAMESPACES")]);
    assert!(
        told[0].2.contains("in namespace \"y\" by this component, and in namespace \"x\" by \"a\""),
        "{}",
        told[0].2
    );
    assert_eq!(warnings(chart("z"), true), []);
    assert_eq!(warnings(chart(""), false), []);
    // Case 354: a chart without a URL is none.
    let nowhere = Chart { url: String::new(), ..chart("z") };
    let told = warnings(nowhere.clone(), true);
    assert_eq!(told.len(), 4);
    assert!(told.iter().all(|(_, code, _)| *code == "CHART_MISSING"), "{told:?}");
    let own = Registry::from_form(form(nowhere), None).unwrap();
    let plan = plan::plan(Request { charts: true, ..request(&text) }, Layers { request: None, own: &own }).unwrap();
    assert!(plan.steps.iter().all(|step| step.chart.is_none()));
}

/// Cases 307, 312: what an adapter gets is named and placed as on the direct path (D10).
#[test]
fn an_adapter_gets_the_objects_name_and_the_effective_namespace() {
    let own = registry(&[("istio", Some(("adapter", 1)))]);
    let declared = |kind_of: (&str, &str), display_name: &str, metadata: Value| {
        let mut component = of_model(kind(component("mesh"), kind_of.0, kind_of.1), "istio");
        component["displayName"] = json!(display_name);
        component["configuration"] = json!({"metadata": metadata, "spec": {}});
        manifest(&with(&own, &design([component])).unwrap())
    };
    let gateway = ("networking.istio.io/v1", "Gateway");
    let declaration = declared(gateway, "My Gateway", json!({"name": "gateway"}));
    assert_eq!(declaration["displayName"], "gateway");
    assert_eq!(declaration["configuration"]["metadata"]["namespace"], "default");
    let declaration = declared(gateway, "gateway", json!({"namespace": "shop"}));
    assert_eq!(declaration["configuration"]["metadata"]["namespace"], "shop");
    let declaration = declared(("v1", "Namespace"), "shop", json!({}));
    assert_eq!(declaration["configuration"]["metadata"].get("namespace"), None);
}

/// Case 305: what does not travel by ProcessOAM is told before it is missed.
#[test]
fn configuration_that_an_adapter_loses_is_warned_of() {
    let own = registry(&[("istio", Some(("adapter", 1)))]);
    let warnings = |version: &str, name: &str, configuration: Value| {
        let mut component = of_model(kind(component("mesh"), version, name), "istio");
        component["configuration"] = configuration;
        let plan = with(&own, &design([component])).unwrap();
        plan.warnings.iter().map(|warning| warning.message.clone()).collect::<Vec<_>>()
    };
    let lost = |warnings: Vec<String>, what: &str| {
        assert!(
            matches!(warnings.as_slice(), [one] if one.contains("ProcessOAM") && one.contains(what)),
            "{warnings:?}"
        );
    };
    lost(warnings("v1", "ConfigMap", json!({"data": {"a": "b"}})), "data");
    lost(warnings("example.com/v1", "Thing", json!({"spec": {}, "extra": 1})), "extra");
    for (version, name, configuration) in [
        ("networking.istio.io/v1", "Gateway", json!({"servers": []})),
        ("apps/v1", "Deployment", json!({"metadata": {"labels": {}}, "spec": {}, "status": {}})),
        ("", "IstioMesh", json!({"profile": "demo"})),
    ] {
        assert_eq!(warnings(version, name, configuration), Vec::<String>::new());
    }
}

const LEGACY: &str = "name: LegacyShop
services:
  mesh:
    type: IstioMesh
    model: istio
    version: 1.20.0
    namespace: istio-system
    settings: { profile: demo }
    traits: { mTLS: { policy: mutual }, meshmap: { id: b1f5a8d2-9d39-4d0c-8d20-6a6b7e1d1001 } }
  charts:
    name: grafana
    type: Deployment.K8s
    apiVersion: apps/v1
    model: kubernetes
    labels: { team: retail }
    annotations: { note: '1' }
    namespace: \"\"
    dependsOn: [mesh]
  note:
    type: Comment
    isAnnotation: true
    depends On: [charts]
";

#[test]
fn legacy_designs_keep_their_order_by_key() {
    let own = registry(&[("istio", Some(("adapter", 1))), ("kubernetes", None)]);
    let plan = with(&own, LEGACY).unwrap();
    assert_eq!(edges(&plan), ["mesh", "grafana < mesh"]);
    assert_eq!(plan.set_aside.iter().map(|drawing| drawing.name.as_str()).collect::<Vec<_>>(), ["note"]);
    let (mesh, grafana) = (&plan.steps[0], &plan.steps[1]);
    assert_eq!(mesh.id, "b1f5a8d2-9d39-4d0c-8d20-6a6b7e1d1001");
    assert_eq!((grafana.kind.as_str(), grafana.api_version.as_str()), ("Deployment", "apps/v1"));
    let declaration: Value = serde_json::from_str(&mesh.payload.0).unwrap();
    assert_eq!(declaration["component"]["kind"], "IstioMesh");
    assert_eq!(declaration["model"]["model"]["version"], "1.20.0");
    assert_eq!(declaration["configuration"]["metadata"]["namespace"], "istio-system");
    assert_eq!(declaration["traits"], json!({"mTLS": {"policy": "mutual"}}));
    let object: Value = serde_json::from_str(&grafana.payload.0).unwrap();
    assert_eq!(object["metadata"]["labels"]["team"], "retail");
    assert_eq!(object["metadata"]["annotations"]["note"], "1");
    assert_eq!(object["metadata"]["namespace"], "default");
    // The same file gives the same ids, although it gives none.
    assert_eq!(with(&own, LEGACY).unwrap().steps, plan.steps);
}

#[test]
fn problems_of_legacy_designs_have_paths_of_their_own() {
    let text =
        "name: x\nservices:\n  a.b:\n    type: Pod\n    model: kubernetes\n    dependsOn: [c]\n    namespace: [x]\n";
    assert_eq!(
        told(text),
        [
            "API_VERSION_MISSING services[\"a.b\"].apiVersion",
            "UNKNOWN_DEPENDENCY services[\"a.b\"].dependsOn[0]",
            "WRONG_TYPE services[\"a.b\"].namespace",
        ]
    );
}

#[test]
fn the_shape_decides_the_generation() {
    let current = design([component("a")]);
    for version in ["v1beta1", "v1beta2", "v1beta3", "v2", "v9alpha1"] {
        assert_eq!(plan(&current.replace("v1beta3", version)).steps.len(), 1);
    }
    let without = current.replace("\"schemaVersion\":\"designs.meshery.io/v1beta3\",", "");
    assert!(!without.contains("designs.meshery.io"));
    assert_eq!(plan(&without).steps.len(), 1);
    assert_eq!(plan("{\"schemaVersion\": \"\", \"components\": null}").steps.len(), 0);
    assert_eq!(plan("{\"schemaVersion\": \"designs.meshery.io/v1beta1\"}").steps.len(), 0);
    for text in ["", "~", "[]", "a", "{}", "name: x", "apiVersion: v1\nkind: Pod\n", "a: 1\n---\nb: 2\n"] {
        assert_eq!(told(text), ["NOT_A_DESIGN "], "{text}");
    }
    let both = format!("{}, \"services\": {{\"a\": {{}}}}}}", &current[..current.len() - 1]);
    assert_eq!(warned(&plan(&both)), ["COMPONENTS_IGNORED services"]);
}

#[test]
fn a_design_in_a_wrapper_is_found() {
    let text = json!({"patternFile": design([dependent("a", &["b"])]), "patternId": "x"}).to_string();
    assert_eq!(told(&text), ["UNKNOWN_DEPENDENCY components[0].metadata.dependsOn[0]"]);
}

#[test]
fn ids_are_unique_and_derived_when_missing() {
    let nil = "00000000-0000-0000-0000-000000000000";
    let without = |name: &str, id: Value| {
        let mut component = component(name);
        component["id"] = id;
        component
    };
    let text = design([without("a", json!(nil)), without("b", json!("")), without("c", json!(null))]);
    let ids: std::collections::BTreeSet<_> = plan(&text).steps.into_iter().map(|step| step.id).collect();
    assert_eq!(ids.len(), 3);
    assert!(!ids.contains(nil) && ids.iter().all(|id| id.len() == 36));
    let same = design([without("a", json!("x")), without("b", json!("x"))]);
    assert_eq!(told(&same), ["DUPLICATE_ID components[1].id"]);
}

#[test]
fn references_are_resolved_by_position_before_drawings_are_set_aside() {
    let text = design([
        drawing("note"),
        component("db"),
        dependent("api", &["$(#ref.components.1.displayName)"]),
        configured(
            component("c"),
            json!({"metadata": {"namespace": "x $(#ref.components.0.displayName) y"}, "a": [["$(#ref.name)"]]}),
        ),
    ]);
    let plan = plan(&text);
    assert_eq!(edges(&plan), ["db", "c", "api < db"]);
    let object: Value = serde_json::from_str(&plan.steps[1].payload.0).unwrap();
    assert_eq!(object["metadata"]["namespace"], "note");
    assert_eq!(object["a"], json!([["Shop"]]));
    let broken = design([
        dependent("api", &["$(#ref.components.9.displayName)"]),
        configured(component("c"), json!({"a": {"b": "$(#ref.x)"}, "d": "$(#ref.components)"})),
    ]);
    assert_eq!(
        told(&broken),
        [
            "UNRESOLVED_REFERENCE components[0].metadata.dependsOn[0]",
            "UNRESOLVED_REFERENCE components[1].configuration.a.b",
            "UNRESOLVED_REFERENCE components[1].configuration.d",
        ]
    );
}

#[test]
fn duplicate_keys_are_refused_beside_everything_else() {
    let text = "name: x\ncomponents:\n- displayName: a\n  component: {kind: Pod, version: v1}\n  model: {name: kubernetes}\n  \
                configuration:\n    data: {a: 1}\n    spec: {}\n    data: {b: 2}\n  metadata:\n    dependsOn: [nobody]\n";
    let problems = problems(text);
    let told: Vec<_> = problems.iter().map(|problem| problem.to_string()).collect();
    assert_eq!(told.len(), 2);
    assert!(told[0].ends_with("(first in line 7, column 5; again in line 9, column 5)"), "{}", told[0]);
    assert!(told[1].contains("nobody"));
}

#[test]
fn what_is_wrong_with_a_drawing_does_no_harm() {
    let mut note = drawing("note");
    note["component"] = json!("x");
    note["model"] = json!([]);
    note["configuration"] = json!({"a": "$(#ref.nowhere)", "metadata": 7});
    assert_eq!(plan(&design([note])).set_aside.len(), 1);
    let mut unclear = drawing("note");
    unclear["metadata"]["isAnnotation"] = json!("true");
    assert_eq!(told(&design([unclear])), ["WRONG_TYPE components[0].metadata.isAnnotation"]);
}

#[test]
fn charts_travel_when_they_are_wanted() {
    let chart = switchyard_planner::registry::Chart { url: "oci://charts/x".into(), ..Default::default() };
    let form = Form {
        registrants: vec![Registrant::named("r")],
        models: vec![Model {
            name: "kubernetes".into(),
            registrant: "r".into(),
            chart: Some(chart.clone()),
            ..Model::default()
        }],
        ..Form::default()
    };
    let own = Registry::from_form(form, None).unwrap();
    let text = design([component("a")]);
    for (charts, expected) in [(false, None), (true, Some(chart))] {
        let mut request = request(&text);
        request.charts = charts;
        assert_eq!(plan::plan(request, Layers { request: None, own: &own }).unwrap().steps[0].chart, expected);
    }
}

#[test]
fn a_document_as_deep_as_may_be_fits_a_small_stack() {
    // Three levels stand around a configuration; a map and a list in turn, with everything that walks through them.
    let mut deep = json!({"a key": "$(#ref.name)", "broken": "$(#ref.nowhere)"});
    for level in 0..95 {
        deep = if level % 2 == 0 { json!([deep]) } else { json!({"spaced key": deep}) };
    }
    let text = design([configured(component("a"), json!({"spec": deep}))]);
    let plan = move || {
        let problems = problems(&text);
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].kind.as_str(), "UNRESOLVED_REFERENCE");
        let object = manifest(&plan(&text.replace("nowhere", "name")));
        assert!(object["spec"][0]["spacedkey"][0]["spacedkey"].is_array());
    };
    std::thread::Builder::new().stack_size(256 << 10).spawn(plan).unwrap().join().unwrap();
}

#[test]
fn an_id_has_a_limit() {
    let with_id = |bytes: usize| {
        let mut component = component("a");
        component["id"] = json!("i".repeat(bytes));
        design([component])
    };
    assert_eq!(plan(&with_id(253)).steps[0].id.len(), 253);
    assert_eq!(told(&with_id(254)), ["LIMIT_EXCEEDED components[0].id"]);
    let legacy =
        format!("name: x\nservices:\n  a: {{type: Pod, apiVersion: v1, model: kubernetes, id: {}}}\n", "i".repeat(254));
    assert_eq!(told(&legacy), ["LIMIT_EXCEEDED services.a.id"]);
}

#[test]
fn name_and_version_of_a_design_have_a_limit() {
    let text = design([component("a")]).replace("\"0.0.3\"", &format!("\"{}\"", "v".repeat(1_025)));
    assert_eq!(told(&text), ["LIMIT_EXCEEDED version"]);
}

#[test]
fn copies_become_one_step_and_differences_are_refused() {
    let pod = |id: &str, data: &str| {
        let mut pod = configured(component("web"), json!({"data": {"a": data}}));
        pod["id"] = json!(id);
        pod
    };
    let mut copied = plan(&design([pod("a", "1"), pod("b", "1"), dependent("x", &["web"])]));
    assert_eq!(edges(&copied), ["web", "x < web"]);
    assert_eq!(copied.steps.remove(0).id, "a");
    assert_eq!(warned(&copied), ["IDENTICAL_COPY components[1].displayName"]);
    // The copy has taken its id along.
    assert_eq!(plan(&design([pod("a", "1"), pod("a", "1")])).steps.len(), 1);
    assert_eq!(
        told(&design([pod("a", "1"), pod("a", "2")])),
        ["DUPLICATE_ID components[1].id", "DUPLICATE_OBJECT components[1].displayName"]
    );
}

/// Case 292 for adapters, which get more of a component than its configuration.
#[test]
fn copies_for_an_adapter_become_one_step_too() {
    let own = registry(&[("istio", Some(("adapter", 1)))]);
    let routes = |id: &str, change: (&str, Value)| {
        let configuration = json!({"spec": {"hosts": ["shop"]}});
        let component =
            kind(configured(component("routes"), configuration), "networking.istio.io/v1", "VirtualService");
        let mut component = of_model(component, "istio");
        component["id"] = json!(id);
        component["styles"] = json!({"position": {"x": id.len()}});
        component[change.0] = change.1;
        component
    };
    let none = || ("format", json!("JSON"));
    let copied = with(&own, &design([routes("a", none()), routes("bb", none())])).unwrap();
    assert_eq!((copied.steps.len(), warned(&copied)), (1, vec!["IDENTICAL_COPY components[1].displayName".to_owned()]));
    let traits = || ("traits", json!({"mTLS": {"policy": "mutual"}}));
    assert!(with(&own, &design([routes("a", none()), routes("bb", traits())])).is_err(), "they differ for the adapter");
}

#[test]
fn a_kind_that_the_design_defines_without_namespaces_has_none() {
    let definition = |scope: &str| {
        let spec = json!({"group": "ex.io", "scope": scope, "names": {"kind": "Widget", "plural": "widgets"}});
        let definition = configured(component("widgets.ex.io"), json!({"spec": spec}));
        kind(definition, "apiextensions.k8s.io/v1", "CustomResourceDefinition")
    };
    let widget = |id: &str, namespace: &str| {
        let metadata = json!({"metadata": {"namespace": namespace}, "spec": namespace});
        let mut widget = kind(configured(component("w"), metadata), "ex.io/v1", "Widget");
        widget["id"] = json!(id);
        widget
    };
    let text = |scope| design([widget("a", "x"), widget("b", "y"), definition(scope)]);
    assert_eq!(told(&text("Cluster")), ["DUPLICATE_OBJECT components[1].displayName"]);
    assert_eq!(plan(&text("Namespaced")).steps.len(), 3);
}

#[test]
fn a_kind_that_is_called_a_list_is_no_list() {
    let list = kind(configured(component("allowed"), json!({"items": ["a"]})), "ex.io/v1", "AllowList");
    assert_eq!(plan(&design([list])).steps.len(), 1);
}

#[test]
fn versions_that_no_kind_has_are_pointed_out() {
    let plan = plan(&design([kind(component("a"), "core.oam.dev/v1alpha1", "Deployment")]));
    assert_eq!(warned(&plan), ["VALUE_SUSPICIOUS components[0].component.version"]);
}

#[test]
fn text_is_what_is_written() {
    let document = |name: &str| {
        format!(
            "name: x\ncomponents:\n- displayName: {name}\n  component: {{kind: ConfigMap, version: v1}}\n  \
             model: {{name: kubernetes}}\n"
        )
    };
    for name in ["0777", "1_000", "True", "0x1F", "1.10", "~x", "1e3"] {
        assert_eq!(plan(&document(name)).steps[0].name, name);
    }
    // An alias means what is written at its anchor.
    for (anchor, name) in
        [("&n 0777", "0777"), ("&n True", "True"), ("&n   1_000 # many", "1_000"), ("&n '0777'", "0777")]
    {
        let aliased = document("*n").replace("name: x", &format!("name: {anchor}"));
        assert_eq!(plan(&aliased).steps[0].name, name, "{anchor}");
        let aliased = document("*n")
            .replace("name: x", &format!("name: {{a: [{anchor}\n]}}"))
            .replacen("name: {a", "free: {a", 1);
        assert_eq!(plan(&format!("name: x\n{aliased}")).steps[0].name, name, "{anchor} in brackets");
    }
    let legacy = "name: x\nservices:\n  a:\n    type: Service\n    apiVersion: v1\n    model: kubernetes\n    \
                  annotations: {scrape: true, port: 0777, x: 1.10}\n";
    let annotations = &manifest(&plan(legacy))["metadata"]["annotations"];
    assert_eq!(
        (&annotations["scrape"], &annotations["port"], &annotations["x"]),
        (&json!("true"), &json!("0777"), &json!("1.10"))
    );
}

#[test]
fn keys_that_lose_their_spaces_are_named() {
    let configuration = json!({"spec": {"my key": 1, "a b": 2, "c d": 3, "e f": 4}});
    let plan = plan(&design([kind(configured(component("a"), configuration), "ex.io/v1", "Widget")]));
    assert_eq!(warned(&plan), ["VALUE_SUSPICIOUS components[0].configuration.spec.mykey"]);
    assert!(plan.warnings[0].message.contains("\"my key\"") && plan.warnings[0].message.contains("and 1 more"));
}

#[test]
fn json_with_a_mistake_that_is_yaml_is_doubted_with_the_place() {
    let text = design([configured(component("a"), json!({"spec": {"replicas": 3, "paused": true}}))]);
    let plan = plan(&text.replace("3,", "3 "));
    assert_eq!(warned(&plan), ["VALUE_SUSPICIOUS components[0].configuration.spec"]);
    assert!(plan.warnings[0].message.contains("line 1, column"), "{}", plan.warnings[0].message);
}

#[test]
fn a_flag_says_what_is_true_of_it() {
    let flagged = |flag: &str| {
        let text = format!(
            "name: x\nservices:\n  a: {{type: Pod, apiVersion: v1, model: kubernetes, isAnnotation: {flag}}}\n"
        );
        problems(&text)[0].message.clone()
    };
    assert!(flagged("yes").contains("yes, no, on and off are text"));
    assert!(flagged("'true'").contains("without quotes"));
    assert!(!flagged("maybe").contains("quotes"));
}

#[test]
fn an_anchor_may_stand_on_a_key() {
    let text = "&k name: x\ncomponents:\n- displayName: *k\n  component: {kind: ConfigMap, version: v1}\n  \
                model: {name: kubernetes}\n";
    assert_eq!(plan(text).steps[0].name, "name");
}

#[test]
fn values_that_no_api_server_takes_are_named() {
    let secret = json!({"data": {"good": "YQ==", "password": "not base64!"}, "stringData": {"text": "not base64!"}});
    let planned = plan(&design([kind(configured(component("a"), secret), "v1", "Secret")]));
    assert_eq!(warned(&planned), ["VALUE_SUSPICIOUS components[0].configuration.data.password"]);
    assert!(!planned.warnings[0].message.contains("not base64!"));

    let resources = json!({"limits": {"memory": "1Gb", "cpu": 1}, "requests": {"memory": "1Gi", "cpu": "0.5"}});
    let spec = json!({"template": {"spec": {"containers": [{"name": "a"}, {"name": "b", "resources": resources}]}}});
    let planned = plan(&design([kind(configured(component("a"), json!({"spec": spec})), "apps/v1", "Deployment")]));
    assert_eq!(
        warned(&planned),
        ["VALUE_SUSPICIOUS components[0].configuration.spec.template.spec.containers[1].resources.limits.memory"]
    );
}

/// Case 282: what every API server refuses is said at planning, with its place.
#[test]
fn ports_and_quantities_that_none_can_have_are_named_with_their_place() {
    let text = "\
id: x
name: x
components:
- displayName: web
  component: {kind: Service, version: v1}
  model: {name: kubernetes}
  configuration:
    spec:
      ports:
      - name: http
        port: 80
        targetPort: '8080'
      - name: metrics
        port: 99999
- displayName: limits
  component: {kind: ResourceQuota, version: v1}
  model: {name: kubernetes}
  configuration: {spec: {hard: {pods: 10, requests.memory: 10Gb}}}
";
    let planned = plan(text);
    let told: Vec<_> = planned
        .warnings
        .iter()
        .map(|warning| {
            let place = warning.place.unwrap_or_else(|| panic!("{warning:?}"));
            (warning.field.as_str(), place.line, place.column)
        })
        .collect();
    assert_eq!(
        told,
        [
            ("components[0].configuration.spec.ports[0].targetPort", 12, 21),
            ("components[0].configuration.spec.ports[1].port", 14, 15),
            ("components[1].configuration.spec.hard[\"requests.memory\"]", 18, 60),
        ]
    );
    assert!(planned.warnings.iter().all(|warning| !warning.message.contains("10Gb")));
}

#[test]
fn versions_that_never_were_are_pointed_out() {
    let planned = plan(&design([kind(component("a"), "apps/v2", "Deployment")]));
    assert_eq!(warned(&planned), ["VALUE_SUSPICIOUS components[0].component.version"]);
    assert!(planned.warnings[0].message.contains("v1, v1beta2, v1beta1"), "{}", planned.warnings[0].message);
    // What may be, or may have been, is the cluster's to say.
    for version in ["extensions/v1beta1", "apps/v1alpha1", "apps.ex.io/v9", "v1"] {
        assert_eq!(warned(&plan(&design([kind(component("a"), version, "Thing")]))), [""; 0], "{version}");
    }
}
