//! L3, L4: what a list proves to be as asked is not written.

use http::Method;
use serde_json::{Value, json};
use switchyard_proto::v1::{Change, Evidence, Existing, Outcome, Verdict};
use switchyard_tests::{
    client,
    fault::{Canned, Fault, Rule, Seen},
    plan::Draft,
};

use super::stage::{Stage, assert_applied};

fn is_patch(seen: &Seen) -> bool {
    seen.method == Method::PATCH && !seen.path.contains("/leases/")
}

/// A list of the design's objects of a kind.
fn is_list(seen: &Seen) -> bool {
    seen.method == Method::GET && seen.query.contains("labelSelector=design%2Emeshery%2Eio%2Fid%3D")
}

/// The objects of one design, which the API server sees marked as the planner marks them.
struct Deployed {
    stage: Stage,
    id: String,
    objects: Vec<Value>,
    version: &'static str,
}

impl Deployed {
    async fn set(test: &str, objects: impl Fn(&Stage) -> Vec<Value>) -> Self {
        let stage = Stage::set_with(test, &[]).await;
        let (id, objects) = (format!("{}-design", stage.namespace), objects(&stage));
        Self { stage, id, objects, version: "0.0.1" }
    }

    /// Deployed for the first time: nothing is listed, everything is written.
    async fn first(test: &str, objects: impl Fn(&Stage) -> Vec<Value>) -> Self {
        let deployed = Self::set(test, objects).await;
        let outcome = deployed.run(deployed.draft()).await;
        assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.summary);
        let east = &deployed.stage.east;
        assert_eq!((east.count(is_patch), east.count(is_list)), (deployed.objects.len(), 0));
        assert!(outcome.targets().all(|target| target.evidence() == Evidence::Written));
        deployed
    }

    fn draft(&self) -> Draft {
        let add = |draft: Draft, (ix, object): (usize, &Value)| {
            let mut object = object.clone();
            object["metadata"]["labels"]["design.meshery.io/id"] = json!(self.id);
            object["metadata"]["annotations"]["design.meshery.io/version"] = json!(self.version);
            draft.apply(&format!("component-{ix}"), &[], &object)
        };
        self.objects.iter().enumerate().fold(Draft::on(&["east"]).design(&self.id), add)
    }

    /// Runs with nothing counted before.
    async fn run(&self, draft: Draft) -> client::Outcome {
        self.stage.east.forget();
        self.stage.run(&draft).await
    }

    /// Deploys again, and answers how many lists and PATCHes that took.
    async fn again(&self) -> (client::Outcome, usize, usize) {
        let outcome = self.run(self.draft()).await;
        assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.summary);
        let east = &self.stage.east;
        (outcome, east.count(is_list), east.count(is_patch))
    }
}

fn maps(number: usize) -> impl Fn(&Stage) -> Vec<Value> {
    move |stage| (0..number).map(|ix| stage.config_map(&format!("map-{ix}"))).collect()
}

#[track_caller]
fn assert_left(outcome: &client::Outcome, component: &str) {
    assert_applied(outcome, component, Change::Unchanged);
    let target = outcome.target(component, "east").unwrap();
    assert_eq!((target.evidence(), target.attempts), (Evidence::Listed, 0), "{target:?}");
    let object = target.object.as_ref().unwrap();
    assert!(!object.uid.is_empty() && !object.resource_version.is_empty() && !object.namespace.is_empty());
}

/// 200 objects: one page.
#[tokio::test]
async fn design_that_is_as_it_was_costs_lists_and_no_write_and_one_change_costs_one() {
    let mut deployed = Deployed::first("two-hundred", maps(200)).await;
    let (outcome, lists, patches) = deployed.again().await;
    assert_eq!((lists, patches), (1, 0));
    (0..200).for_each(|ix| assert_left(&outcome, &format!("component-{ix}")));
    // Beside the lists: what proves the cluster workable, one question for the kinds' schemas, and the Lease.
    let seen = deployed.stage.east.seen();
    let of_a_run = |seen: &Seen| {
        let asked = ["/version", "/api", "/api/v1", "/api/v1/namespaces", "/openapi/v3"];
        asked.contains(&seen.path.as_str()) || seen.path.contains("/leases/")
    };
    let rest: Vec<_> = seen.iter().filter(|seen| !is_list(seen) && !of_a_run(seen)).collect();
    assert!(rest.is_empty() && seen.len() <= 8, "{rest:?}");

    deployed.objects[77]["data"]["key"] = json!("changed");
    let (outcome, lists, patches) = deployed.again().await;
    assert_eq!((lists, patches), (1, 1));
    assert_applied(&outcome, "component-77", Change::Configured);
    assert_eq!(outcome.target("component-77", "east").unwrap().evidence(), Evidence::Written);
    assert_left(&outcome, "component-78");
}

