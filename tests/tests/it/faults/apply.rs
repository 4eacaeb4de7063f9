//! Group 4: what a real API server makes of a server-side apply.

use serde_json::{Value, json};
use switchyard_proto::v1::{Change, Outcome};
use switchyard_tests::{
    fault::{Canned, Fault, Gate, Rule, Seen},
    plan::Draft,
};

use super::stage::{Stage, assert_applied, assert_failed, config_map, failure};

fn deployment(stage: &Stage, name: &str, spec: &Value) -> Value {
    let labels = json!({"app": name});
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": stage.namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": "nginx"}]},
            },
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    object
}

fn resource_version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap()
}

/// Cases 32 and 52, D13: a field of another manager is a conflict that names both, unless it is to be taken over.
#[tokio::test]
async fn a_field_of_another_manager_is_not_taken_without_being_asked() {
    let stage = Stage::set("conflict").await;
    let path = stage.path("apps/v1/deployments", "web");
    let design = Draft::on(&["east"]);
    let without = design.clone().apply("web", &[], &deployment(&stage, "web", &json!({})));
    assert_applied(&stage.run(&without).await, "web", Change::Created);
    stage.apply_as("autoscaler", &path, &deployment(&stage, "web", &json!({"replicas": 2}))).await;
    let with = design.apply("web", &[], &deployment(&stage, "web", &json!({"replicas": 1})));

    let refused = stage.run(&with).await;
    assert_failed(&refused, "web", "CONFLICT", &["autoscaler", ".spec.replicas", "force_conflicts"]);
    let cause = &failure(&refused, "web", "east").causes[0];
    assert_eq!((cause.field.as_str(), cause.reason.as_str()), (".spec.replicas", "FieldManagerConflict"));
    assert_eq!(refused.target("web", "east").unwrap().attempts, 1);

    assert_applied(&stage.run(&without).await, "web", Change::Unchanged);
    assert_eq!(stage.object("apps/v1/deployments", "web").await.unwrap()["spec"]["replicas"], 2);

    let forced = stage.run(&with.options(|options| options.force_conflicts = true)).await;
    assert_applied(&forced, "web", Change::Configured);
    assert_eq!(stage.object("apps/v1/deployments", "web").await.unwrap()["spec"]["replicas"], 1);
}

/// Case 291: only the cluster knows that the kind has no namespaces, so what was meant to be two objects is one.
#[tokio::test]
async fn two_components_that_met_one_object_are_told() {
    let stage = Stage::set("met").await;
    let role = |namespace: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": format!("{}-met", stage.namespace), "namespace": namespace}, "rules": [],
        })
    };
    let draft = Draft::on(&["east"]).apply("one", &[], &role("a")).apply("two", &["one"], &role("b"));
    let outcome = stage.run(&draft).await;
    let warned = |step: &str| {
        let warnings = &outcome.target(step, "east").unwrap().warnings;
        warnings.iter().any(|warning| warning.contains("the same object as that of component one"))
    };
    assert!(!warned("one") && warned("two"), "{:#?}", outcome.results);
}

/// Case 33, S18: deploying again is never in conflict with ourselves, and nothing is written when nothing changed.
#[tokio::test]
async fn deploying_again_leaves_one_entry_and_writes_only_what_changed() {
    let stage = Stage::set("again").await;
    let first = stage.config_map("map");
    let mut second = first.clone();
    second["metadata"]["annotations"] = json!({"example.com/changed": "yes"});
    let design = Draft::on(&["east"]);
    let manager = format!("switchyard/{}", design.design_id());
    let entries = async || {
        let object = stage.object("v1/configmaps", "map").await.unwrap();
        let managed = object["metadata"]["managedFields"].as_array().unwrap().clone();
        (resource_version(&object).to_owned(), managed)
    };

    assert_applied(&stage.run(&design.clone().apply("map", &[], &first)).await, "map", Change::Created);
    let changed = stage.run(&design.clone().apply("map", &[], &second)).await;
    assert_applied(&changed, "map", Change::Configured);
    let (version, managed) = entries().await;
    assert_eq!(managed.len(), 1, "{managed:?}");
    assert_eq!((&managed[0]["manager"], &managed[0]["operation"]), (&json!(manager), &json!("Apply")));
    assert_eq!(changed.target("map", "east").unwrap().object.as_ref().unwrap().resource_version, version);

    assert_applied(&stage.run(&design.apply("map", &[], &second)).await, "map", Change::Unchanged);
    assert_eq!(entries().await.0, version);
    assert_eq!(stage.east.count(|seen| seen.is_write() && seen.method != http::Method::PATCH), 0);
}

