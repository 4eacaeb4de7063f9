//! Group A: what is not ours and would be lost along with a namespace or a definition (D19, cases 201–204, 206).

use std::sync::Arc;

use futures::{StreamExt, stream};
use http::Method;
use serde_json::{Value, json};
use switchyard_proto::v1::Change;
use switchyard_tests::{
    client::Outcome,
    fault::{Canned, Fault, Rule},
    plan::Draft,
};

use super::stage::{Stage, assert_failed, config_map, eventually};

const DESIGN: &str = "a-design-with-contents";

fn marked(mut object: Value) -> Value {
    object["metadata"]["labels"] = json!({"design.meshery.io/id": DESIGN});
    object
}

fn namespace(name: &str) -> Value {
    marked(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
}

fn definition(group: &str, plural: &str, version: &Value) -> Value {
    let kind = format!("{}{}", plural[..1].to_uppercase(), &plural[1..plural.len() - 1]);
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let mut version = version.clone();
    version["schema"] = schema;
    version["storage"] = json!(true);
    marked(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced", "versions": [version],
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind},
        },
    }))
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A namespace of its own that carries the design's mark, and the plan that takes it down.
async fn with_namespace(stage: &Stage) -> (String, Draft) {
    let name = format!("{}-own", stage.namespace);
    stage.create(stage.world.east(), "/api/v1/namespaces", &namespace(&name)).await;
    let down = Draft::on(&["east"]).design(DESIGN).undeploy().apply("namespace", &[], &namespace(&name));
    (name, down.step_timeout(20_000))
}

async fn create_config_map(stage: &Stage, namespace: &str, object: &Value) -> Value {
    stage.create(stage.world.east(), &format!("/api/v1/namespaces/{namespace}/configmaps"), object).await
}

/// Waits until the API server tells of a kind wherever it is asked.
async fn served(stage: &Stage, group: &str, plural: &str) {
    eventually(&format!("{plural} to be served"), async || {
        let request = http::Request::get("/apis")
            .header("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
            .body(Vec::new())
            .unwrap();
        let all = stage.world.east().client().await.unwrap().request::<Value>(request).await.unwrap();
        let groups = all["items"].as_array().unwrap().iter();
        let versions = groups.filter(|it| it["metadata"]["name"] == group).flat_map(|it| it["versions"].as_array());
        versions.flatten().flat_map(|it| it["resources"].as_array()).flatten().any(|it| it["resource"] == plural)
    })
    .await;
}

fn deletes(stage: &Stage) -> usize {
    stage.east.count(|seen| seen.method == Method::DELETE)
}

#[track_caller]
fn assert_kept(stage: &Stage, outcome: &Outcome, component: &str, texts: &[&str]) {
    assert_failed(outcome, component, "FOREIGN_CONTENTS", texts);
    assert_eq!(deletes(stage), 0);
}

/// Case 201: what lies behind the first page counts, also when the list has to begin anew (410).
#[tokio::test]
async fn a_foreign_object_behind_the_first_page_keeps_a_namespace() {
    let stage = Stage::set("pages").await;
    let (name, down) = with_namespace(&stage).await;
    stream::iter(0..505)
        .map(|ix| marked(config_map(&name, &format!("own-{ix}"))))
        .for_each_concurrent(16, |object| {
            let (stage, name) = (&stage, &name);
            async move {
                create_config_map(stage, name, &object).await;
            }
        })
        .await;
    create_config_map(&stage, &name, &config_map(&name, "zz-other")).await;
    let texts = ["it holds 1 object outside the design", "configmaps", "/zz-other"];
    assert_kept(&stage, &stage.run(&down).await, "namespace", &texts);

    let list = format!("/api/v1/namespaces/{name}/configmaps");
    let pages = || stage.east.count(|seen| seen.path == list);
    assert_eq!(pages(), 2);
    let expired = Canned::refusal(410, "Expired", "The provided continue parameter is too old", Value::Null);
    stage.east.add(Rule::get(&list, Fault::Answer(expired)).whole().after(1).times(1));
    assert_kept(&stage, &stage.run(&down).await, "namespace", &texts);
    assert_eq!(pages(), 6, "the first page, 410, both pages again");
}

/// Case 202: a kind that only another version of its group serves is looked at too.
#[tokio::test]
async fn a_kind_outside_its_groups_preferred_version_keeps_a_namespace() {
    let stage = Stage::set("versions").await;
    let (name, down) = with_namespace(&stage).await;
    let group = format!("{}.example.com", stage.namespace);
    let east = stage.world.east();
    for (plural, version) in [("moderns", "v1"), ("legacies", "v1alpha1")] {
        let object = definition(&group, plural, &json!({"name": version, "served": true}));
        stage.create(east, DEFINITIONS, &object).await;
        served(&stage, &group, plural).await;
    }
    let legacy = json!({"apiVersion": format!("{group}/v1alpha1"), "kind": "Legacie", "metadata": {"name": "filter"}});
    stage.create(east, &format!("/apis/{group}/v1alpha1/namespaces/{name}/legacies"), &legacy).await;
    assert_kept(&stage, &stage.run(&down).await, "namespace", &["legacies", "/filter"]);
}

fn owned_by(mut object: Value, owner: &Value) -> Value {
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"],
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
    }]);
    object
}