#[tokio::test]
async fn more_than_a_page_is_listed_to_the_last() {
    let deployed = Deployed::first("pages", maps(501)).await;
    let (outcome, lists, patches) = deployed.again().await;
    assert_eq!((lists, patches), (2, 0));
    assert_left(&outcome, "component-500");
    let lists: Vec<_> = deployed.stage.east.seen().into_iter().filter(is_list).collect();
    assert!(lists.iter().all(|list| list.query.contains("limit=500") && !list.query.contains("resourceVersion")));
}

/// D11: the version says which version of the design last changed the object.
#[tokio::test]
async fn another_version_of_the_design_is_no_reason_to_write() {
    let mut deployed = Deployed::first("next-version", maps(3)).await;
    deployed.version = "0.0.2";
    deployed.objects[1]["data"]["key"] = json!("changed");
    let (outcome, _, patches) = deployed.again().await;
    assert_eq!(patches, 1);
    assert_left(&outcome, "component-0");
    assert_applied(&outcome, "component-1", Change::Configured);
    let mut versions = Vec::new();
    for name in ["map-0", "map-1"] {
        let object = deployed.stage.object("v1/configmaps", name).await.unwrap();
        versions.push(object["metadata"]["annotations"]["design.meshery.io/version"].clone());
    }
    assert_eq!(versions, ["0.0.1", "0.0.2"]);
}

#[tokio::test]
async fn what_somebody_edited_is_written_and_nothing_else() {
    let deployed = Deployed::first("edited", maps(3)).await;
    let stage = &deployed.stage;
    let mut edited = stage.object("v1/configmaps", "map-1").await.unwrap();
    edited["metadata"]["managedFields"] = Value::Null;
    edited["data"]["key"] = json!("by hand");
    edited = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map-1"}, "data": edited["data"]});
    stage.seize_as("kubectl-edit", &stage.path("v1/configmaps", "map-1"), &edited).await;
    let outcome = deployed.run(deployed.draft()).await;
    assert_eq!(stage.east.count(is_patch), 1);
    assert_left(&outcome, "component-0");
    assert_eq!(outcome.target("component-1", "east").unwrap().error.as_ref().unwrap().reason, "CONFLICT");

    let forced = deployed.run(deployed.draft().options(|options| options.force_conflicts = true)).await;
    assert_applied(&forced, "component-1", Change::Configured);
    let repaired = stage.object("v1/configmaps", "map-1").await.unwrap();
    assert_eq!(repaired["data"]["key"], "value");
    assert_eq!(deployed.again().await.2, 0);
}

#[tokio::test]
async fn what_is_gone_is_made_anew() {
    let deployed = Deployed::first("gone", maps(2)).await;
    let stage = &deployed.stage;
    stage.delete(stage.world.east(), &stage.path("v1/configmaps", "map-0")).await;
    let (outcome, lists, patches) = deployed.again().await;
    assert_eq!((lists, patches), (1, 1));
    assert_applied(&outcome, "component-0", Change::Created);
    assert_left(&outcome, "component-1");
}

#[tokio::test]
async fn everything_is_written_when_that_is_asked_for() {
    let deployed = Deployed::first("write-always", maps(3)).await;
    let outcome = deployed.run(deployed.draft().options(|options| options.write_always = true)).await;
    let east = &deployed.stage.east;
    // Listed for left-overs alone (L6).
    assert_eq!((east.count(is_list), east.count(is_patch)), (1, 3));
    assert_applied(&outcome, "component-0", Change::Unchanged);
    assert_eq!(outcome.target("component-0", "east").unwrap().evidence(), Evidence::Written);
    assert_eq!(deployed.again().await.2, 0);
}

/// Where the credentials may list a namespace and not the cluster, that is enough; where they may list nothing, all is as before.
#[tokio::test]
async fn credentials_that_may_not_list_cost_writes_and_no_failure() {
    let deployed = Deployed::first("no-list", maps(3)).await;
    let east = &deployed.stage.east;
    let forbidden = || Fault::Answer(Canned::refusal(403, "Forbidden", "configmaps is forbidden", Value::Null));
    east.add(Rule::get("/api/v1/configmaps", forbidden()).whole());
    let (outcome, lists, patches) = deployed.again().await;
    assert_eq!((lists, patches), (2, 0));
    assert_left(&outcome, "component-0");

    let in_namespace = format!("/api/v1/namespaces/{}/configmaps", deployed.stage.namespace);
    east.add(Rule::get(&in_namespace, forbidden()).whole());
    let (outcome, lists, patches) = deployed.again().await;
    assert_eq!((lists, patches), (2, 3));
    assert_applied(&outcome, "component-0", Change::Unchanged);
}