/// Case 35: a list whose keys repeat is refused with its path, and nothing is replaced instead.
#[tokio::test]
async fn a_list_whose_keys_repeat_is_refused_with_its_path() {
    let stage = Stage::set("list-keys").await;
    let pod = |name: &str, ports: Value| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": stage.namespace},
            "spec": {"containers": [{"name": "main", "image": "nginx", "ports": ports}]},
        })
    };
    let twice = json!([{"containerPort": 93, "hostPort": 1093}, {"containerPort": 93, "hostPort": 2093}]);
    let both = json!([{"containerPort": 53, "protocol": "TCP"}, {"containerPort": 53, "protocol": "UDP"}]);
    let draft = Draft::on(&["east"]).apply("twice", &[], &pod("twice", twice)).apply("both", &[], &pod("both", both));

    let outcome = stage.run(&draft).await;

    assert_failed(&outcome, "twice", "INVALID", &["ports", "93"]);
    assert_applied(&outcome, "both", Change::Created);
    assert_eq!(stage.east.count(Seen::is_write), 2);
}

/// Case 37: what the user wrote is sent as it is; what is left out the second time goes.
#[tokio::test]
async fn objects_are_sent_as_they_are_and_what_is_dropped_goes() {
    let stage = Stage::set("as-written").await;
    let pod = |args: Value| {
        json!({
            "spec": {
                "volumes": [{"name": "scratch", "emptyDir": {}}],
                "containers": [{"name": "main", "image": "nginx", "env": [], "args": args, "resources": {}}],
            },
        })
    };
    let object = |template: &Value| {
        let mut object = deployment(&stage, "web", &json!({}));
        object["spec"]["template"]["spec"] = template["spec"].clone();
        object
    };
    let with = object(&pod(json!(["-v"])));
    let mut without = with.clone();
    without["spec"]["template"]["spec"]["containers"][0].as_object_mut().unwrap().remove("args");
    let empty = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "empty", "namespace": stage.namespace},
        "data": {"k": ""},
    });
    let design = Draft::on(&["east"]);

    let first = stage.run(&design.clone().apply("web", &[], &with).apply("empty", &[], &empty)).await;
    assert_eq!(first.summary.counts["succeeded"], 2, "{:?}", first.summary.rows);
    let sent = stage.east.seen().into_iter().find(|seen| seen.is_apply_of("/web")).unwrap();
    // But for what says of it what it was applied from (L4).
    let sent = String::from_utf8(sent.body.to_vec()).unwrap();
    let (head, rest) = sent.split_once(r#""annotations":{"switchyard.dev/applied":""#).unwrap();
    let (_, tail) = rest.split_once(r#""},"#).unwrap();
    assert_eq!(format!("{head}{tail}"), with.to_string());
    assert_eq!(stage.object("v1/configmaps", "empty").await.unwrap()["data"], json!({"k": ""}));

    assert_applied(&stage.run(&design.apply("web", &[], &without)).await, "web", Change::Configured);
    let live = stage.object("apps/v1/deployments", "web").await.unwrap();
    let live = &live["spec"]["template"]["spec"];
    assert_eq!(live["containers"][0]["args"], Value::Null);
    assert_eq!(live["volumes"][0]["emptyDir"], json!({}));
}

/// Case 38: what a default blocks is refused by the API server, in its own words.
#[tokio::test]
async fn a_default_that_blocks_a_change_is_told_in_the_servers_words() {
    let stage = Stage::set("default-blocks").await;
    let design = Draft::on(&["east"]);
    let plain = design.clone().apply("web", &[], &deployment(&stage, "web", &json!({})));
    assert_applied(&stage.run(&plain).await, "web", Change::Created);

    let recreate = deployment(&stage, "web", &json!({"strategy": {"type": "Recreate"}}));
    let refused = stage.run(&design.clone().apply("web", &[], &recreate)).await;
    assert_failed(&refused, "web", "INVALID", &["spec.strategy.rollingUpdate", "Forbidden"]);
    assert_eq!(failure(&refused, "web", "east").causes[0].field, "spec.strategy.rollingUpdate");

    // Seen with v1.37: an explicit null is no way out either, as server-side apply takes it for a field that is not there.
    let explicit = json!({"strategy": {"type": "Recreate", "rollingUpdate": null}});
    let explicit = stage.run(&design.apply("web", &[], &deployment(&stage, "web", &explicit))).await;
    assert_failed(&explicit, "web", "INVALID", &["spec.strategy.rollingUpdate"]);
}

/// Cases 39 and 40, D9: a change to an immutable field fails, withholds, and deletes nothing.
#[tokio::test]
async fn a_change_to_an_immutable_field_fails_and_deletes_nothing() {
    let stage = Stage::set("immutable").await;
    let job = |image: &str| {
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job", "namespace": stage.namespace},
            "spec": {"template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "main", "image": image}],
            }}},
        })
    };
    let design = Draft::on(&["east"]);
    assert_applied(&stage.run(&design.clone().apply("job", &[], &job("one"))).await, "job", Change::Created);

    let changed = design.apply("job", &[], &job("two")).apply("after", &["job"], &stage.config_map("after"));
    let outcome = stage.run(&changed).await;

    assert_failed(&outcome, "job", "IMMUTABLE", &["spec.template", "immutable"]);
    assert!(failure(&outcome, "job", "east").causes.iter().any(|cause| cause.field == "spec.template"));
    assert_eq!(outcome.outcomes()["after"], Outcome::Withheld);
    assert_eq!(stage.east.count(|seen| seen.method == http::Method::DELETE), 0);
    let live = stage.object("batch/v1/jobs", "job").await.unwrap();
    assert_eq!(live["spec"]["template"]["spec"]["containers"][0]["image"], "one");
}