/// Case 203: of a definition's kind, objects that others own count: their owners are no part of what goes.
#[tokio::test]
async fn owned_objects_keep_a_definition() {
    let stage = Stage::set("owned-kind").await;
    let east = stage.world.east();
    let group = format!("{}.example.com", stage.namespace);
    let widgets = definition(&group, "widgets", &json!({"name": "v1", "served": true}));
    stage.create(east, DEFINITIONS, &widgets).await;
    served(&stage, &group, "widgets").await;
    let mut owner = create_config_map(&stage, &stage.namespace, &stage.config_map("theirs")).await;
    (owner["apiVersion"], owner["kind"]) = (json!("v1"), json!("ConfigMap"));
    let widget = json!({"apiVersion": format!("{group}/v1"), "kind": "Widget", "metadata": {"name": "certificate"}});
    let path = format!("/apis/{group}/v1/namespaces/{}/widgets", stage.namespace);
    stage.create(east, &path, &owned_by(widget, &owner)).await;
    let down = Draft::on(&["east"]).design(DESIGN).undeploy().apply("definition", &[], &widgets);
    assert_kept(&stage, &stage.run(&down).await, "definition", &["1 object", "widgets", "/certificate"]);
}

/// Case 203: an owner outside the namespace goes nowhere, so what it owns would be lost.
#[tokio::test]
async fn an_object_whose_owner_lies_elsewhere_keeps_a_namespace() {
    let stage = Stage::set("owned-from-afar").await;
    let (name, down) = with_namespace(&stage).await;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": format!("{name}-owner")}, "rules": [],
    });
    let role = stage.create(stage.world.east(), "/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await;
    create_config_map(&stage, &name, &owned_by(config_map(&name, "report"), &role)).await;
    assert_kept(&stage, &stage.run(&down).await, "namespace", &["configmaps", "/report"]);
}

/// What the garbage collector is about to remove is waited for, and is neither lost nor in the way.
#[tokio::test]
async fn what_lost_its_owner_is_waited_for() {
    let stage = Stage::set("orphans").await;
    let (name, down) = with_namespace(&stage).await;
    let gone = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "gone", "uid": "11111111-2222-3333-4444-555555555555"},
    });
    create_config_map(&stage, &name, &owned_by(config_map(&name, "orphan"), &gone)).await;
    let path = format!("/api/v1/namespaces/{name}/configmaps");
    // Nobody collects it here.
    let kept = stage.run(&down.clone().step_timeout(15_000)).await;
    assert_kept(&stage, &kept, "namespace", &["configmaps", "/orphan"]);

    stage.east.forget();
    let collected = async {
        stage.east.wait_for(2, |seen| seen.path == path).await.unwrap();
        stage.delete(stage.world.east(), &format!("{path}/orphan")).await;
    };
    let down = down.step_timeout(8_000);
    tokio::join!(stage.run(&down), collected);
    assert_eq!(deletes(&stage), 1, "the namespace is told to go");
}

