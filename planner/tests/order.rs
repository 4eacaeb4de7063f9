//! Names, edges and refusals of declarations: S9, S10, D4, D6, S20.
#![allow(clippy::unwrap_used, reason = "a panic in a test is its report")]

mod common;

use common::*;
use serde_json::json;
use switchyard_planner::plan::{self, Operation};
use switchyard_planner::registry::{Layers, Registry};

#[test]
fn a_name_makes_one_edge_between_ids() {
    let plan = plan(&design([dependent("api", &["db"]), component("db")]));
    assert_eq!(edges(&plan), ["db", "api < db"]);
    assert_eq!(plan.steps[1].depends_on, ["id-db"]);
    assert_eq!(plan.steps.iter().map(|step| step.wave).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn an_entry_that_is_there_twice_counts_once() {
    assert_eq!(edges(&plan(&design([dependent("api", &["db", "db"]), component("db")]))), ["db", "api < db"]);
    assert_eq!(told(&design([dependent("api", &["x", "x"])])).len(), 1);
}

#[test]
fn absent_null_and_empty_are_no_dependencies() {
    for nothing in [json!(null), json!([])] {
        let mut api = component("api");
        api["metadata"]["dependsOn"] = nothing;
        assert_eq!(edges(&plan(&design([api]))), ["api"]);
    }
}

#[test]
fn malformed_declarations_are_refused_on_drawings_too() {
    for (wrong, field) in [
        (json!("db"), "dependsOn"),
        (json!({"a": "b"}), "dependsOn"),
        (json!(7), "dependsOn"),
        (json!([1]), "dependsOn[0]"),
        (json!([null]), "dependsOn[0]"),
        (json!([""]), "dependsOn[0]"),
        (json!([["db"]]), "dependsOn[0]"),
    ] {
        for mut component in [component("api"), drawing("api")] {
            component["metadata"]["dependsOn"] = wrong.clone();
            let expected = format!("INVALID_DEPENDENCY components[0].metadata.{field}");
            assert_eq!(told(&design([component])), [expected], "{wrong}");
        }
    }
}

#[test]
fn what_was_meant_is_named() {
    let message = |name: &str| problems(&design([dependent("api", &[name]), component("db")]))[0].message.clone();
    assert_eq!(message("DB"), "depends on \"DB\", which is no component of this design; did you mean \"db\"?");
    assert!(message(" db").contains("depends on \" db\"") && message(" db").contains("did you mean \"db\"?"));
    assert!(!message("nothing-like-it").contains("did you mean"));
}

#[test]
fn an_id_is_no_name() {
    assert_eq!(
        told(&design([dependent("api", &["id-db"]), component("db")])),
        ["UNKNOWN_DEPENDENCY components[0].metadata.dependsOn[0]"]
    );
}

#[test]
fn a_name_of_several_is_refused_only_when_somebody_depends_on_it() {
    let mut other = kind(component("cache"), "v1", "Secret");
    other["id"] = json!("id-other");
    let caches = [component("cache"), other];
    assert_eq!(plan(&design(caches.clone())).steps.len(), 2);
    let [a, b] = caches;
    let problems = problems(&design([dependent("api", &["cache"]), a, b]));
    assert_eq!(problems.len(), 1);
    for part in ["\"cache\"", "2 components", "id-cache", "id-other"] {
        assert!(problems[0].message.contains(part), "{}", problems[0].message);
    }
}

#[test]
fn a_drawing_satisfies_and_makes_no_edge() {
    let plan = plan(&design([drawing("note"), dependent("api", &["note"])]));
    assert_eq!(edges(&plan), ["api"]);
    assert_eq!(plan.set_aside[0].name, "note");
}

#[test]
fn a_name_of_one_component_and_of_drawings_means_the_component() {
    let mut note = drawing("db");
    note["id"] = json!("id-note");
    assert_eq!(edges(&plan(&design([note, component("db"), dependent("api", &["db"])]))), ["db", "api < db"]);
}

#[test]
fn what_a_drawing_names_plays_no_part() {
    let mut note = drawing("note");
    note["metadata"]["dependsOn"] = json!(["nowhere", "api"]);
    assert_eq!(edges(&plan(&design([note, component("api")]))), ["api"]);
}

#[test]
fn cycles_are_told_by_name() {
    let two = problems(&design([dependent("db", &["api"]), dependent("api", &["db"])]));
    assert_eq!(two.len(), 1);
    assert_eq!(two[0].message, "its dependencies form a cycle: api → db → api; take one of them out");
    assert_eq!(two[0].field, "components[1].metadata.dependsOn[0]");
    let own = problems(&design([dependent("api", &["api"])]));
    assert_eq!(own[0].message, "depends on itself: api → api; take the entry out");
}

#[test]
fn every_cycle_is_told() {
    let components = [
        dependent("a", &["b"]),
        dependent("b", &["a"]),
        dependent("c", &["c", "d"]),
        dependent("d", &["e"]),
        component("e"),
    ];
    let told = told(&design(components));
    assert_eq!(
        told,
        [
            "DEPENDENCY_CYCLE components[0].metadata.dependsOn[0]",
            "DEPENDENCY_CYCLE components[2].metadata.dependsOn[0]"
        ]
    );
}

#[test]
fn every_problem_is_told_at_once_in_document_order() {
    let text = r#"{"schemaVersion": "designs.meshery.io/v1beta1", "id": "d", "components": [
  {"id": "1", "displayName": "web", "component": {"kind": "Pod", "version": "v1"}, "modelReference": {"name": "kubernetes"},
   "metadata": {"dependsOn": ["Db", "cache"]}},
  {"id": "2", "displayName": "db", "component": {"kind": "Pod", "version": "v1"}, "modelReference": {"name": "kubernetes"},
   "metadata": {"dependsOn": ["db"]}},
  {"id": "3", "displayName": "cache", "component": {"kind": "Pod", "version": "v1"}, "modelReference": {"name": "kubernets"}},
  {"id": "4", "displayName": "cache", "component": {"kind": "", "version": "v1"}, "modelReference": {"name": "kubernetes"}},
  {"id": "4", "displayName": "last", "component": {"kind": "Pod"}, "modelReference": {"name": "kubernetes"},
   "metadata": {"dependsOn": "db"}}
]}"#;
    let told: Vec<_> = problems(text)
        .iter()
        .map(|problem| {
            let place = problem.place.unwrap();
            format!("{} {} {}:{}", problem.kind, problem.field, place.line, place.column)
        })
        .collect();
    assert_eq!(
        told,
        [
            "UNKNOWN_DEPENDENCY components[0].metadata.dependsOn[0] 3:31",
            "AMBIGUOUS_DEPENDENCY components[0].metadata.dependsOn[1] 3:37",
            "DEPENDENCY_CYCLE components[1].metadata.dependsOn[0] 5:31",
            "NO_REGISTRANT components[2].modelReference 6:113",
            "KIND_MISSING components[3].component.kind 7:61",
            "API_VERSION_MISSING components[4].component.version 8:3",
            "DUPLICATE_ID components[4].id 8:10",
            "INVALID_DEPENDENCY components[4].metadata.dependsOn 9:30",
        ]
    );
}