/// Case 41, D14: a namespace that is missing is named, and not created from a typo.
#[tokio::test]
async fn a_missing_namespace_is_named_and_not_created() {
    let stage = Stage::set("ns-missing").await;
    let typo = format!("{}-typo", stage.namespace);
    let draft = Draft::on(&["east"]).apply("map", &[], &config_map(&typo, "map"));

    let outcome = stage.run(&draft).await;

    assert_failed(&outcome, "map", "NAMESPACE_NOT_FOUND", &[&typo, "not found on cluster east"]);
    assert_eq!(stage.east.count(Seen::is_write), 1);
    assert_eq!(stage.read(stage.world.east(), &format!("/api/v1/namespaces/{typo}")).await, None);
}

/// Case 41, D14: twenty components into one new namespace create it once, on each cluster.
#[tokio::test]
async fn a_missing_namespace_is_created_exactly_once_when_that_is_wanted() {
    let stage = Stage::set("ns-created").await;
    let new = format!("{}-new", stage.namespace);
    let mut draft = Draft::on(&["east", "west"]).options(|options| options.create_namespaces = true);
    for number in 0..20 {
        let name = format!("map-{number}");
        draft = draft.apply(&name, &[], &config_map(&new, &name));
    }

    let outcome = stage.run(&draft).await;

    assert_eq!(outcome.summary.counts["succeeded"], 20, "{:?}", outcome.summary.rows);
    for proxy in [&stage.east, &stage.west] {
        assert_eq!(proxy.count(|seen| seen.is_write() && seen.path == format!("/api/v1/namespaces/{new}")), 1);
    }
    assert!(stage.read(stage.world.west(), &format!("/api/v1/namespaces/{new}/configmaps/map-19")).await.is_some());
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

/// Case 42: what is refused because its namespace is on the way out is written when the namespace is there again.
#[tokio::test]
async fn a_namespace_that_is_being_terminated_is_waited_for() {
    let stage = Stage::set("ns-terminating").await;
    let terminating = Canned::refusal(
        403,
        "Forbidden",
        "configmaps \"map\" is forbidden: unable to create new content in namespace x because it is being terminated",
        json!({"name": "map", "kind": "configmaps", "causes": [
            {"reason": "NamespaceTerminating", "message": "namespace x is being terminated", "field": "metadata.namespace"},
        ]}),
    );
    let gone =
        Canned::refusal(404, "NotFound", "namespaces \"x\" not found", json!({"name": "x", "kind": "namespaces"}));
    stage.east.add(Rule::patch("/map", Fault::Answer(terminating)).times(5));
    stage.east.add(Rule::patch("/map", Fault::Answer(gone)).times(2));
    let draft = Draft::on(&["east"]).apply("namespace", &[], &namespace(&stage.namespace)).apply(
        "map",
        &["namespace"],
        &stage.config_map("map"),
    );

    let outcome = stage.run(&draft).await;

    assert_applied(&outcome, "map", Change::Created);
}

/// Case 42: a namespace that stays on its way out is a failure that says so; what depends on it is withheld, and what does
/// not is told what is wrong.
#[tokio::test]
async fn a_namespace_that_stays_terminating_fails_what_needs_it() {
    let stage = Stage::set("ns-stuck").await;
    let stuck = format!("{}-stuck", stage.namespace);
    let mut object = namespace(&stuck);
    object["spec"] = json!({"finalizers": ["kubernetes"]});
    stage.create(stage.world.east(), "/api/v1/namespaces", &object).await;
    // Nobody finalises namespaces here, so it stays.
    stage.delete(stage.world.east(), &format!("/api/v1/namespaces/{stuck}")).await;
    let draft = Draft::on(&["east"])
        .step_timeout(3_000)
        .apply("namespace", &[], &namespace(&stuck))
        .apply("dependent", &["namespace"], &config_map(&stuck, "dependent"))
        .apply("undeclared", &[], &config_map(&stuck, "undeclared"));

    let outcome = stage.run(&draft).await;

    assert_failed(&outcome, "namespace", "BEING_DELETED", &["being deleted", &stuck]);
    assert_eq!(outcome.outcomes()["dependent"], Outcome::Withheld);
    assert_failed(&outcome, "undeclared", "NAMESPACE_TERMINATING", &[&stuck, "being terminated"]);
}

/// Case 42: a plain refusal of rights is never tried again.
#[tokio::test]
async fn missing_rights_are_not_tried_again() {
    let stage = Stage::set("no-rights").await;
    let forbidden = Canned::refusal(403, "Forbidden", "configmaps \"map\" is forbidden: no", Value::Null);
    stage.east.add(Rule::patch("/map", Fault::Answer(forbidden)));
    let draft = Draft::on(&["east"]).apply("map", &[], &stage.config_map("map"));

    let outcome = stage.run(&draft).await;

    assert_failed(&outcome, "map", "FORBIDDEN", &["is forbidden"]);
    assert_eq!(stage.east.count(Seen::is_write), 1);
}

/// Case 44: each of the four limits of size ends in a sentence, and what is below them is applied.
#[tokio::test]
async fn what_is_too_large_is_told_and_what_is_not_is_applied() {
    let stage = Stage::set("large").await;
    let map = |name: &str, bytes: usize| {
        let mut map = stage.config_map(name);
        map["data"]["key"] = json!("x".repeat(bytes));
        map
    };
    let group = format!("{}.example.com", stage.namespace);
    let description = "x".repeat(900 * 1024);
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {
                "openAPIV3Schema": {"type": "object", "description": description},
            }}],
        },
    });
    let draft = Draft::on(&["east"])
        .apply("definition", &[], &definition)
        .apply("fits", &[], &map("fits", 900 * 1024))
        .apply("object", &[], &map("object", 1_200 * 1024))
        .apply("database", &[], &map("database", 1_600 * 1024))
        .apply("request", &[], &map("request", 4 * 1024 * 1024));

    let outcome = stage.run(&draft).await;

    assert_applied(&outcome, "definition", Change::Created);
    assert_applied(&outcome, "fits", Change::Created);
    assert_failed(&outcome, "object", "INVALID", &["422", "1048576 bytes"]);
    for (name, reason) in [("object", "INVALID"), ("database", "INVALID"), ("request", "TOO_LARGE")] {
        assert_eq!(outcome.outcomes()[name], Outcome::Failed);
        let failure = failure(&outcome, name, "east");
        assert!(failure.reason == reason && !failure.retryable, "{name}: {failure:?}");
        assert!(failure.message.len() < 5_000);
        assert_eq!(outcome.target(name, "east").unwrap().attempts, 1);
    }
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.{group}");
    let stored = stage.read(stage.world.east(), &path).await.unwrap();
    assert_eq!(annotations(&stored), ["switchyard.dev/applied"]);
}