/// What a list could not show is written; it is never taken for what is not there.
#[tokio::test]
async fn lists_that_fail_cost_writes_and_no_failure() {
    let deployed = Deployed::first("lists-fail", maps(3)).await;
    let east = &deployed.stage.east;
    let html = Canned::status(200).text("<html>welcome</html>");
    for answer in [Canned::status(503), Canned::status(404), html] {
        east.add(Rule::get("/api/v1/configmaps", Fault::Answer(answer)).whole().times(1));
        let (outcome, _, patches) = deployed.again().await;
        assert_eq!(patches, 3);
        assert_applied(&outcome, "component-0", Change::Unchanged);
    }
    assert_eq!(deployed.again().await.2, 0);
}

/// Condition 7: the controllers of what was just changed may have touched what comes after it.
#[tokio::test]
async fn what_depends_on_something_that_was_changed_is_written() {
    let mut deployed = Deployed::set("depends", maps(4)).await;
    let drafts = |deployed: &Deployed| {
        let add = |draft: Draft, (ix, object): (usize, &Value)| {
            let mut object = object.clone();
            object["metadata"]["labels"]["design.meshery.io/id"] = json!(deployed.id);
            let before: &[&str] = match ix {
                1 => &["component-0"],
                _ => &[],
            };
            let draft = draft.apply(&format!("component-{ix}"), before, &object);
            if ix == 2 { draft.runs_after(&["component-0"]) } else { draft }
        };
        deployed.objects.iter().enumerate().fold(Draft::on(&["east"]).design(&deployed.id), add)
    };
    deployed.run(drafts(&deployed)).await;
    deployed.objects[0]["data"]["key"] = json!("changed");
    let outcome = deployed.run(drafts(&deployed)).await;
    assert_eq!(deployed.stage.east.count(is_patch), 3);
    assert_applied(&outcome, "component-0", Change::Configured);
    for component in ["component-1", "component-2"] {
        assert_applied(&outcome, component, Change::Unchanged);
        assert_eq!(outcome.target(component, "east").unwrap().evidence(), Evidence::Written);
    }
    assert_left(&outcome, "component-3");
    deployed.run(drafts(&deployed)).await;
    assert_eq!(deployed.stage.east.count(is_patch), 0);
}

/// L1: what a list by the mark shows has the mark, and need not be read to be sure of that.
#[tokio::test]
async fn objects_that_are_listed_are_not_read_for_their_mark() {
    let mut deployed = Deployed::first("marked", maps(3)).await;
    deployed.objects[0]["data"]["key"] = json!("changed");
    let draft = deployed.draft().options(|options| options.set_existing(Existing::RefuseUnmarked));
    let outcome = deployed.run(draft).await;
    assert_eq!(outcome.verdict(), Verdict::Succeeded);
    assert_eq!(deployed.stage.east.count(|seen| seen.method == Method::GET && seen.path.contains("/map-")), 0);
}

/// A definition and its objects, twice: the second time nothing is written, and the definition is seen to be served.
#[tokio::test]
async fn definition_of_the_design_and_its_objects_are_left_as_they_are() {
    let group = format!("g{}.example", &uuid::Uuid::new_v4().simple().to_string()[..8]);
    let deployed = Deployed::set("definition", |stage| {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}});
        vec![
            json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": format!("gadgets.{group}")},
                "spec": {
                    "group": group, "scope": "Namespaced", "names": {"kind": "Gadget", "plural": "gadgets"},
                    "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
                },
            }),
            json!({
                "apiVersion": format!("{group}/v1"), "kind": "Gadget",
                "metadata": {"name": "gadget", "namespace": stage.namespace}, "spec": {"size": 1},
            }),
        ]
    })
    .await;
    let draft = || deployed.draft().runs_after(&["component-0"]);
    let outcome = deployed.run(draft()).await;
    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.summary);
    let outcome = deployed.run(draft()).await;
    let east = &deployed.stage.east;
    assert_eq!((east.count(is_list), east.count(is_patch)), (2, 0), "{:#?}", outcome.results);
    for component in ["component-0", "component-1"] {
        assert_applied(&outcome, component, Change::Unchanged);
        assert_eq!(outcome.target(component, "east").unwrap().evidence(), Evidence::Listed);
    }
    assert!(east.count(|seen| seen.path.contains("/customresourcedefinitions/")) > 0);
}

/// L4: the annotation is the executor's alone.
#[tokio::test]
async fn annotation_that_a_plan_brings_along_does_not_get_through() {
    let mut deployed = Deployed::set("forged", maps(1)).await;
    deployed.objects[0]["metadata"]["annotations"]["switchyard.dev/applied"] = json!("forged");
    let outcome = deployed.run(deployed.draft()).await;
    assert_eq!(outcome.outcomes()["component-0"], Outcome::Succeeded);
    let object = deployed.stage.object("v1/configmaps", "map-0").await.unwrap();
    let applied = object["metadata"]["annotations"]["switchyard.dev/applied"].as_str().unwrap();
    assert!(applied.len() == 32 && applied.chars().all(|c| c.is_ascii_hexdigit()), "{applied}");
    assert_eq!(deployed.again().await.2, 0);
}