#[test]
fn places_are_those_of_yaml_as_well() {
    let text = "# a comment\nname: Shop\nschemaVersion: designs.meshery.io/v1beta1\ncomponents:\n- displayName: api\n  \
                component: {kind: Pod, version: v1}\n  model: {name: kubernetes}\n  metadata:\n    dependsOn:\n    - ä\n    \
                - db\n";
    let problems = problems(text);
    assert_eq!(problems[1].field, "components[0].metadata.dependsOn[1]");
    assert!(problems[1].to_string().ends_with("(line 11, column 7)"), "{}", problems[1]);
}

#[test]
fn namespaces_and_definitions_come_first_unless_declared() {
    let crd = configured(
        kind(component("widgets.example.com"), "apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        json!({"spec": {"group": "example.com", "names": {"kind": "Widget"}}}),
    );
    let widget =
        configured(kind(component("w"), "example.com/v1beta7", "Widget"), json!({"metadata": {"namespace": "shop"}}));
    let namespace = kind(component("shop"), "v1", "Namespace");
    let config = configured(component("config"), json!({"metadata": {"namespace": "shop"}}));
    let mut declared = configured(component("declared"), json!({"metadata": {"namespace": "shop"}}));
    declared["metadata"]["dependsOn"] = json!(["shop"]);
    let elsewhere = component("elsewhere");
    let role = configured(
        kind(component("role"), "rbac.authorization.k8s.io/v1", "ClusterRole"),
        json!({"metadata": {"namespace": "shop"}}),
    );
    let plan = plan(&design([widget, config, declared, elsewhere, role, namespace, crd]));
    assert_eq!(
        edges(&plan),
        [
            "elsewhere",
            "role",
            "shop",
            "widgets.example.com",
            "w ~ shop,widgets.example.com",
            "config ~ shop",
            "declared < shop"
        ]
    );
    assert!(
        plan.steps
            .iter()
            .all(|step| step.wave == u32::from(!(step.depends_on.is_empty() && step.runs_after.is_empty())))
    );
}

#[test]
fn contents_of_the_default_namespace_come_after_a_component_that_defines_it() {
    let plan = plan(&design([component("config"), kind(component("default"), "v1", "Namespace")]));
    assert_eq!(edges(&plan), ["default", "config ~ default"]);
}

#[test]
fn a_declared_order_wins_over_an_undeclared_one_and_is_told() {
    let mut namespace = kind(component("n"), "v1", "Namespace");
    namespace["metadata"]["dependsOn"] = json!(["x"]);
    let plan = plan(&design([configured(component("x"), json!({"metadata": {"namespace": "n"}})), namespace]));
    assert_eq!(edges(&plan), ["x", "n < x"]);
    assert_eq!(warned(&plan), ["ORDER_NOT_KEPT components[0]"]);
}

#[test]
fn an_undeploy_has_every_edge_turned_round() {
    let namespace = kind(component("shop"), "v1", "Namespace");
    let config = configured(component("config"), json!({"metadata": {"namespace": "shop"}}));
    let text = design([namespace, config, dependent("api", &["config"])]);
    let mut request = request(&text);
    request.operation = Operation::Undeploy;
    let plan = plan::plan(request, Layers { request: None, own: &Registry::builtin() }).unwrap();
    assert_eq!(edges(&plan), ["api", "config < api", "shop ~ config"]);
}

#[test]
fn a_chain_of_100_000_components_is_planned_on_a_small_stack() {
    let component = |number: usize| {
        let on = if number == 0 { String::new() } else { format!("\"n{}\"", number - 1) };
        format!(
            "{{\"displayName\":\"n{number}\",\"component\":{{\"kind\":\"ConfigMap\",\"version\":\"v1\"}},\"model\":{{\"name\":\"kubernetes\"}},\
             \"metadata\":{{\"dependsOn\":[{on}]}}}}"
        )
    };
    // Backwards, so that the document's order is of no help.
    let components = (0..100_000).rev().map(component).collect::<Vec<_>>().join(",");
    let text = format!("{{\"name\":\"x\",\"components\":[{components}]}}");
    let plan = move || {
        let plan = plan::plan(request(&text), Layers { request: None, own: &Registry::builtin() }).unwrap();
        assert_eq!(plan.steps.last().unwrap().wave, 99_999);
    };
    std::thread::Builder::new().stack_size(256 << 10).spawn(plan).unwrap().join().unwrap();
}

#[test]
fn of_several_that_define_one_kind_the_first_decides_order() {
    let definition = |name: &str| {
        let spec = json!({"spec": {"group": "ex.io", "names": {"kind": "Widget"}}});
        configured(kind(component(name), "apiextensions.k8s.io/v1", "CustomResourceDefinition"), spec)
    };
    let widget = kind(component("w"), "ex.io/v1", "Widget");
    let plan = plan(&design([definition("b"), definition("a"), widget]));
    assert_eq!(edges(&plan), ["b", "a", "w ~ b"]);
}