/// The names of an object's annotations.
fn annotations(object: &Value) -> Vec<&String> {
    object["metadata"]["annotations"].as_object().map_or_else(Vec::new, |annotations| annotations.keys().collect())
}

/// Case 45: a key that is dropped from a Secret goes (the planner has turned `stringData` into `data`).
#[tokio::test]
async fn a_key_that_is_dropped_from_a_secret_goes() {
    let stage = Stage::set("secret-keys").await;
    let secret = |data: Value| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "secret", "namespace": stage.namespace},
            "data": data,
        })
    };
    let design = Draft::on(&["east"]);

    let both = secret(json!({"a": "YQ==", "b": "Yg=="}));
    assert_applied(&stage.run(&design.clone().apply("secret", &[], &both)).await, "secret", Change::Created);
    let one = secret(json!({"a": "YQ=="}));
    assert_applied(&stage.run(&design.apply("secret", &[], &one)).await, "secret", Change::Configured);

    let live = stage.object("v1/secrets", "secret").await.unwrap();
    assert_eq!(live["data"], json!({"a": "YQ=="}));
    // Case 146: server-side apply copies nothing into annotations.
    assert_eq!(annotations(&live), ["switchyard.dev/applied"]);
}

/// D9, D16: an object that is on its way out while it is applied will be gone, which is no success.
#[tokio::test]
async fn an_object_that_is_on_its_way_out_is_no_success() {
    let stage = Stage::set("on-its-way-out").await;
    let mut kept = stage.config_map("kept");
    kept["metadata"]["finalizers"] = json!(["example.com/kept"]);
    stage.create(stage.world.east(), &stage.path("v1/configmaps", ""), &kept).await;
    stage.delete(stage.world.east(), &stage.path("v1/configmaps", "kept")).await;
    let draft = Draft::on(&["east"]).step_timeout(3_000).apply("kept", &[], &stage.config_map("kept"));

    let outcome = stage.run(&draft).await;

    assert_failed(&outcome, "kept", "BEING_DELETED", &["ConfigMap kept", "east", "being deleted"]);
}