/// Case 204: a page that somebody made up is no empty list, and a group that does not answer is not empty.
#[tokio::test]
async fn what_cannot_be_listed_is_not_taken_for_empty() {
    let stage = Stage::set("unlisted").await;
    let (name, down) = with_namespace(&stage).await;
    let down = down.step_timeout(6_000);
    let page = || Canned::status(404).text("<html>not found</html>");
    let welcome = || Canned::status(200).text("{}");
    let stale: Arc<dyn Fn(&mut Canned) + Send + Sync> = Arc::new(|answer: &mut Canned| {
        let text = String::from_utf8_lossy(answer.body()).replacen("\"Current\"", "\"Stale\"", 1);
        *answer = answer.clone().text(text);
    });
    let faults = [
        Rule::get(&format!("/namespaces/{name}/configmaps"), Fault::Answer(page())),
        Rule::get(&format!("/namespaces/{name}/configmaps"), Fault::Answer(welcome())),
        Rule::get("/apis", Fault::Alter(stale)).whole(),
    ];
    for fault in faults {
        stage.east.clear();
        stage.east.add(fault);
        let outcome = stage.run(&down).await;
        assert_failed(&outcome, "namespace", "API_UNAVAILABLE", &["is kept", "cannot be told"]);
        assert_eq!(deletes(&stage), 0);
    }
}

/// Case 204: a definition that serves no version may hold objects that nobody can list.
#[tokio::test]
async fn a_definition_that_serves_no_version_is_kept() {
    let stage = Stage::set("unserved").await;
    let east = stage.world.east();
    let group = format!("{}.example.com", stage.namespace);
    let mut object = definition(&group, "widgets", &json!({"name": "v1", "served": true}));
    stage.create(east, DEFINITIONS, &object).await;
    served(&stage, &group, "widgets").await;
    object["spec"]["versions"][0]["served"] = json!(false);
    stage.seize_as("somebody", &format!("{DEFINITIONS}/widgets.{group}"), &object).await;
    let down = Draft::on(&["east"]).design(DESIGN).undeploy().step_timeout(6_000).apply("definition", &[], &object);
    let outcome = stage.run(&down).await;
    assert_failed(&outcome, "definition", "API_UNAVAILABLE", &["is kept", "serves no version"]);
    assert_eq!(deletes(&stage), 0);
    let forced = stage.run(&down.options(|options| options.delete_foreign = true)).await;
    assert_eq!(forced.target("definition", "east").unwrap().change(), Change::Removed);
}

/// Case 206: what can be listed and not deleted is a view of something else, and in nobody's way.
#[tokio::test]
async fn kinds_that_nobody_can_delete_are_in_nobodys_way() {
    let stage = Stage::set("views").await;
    let (_, down) = with_namespace(&stage).await;
    let alter: Arc<dyn Fn(&mut Canned) + Send + Sync> = Arc::new(|answer: &mut Canned| {
        let mut all: Value = serde_json::from_slice(answer.body()).unwrap();
        let view = json!({
            "resource": "packagemanifests", "scope": "Namespaced", "verbs": ["get", "list"],
            "responseKind": {"group": "packages.example", "version": "v1", "kind": "PackageManifest"},
        });
        all["items"].as_array_mut().unwrap().push(json!({
            "metadata": {"name": "packages.example"},
            "versions": [{"version": "v1", "freshness": "Current", "resources": [view]}],
        }));
        *answer = answer.clone().text(all.to_string());
    });
    stage.east.add(Rule::get("/apis", Fault::Alter(alter)).whole());
    let list = json!({
        "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {},
        "items": [{"metadata": {"name": "catalog"}}],
    });
    stage.east.add(Rule::get("/apis/packages.example", Fault::Answer(Canned::status(200).json(&list))));
    stage.run(&down.step_timeout(3_000)).await;
    assert_eq!(deletes(&stage), 1, "the namespace is told to go");
}