/// Case 295: what client-side kubectl wrote stays when the design does not have it, and that is said.
#[tokio::test]
async fn fields_that_kubectl_apply_left_behind_are_named() {
    let stage = Stage::set("left-by-kubectl").await;
    let mut before = stage.config_map("map");
    before["data"]["old"] = json!("x");
    let path =
        format!("{}?fieldManager=kubectl-client-side-apply", stage.path("v1/configmaps", "").trim_end_matches('/'));
    stage.create(stage.world.east(), &path, &before).await;
    let outcome = stage.run(&Draft::on(&["east"]).apply("map", &[], &stage.config_map("map"))).await;
    assert_applied(&outcome, "map", Change::Configured);
    let warnings = &outcome.target("map", "east").unwrap().warnings;
    let named = |it: &String| it.contains("kubectl-client-side-apply") && it.contains("data.old");
    assert!(warnings.iter().any(named), "{warnings:?}");
}

/// Case 295: with `force_conflicts` what client-side kubectl wrote is taken over, so that what the design does not have goes, and
/// nothing of others does.
#[tokio::test]
async fn fields_that_kubectl_apply_left_behind_go_when_conflicts_are_forced() {
    let stage = Stage::set("taken-from-kubectl").await;
    let mut before = stage.config_map("map");
    before["data"]["old"] = json!("x");
    before["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": before.to_string()});
    let path =
        |manager: &str| format!("{}?fieldManager={manager}", stage.path("v1/configmaps", "").trim_end_matches('/'));
    stage.create(stage.world.east(), &path("kubectl-client-side-apply"), &before).await;
    let mut of_another = stage.config_map("map");
    of_another["data"] = json!({"another": "y"});
    stage.apply_as("another", &stage.path("v1/configmaps", "map"), &of_another).await;
    let draft = Draft::on(&["east"]).options(|options| options.force_conflicts = true).apply(
        "map",
        &[],
        &stage.config_map("map"),
    );

    let asked = stage.run(&draft.clone().dry_run()).await;
    let warnings = &asked.target("map", "east").unwrap().warnings;
    assert!(warnings.iter().any(|it| it.contains("would be taken over and removed: data.old")), "{warnings:?}");

    let outcome = stage.run(&draft).await;

    assert_applied(&outcome, "map", Change::Configured);
    let warnings = &outcome.target("map", "east").unwrap().warnings;
    assert!(warnings.iter().any(|it| it.contains("taken over and removed: data.old")), "{warnings:?}");
    let object = stage.object("v1/configmaps", "map").await.unwrap();
    assert_eq!(object["data"], json!({"key": "value", "another": "y"}));
    assert_eq!(object["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"], Value::Null);
    let managers: Vec<_> =
        object["metadata"]["managedFields"].as_array().unwrap().iter().map(|it| &it["manager"]).collect();
    assert!(managers.len() == 2 && managers.iter().all(|it| *it != "kubectl-client-side-apply"), "{managers:?}");
    let again = stage.run(&draft).await;
    assert_applied(&again, "map", Change::Unchanged);
    assert!(again.target("map", "east").unwrap().warnings.is_empty());
}

/// Case 315: what a controller writes at the same time does not make *configured* of what did not change.
#[tokio::test]
async fn an_object_that_a_controller_wrote_meanwhile_is_unchanged() {
    let stage = Stage::set("written-meanwhile").await;
    let draft = Draft::on(&["east"]).apply("web", &[], &deployment(&stage, "web", &json!({})));
    assert_applied(&stage.run(&draft).await, "web", Change::Created);
    stage.east.forget();
    let gate = Gate::shut();
    stage.east.add(Rule::patch("/web", Fault::Hold(gate.clone())));
    let controller = async {
        stage.east.wait_for(1, |seen| seen.is_apply_of("/web")).await.unwrap();
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "annotations": {"deployment.kubernetes.io/revision": "1"}},
        });
        stage.apply_as("controller", &stage.path("apps/v1/deployments", "web"), &object).await;
        gate.open();
    };

    let (outcome, ()) = tokio::join!(stage.run(&draft), controller);

    assert_applied(&outcome, "web", Change::Unchanged);
    let changed = draft.apply("second", &["web"], &stage.config_map("second"));
    assert_applied(&stage.run(&changed).await, "web", Change::Unchanged);
}

/// Case 282: an API server answers 500 to values that it cannot make an object of. It would do so again.
#[tokio::test]
async fn values_of_which_no_object_can_be_made_are_refused_at_once() {
    let stage = Stage::set("values").await;
    let containers = json!([{"name": "main", "image": "nginx", "resources": {"limits": {"memory": "1Gb"}}}]);
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}});
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login", "namespace": stage.namespace},
        "data": {"password": "not base64!"},
    });
    let draft = Draft::on(&["east"])
        .apply("web", &[], &deployment(&stage, "web", &json!({"template": template})))
        .apply("login", &[], &secret);

    let outcome = stage.run(&draft).await;

    for name in ["web", "login"] {
        let failure = failure(&outcome, name, "east");
        assert!(failure.reason == "INVALID" && !failure.retryable, "{name}: {failure:?}");
        assert_eq!(outcome.target(name, "east").unwrap().attempts, 1, "{name}");
    }
}
