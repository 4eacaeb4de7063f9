//! Group 6: what is taken for gone, and what is not (S20, S21, D18, D23).

use http::Method;
use serde_json::{Value, json};
use switchyard_proto::v1::{Change, Outcome, Verdict};
use switchyard_tests::{
    fault::{Canned, Fault, Gate, Loss, Rule, Seen},
    plan::Draft,
};

use super::stage::{Stage, assert_failed, check, eventually, failure, within};

const DESIGN: &str = "a-design-that-goes";

fn marked(stage: &Stage, name: &str) -> Value {
    let mut object = stage.config_map(name);
    object["metadata"]["labels"] = json!({"design.meshery.io/id": DESIGN});
    object
}

/// Puts a chain of maps on the clusters, each needed by the next, and answers with the plan that takes it down again.
async fn up(stage: &Stage, clusters: &[&str], names: &[&str]) -> Draft {
    let deploy = names.iter().fold(Draft::on(clusters), |draft, name| draft.apply(name, &[], &marked(stage, name)));
    assert_eq!(stage.run(&deploy).await.verdict(), Verdict::Succeeded);
    let mut dependent: Option<&str> = None;
    names.iter().rev().fold(Draft::on(clusters).design(DESIGN).undeploy(), |draft, name| {
        let first: Vec<_> = dependent.replace(name).into_iter().collect();
        draft.apply(name, &first, &marked(stage, name))
    })
}

/// Case 74: what cannot be reached is not gone, and what it depends on stays on every cluster.
#[tokio::test]
async fn cluster_that_is_lost_is_not_taken_for_gone() {
    let stage = Stage::set("lost-cluster").await;
    let down = up(&stage, &["east", "west"], &["a", "b"]).await.step_timeout(4_000);
    let gate = Gate::shut();
    stage.east.add(Rule::get("/configmaps/b", Fault::Hold(gate.clone())));
    let run = async { stage.client.execute(down.seal(), stage.access_for(&down)).await.unwrap().finish().await };
    let lost = async {
        stage
            .east
            .wait_for(1, |seen| seen.method == Method::GET && seen.path.ends_with("/configmaps/b"))
            .await
            .unwrap();
        stage.east.close();
        stage.east.cut();
        gate.open();
    };
    let (outcome, ()) = within(async { tokio::join!(run, lost) }).await;
    let outcome = outcome.unwrap();

    check(&outcome, 2);
    assert_eq!(outcome.target("b", "west").unwrap().change(), Change::Removed);
    let target = outcome.target("b", "east").unwrap();
    assert!(matches!(target.outcome(), Outcome::Failed | Outcome::Indeterminate), "{target:?}");
    assert_eq!(outcome.outcomes()["a"], Outcome::Withheld);
    for cluster in [stage.world.east(), stage.world.west()] {
        assert!(stage.read(cluster, &stage.path("v1/configmaps", "a")).await.is_some());
    }
}

/// Case 74: a page that somebody on the way has made up is not the API server's word.
#[tokio::test]
async fn not_found_of_somebody_else_is_no_proof() {
    let stage = Stage::set("made-up").await;
    let down = up(&stage, &["east"], &["page", "empty"]).await.step_timeout(2_000);
    let page = Canned::status(404).text("<html>not found</html>").header("content-type", "text/html");
    stage.east.add(Rule::get("/configmaps/page", Fault::Answer(page)));
    stage.east.add(Rule::get("/configmaps/empty", Fault::Answer(Canned::status(404))));
    let outcome = stage.run(&down).await;
    assert_ne!(outcome.outcomes()["empty"], Outcome::Succeeded, "{:?}", outcome.results);
    assert_eq!(outcome.outcomes()["page"], Outcome::Withheld);

    stage.east.clear();
    let page = Canned::status(404).text("<html>not found</html>").header("content-type", "text/html");
    stage.east.add(Rule::get("/configmaps/page", Fault::Answer(page)));
    let outcome = stage.run(&down).await;
    assert_eq!(outcome.outcomes()["empty"], Outcome::Succeeded);
    assert_ne!(outcome.outcomes()["page"], Outcome::Succeeded, "{:?}", outcome.results);
    assert!(stage.object("v1/configmaps", "page").await.is_some());
}

/// Case 264, D8: a refusal says nothing of the DELETE before it whose answer was lost.
#[tokio::test]
async fn refusal_after_a_lost_delete_is_decided_by_a_read_or_by_nobody() {
    let stage = Stage::set("lost-delete").await;
    let down = up(&stage, &["east"], &["seen", "unseen"]).await;
    let later = || Fault::Answer(Canned::refusal(429, "TooManyRequests", "later", Value::Null).retry_after(600));
    for name in ["seen", "unseen"] {
        stage.east.add(Rule::delete(&format!("/configmaps/{name}"), Fault::Lose(Loss::BeforeHeaders)).times(1));
    }
    // The first look comes before the DELETE, the second before it is sent again.
    stage.east.add(Rule::get("/configmaps/seen", later()).after(1).times(1));
    stage.east.add(Rule::get("/configmaps/unseen", later()).after(1));
    let outcome = stage.run(&down).await;
    // Nobody depends on it, so it goes first.
    assert_eq!(outcome.outcomes()["unseen"], Outcome::Indeterminate, "{:?}", outcome.results);
    assert_eq!(outcome.outcomes()["seen"], Outcome::Withheld);

    let alone = Draft::on(&["east"]).design(DESIGN).undeploy().apply("seen", &[], &marked(&stage, "seen"));
    let outcome = stage.run(&alone).await;
    let target = outcome.target("seen", "east").unwrap();
    assert_eq!((target.outcome(), target.change()), (Outcome::Succeeded, Change::Removed), "{target:?}");
}

/// Case 64: accepted is not gone. What the object depends on is told to go only when the object has.
#[tokio::test]
async fn deletion_that_was_accepted_is_waited_for() {
    let stage = Stage::set("accepted").await;
    let down = up(&stage, &["east"], &["operator", "cr"]).await;
    let finalizers =
        |list: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cr", "finalizers": list}});
    let path = stage.path("v1/configmaps", "cr");
    stage.apply_as("controller", &path, &finalizers(json!(["example.com/cleanup"]))).await;
    let deletes = |name: &str| {
        let end = format!("/configmaps/{name}");
        stage.east.count(|seen| seen.method == Method::DELETE && seen.path.ends_with(&end))
    };
    let run = stage.run(&down);
    let controller = async {
        eventually("the DELETE to be accepted", async || {
            let object = stage.object("v1/configmaps", "cr").await;
            object.is_some_and(|it| it["metadata"]["deletionTimestamp"].is_string())
        })
        .await;
        // Several looks at the object that lingers.
        stage
            .east
            .wait_for(4, |seen| seen.method == Method::GET && seen.path.ends_with("/configmaps/cr"))
            .await
            .unwrap();
        assert_eq!((deletes("cr"), deletes("operator")), (1, 0));
        stage.apply_as("controller", &path, &finalizers(json!([]))).await;
    };
    let (outcome, ()) = tokio::join!(run, controller);

    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:?}", outcome.results);
    assert_eq!((deletes("cr"), deletes("operator")), (1, 1));
    // Case 69: garbage goes too, and no other object is hit.
    let seen = stage.east.seen();
    for delete in seen.iter().filter(|seen| seen.method == Method::DELETE) {
        let options: Value = serde_json::from_slice(&delete.body).unwrap();
        assert_eq!(options["propagationPolicy"], "Background");
        assert!(options["preconditions"]["uid"].is_string(), "{options}");
    }
    assert_eq!(stage.east.count(|seen| seen.method == Method::PATCH), 2, "only what put them there");
}

/// Case 67, D18: a kind that healthy discovery does not know has no objects; if discovery failed, nobody knows.
#[tokio::test]
async fn kind_that_is_gone_differs_from_one_that_nobody_can_tell_of() {
    let stage = Stage::set("kind-gone").await;
    let custom = |group: &str| {
        json!({
            "apiVersion": format!("{group}/v1"), "kind": "Widget",
            "metadata": {"name": "w", "namespace": stage.namespace, "labels": {"design.meshery.io/id": DESIGN}},
        })
    };
    stage.east.add(Rule::get("/apis/broken.example/v1", Fault::Answer(Canned::status(503))));
    let down = Draft::on(&["east"])
        .design(DESIGN)
        .undeploy()
        .step_timeout(3_000)
        .apply("gone", &[], &custom("gone.example"))
        .apply("broken", &[], &custom("broken.example"));
    let outcome = stage.run(&down).await;
    assert_eq!(outcome.target("gone", "east").unwrap().change(), Change::Absent);
    assert_failed(&outcome, "broken", "API_UNAVAILABLE", &["does not say which kinds broken.example/v1 has"]);
}

/// Case 76, D23: a cancel in the middle; what was told to go goes, the rest was not attempted.
#[tokio::test]
async fn cancel_in_the_middle_leaves_the_rest_in_place() {
    let stage = Stage::set("cancelled-undeploy").await;
    let names = ["a", "b", "c", "d", "e"];
    let down = up(&stage, &["east"], &names).await;
    let gate = Gate::shut();
    stage.east.add(Rule::delete("/configmaps/c", Fault::Hold(gate.clone())));
    let mut execution = stage.client.execute(down.seal(), stage.access_for(&down)).await.unwrap();
    stage.east.wait_for(1, |seen| seen.method == Method::DELETE && seen.path.ends_with("/c")).await.unwrap();
    execution.cancel("enough").await;
    let mut outcome = switchyard_tests::client::Outcome::default();
    // The two that were not begun are told while the third is in flight.
    while outcome.results.len() < 4 {
        outcome.take(within(execution.next()).await.unwrap().unwrap());
    }
    gate.open();
    while let Some(event) = within(execution.next()).await.unwrap() {
        outcome.take(event);
    }

    check(&outcome, 5);
    let outcomes = outcome.outcomes();
    assert_eq!((outcomes["e"], outcomes["d"]), (Outcome::Succeeded, Outcome::Succeeded));
    // Its DELETE was answered after the cancel, which ends the wait for the proof that it is gone.
    assert!(matches!(outcomes["c"], Outcome::Succeeded | Outcome::Indeterminate), "{:?}", outcomes["c"]);
    assert_eq!((outcomes["b"], outcomes["a"]), (Outcome::Cancelled, Outcome::Cancelled));
    assert!(outcome.summary.rows.iter().filter(|row| row.because.contains("not attempted")).count() == 2);
    assert!(stage.object("v1/configmaps", "a").await.is_some());
    assert!(stage.object("v1/configmaps", "b").await.is_some());
    assert_eq!(outcome.verdict(), Verdict::Cancelled);
}

/// S14 on the way down: failed on one cluster is failed, and what it depends on stays on both.
#[tokio::test]
async fn what_stays_on_one_cluster_holds_back_on_every_cluster() {
    let stage = Stage::set("stays-on-one").await;
    let down = up(&stage, &["east", "west"], &["a", "b"]).await;
    let refusal = Canned::refusal(403, "Forbidden", "configmaps \"b\" is forbidden", Value::Null);
    stage.west.add(Rule::delete("/configmaps/b", Fault::Answer(refusal)));
    let outcome = stage.run(&down).await;
    assert_eq!(outcome.target("b", "east").unwrap().change(), Change::Removed);
    assert_eq!(failure(&outcome, "b", "west").reason, "FORBIDDEN");
    assert_eq!(outcome.outcomes()["a"], Outcome::Withheld);
    assert_eq!(outcome.result("a").unwrap().withheld.as_ref().unwrap().component, "b");
    for cluster in [stage.world.east(), stage.world.west()] {
        assert!(stage.read(cluster, &stage.path("v1/configmaps", "a")).await.is_some());
    }
}

/// A definition whose versions are served or not, and one marked object of its kind, made past the executor.
async fn custom_object(stage: &Stage, versions: &[(&str, bool)]) -> (String, Value) {
    let group = format!("{}.example.com", stage.namespace);
    let east = stage.world.east();
    stage.create(east, DEFINITIONS, &definition(&group, versions)).await;
    let (version, _) = versions.iter().find(|(_, served)| *served).unwrap();
    let kind = format!("/apis/{group}/{version}/namespaces/{}/widgets", stage.namespace);
    eventually("the kind to be served", async || stage.read(east, &kind).await.is_some()).await;
    let object = json!({
        "apiVersion": format!("{group}/{version}"), "kind": "Widget",
        "metadata": {"name": "w", "namespace": stage.namespace, "labels": {"design.meshery.io/id": DESIGN}},
    });
    stage.create(east, &kind, &object).await;
    (group, object)
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn definition(group: &str, versions: &[(&str, bool)]) -> Value {
    let version = |(ix, (name, served)): (usize, &(&str, bool))| {
        json!({
            "name": name, "served": served, "storage": ix == 0,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("widgets.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
            "versions": versions.iter().enumerate().map(version).collect::<Vec<_>>(),
        },
    })
}

/// Case 205: a page that stands in a group's place does not mean that the group, and with it the object, is gone.
#[tokio::test]
async fn a_page_in_place_of_a_group_is_no_proof_that_its_objects_are_gone() {
    let stage = Stage::set("group-page").await;
    let (group, mut object) = custom_object(&stage, &[("v1", true)]).await;
    object["metadata"]["finalizers"] = json!(["example.com/cleanup"]);
    let path = format!("/apis/{group}/v1/namespaces/{}/widgets/w", stage.namespace);
    stage.seize_as("controller", &path, &object).await;
    stage
        .create(stage.world.east(), stage.path("v1/configmaps", "").trim_end_matches('/'), &marked(&stage, "map"))
        .await;
    let down = Draft::on(&["east"]).design(DESIGN).undeploy().step_timeout(4_000).apply("cr", &[], &object).apply(
        "map",
        &["cr"],
        &marked(&stage, "map"),
    );
    let page = || Canned::status(404).text("<html>not found</html>").header("content-type", "text/html");

    stage.east.add(Rule::any(&format!("/apis/{group}"), Fault::Answer(page())));
    let outcome = stage.run(&down).await;
    assert_failed(&outcome, "cr", "API_UNAVAILABLE", &["lists", "not found"]);
    assert_eq!(outcome.outcomes()["map"], Outcome::Withheld);

    // The object is found and told to go; from then on a page stands there.
    stage.east.clear();
    stage.east.forget();
    stage.east.add(Rule::get(&format!("/apis/{group}"), Fault::Answer(page())).after(2));
    let outcome = stage.run(&down).await;
    assert_eq!(stage.east.count(|seen| seen.method == Method::DELETE), 1, "{:?}", outcome.results);
    assert_eq!(outcome.outcomes()["cr"], Outcome::Indeterminate, "{:?}", outcome.results);
    assert_eq!(outcome.outcomes()["map"], Outcome::Withheld);
    assert!(stage.object("v1/configmaps", "map").await.is_some());
    assert!(stage.read(stage.world.east(), &path).await.is_some());
}

/// Case 205: that a version is no longer served does not mean that its objects are gone; they are the same in another one.
#[tokio::test]
async fn an_object_is_removed_in_the_version_that_is_served() {
    let stage = Stage::set("other-version").await;
    let (group, object) = custom_object(&stage, &[("v1", true), ("v2", true)]).await;
    let later = definition(&group, &[("v1", false), ("v2", true)]);
    stage.seize_as("somebody", &format!("{DEFINITIONS}/widgets.{group}"), &later).await;
    let east = stage.world.east();
    let path = |version: &str| format!("/apis/{group}/{version}/namespaces/{}/widgets/w", stage.namespace);
    eventually("v1 to be served no longer", async || stage.read(east, &path("v1")).await.is_none()).await;
    assert!(stage.read(east, &path("v2")).await.is_some());
    let down = Draft::on(&["east"]).design(DESIGN).undeploy().apply("cr", &[], &object);
    let outcome = stage.run(&down).await;
    assert_eq!(outcome.target("cr", "east").unwrap().change(), Change::Removed, "{:?}", outcome.results);
    assert!(stage.read(east, &path("v2")).await.is_none());
}

/// Case 209: what somebody made anew while it was removed is not what was to be removed, whatever mark it carries.
#[tokio::test]
async fn what_is_made_anew_meanwhile_is_left_in_place() {
    let stage = Stage::set("anew").await;
    let down = up(&stage, &["east"], &["held", "lost"]).await;
    let path = |name: &str| stage.path("v1/configmaps", name);
    let anew = async |name: &str, is_there: bool| {
        if is_there {
            stage.delete(stage.world.east(), &path(name)).await;
        }
        stage
            .create(stage.world.east(), stage.path("v1/configmaps", "").trim_end_matches('/'), &marked(&stage, name))
            .await
    };
    stage.east.forget();
    // One is made anew between the look and the DELETE; the other after a DELETE whose answer was lost.
    let (before, after) = (Gate::shut(), Gate::shut());
    stage.east.add(Rule::delete("/configmaps/held", Fault::Hold(before.clone())));
    stage.east.add(Rule::delete("/configmaps/lost", Fault::Lose(Loss::BeforeHeaders)).times(1));
    stage.east.add(Rule::get("/configmaps/lost", Fault::Hold(after.clone())).after(1));
    let saw = async |method: Method, name: &str, times| {
        let fits = |seen: &Seen| seen.method == method && seen.path.ends_with(&format!("/configmaps/{name}"));
        stage.east.wait_for(times, fits).await.unwrap();
    };
    let somebody = async {
        saw(Method::GET, "lost", 2).await;
        let lost = anew("lost", false).await;
        after.open();
        saw(Method::DELETE, "held", 1).await;
        let held = anew("held", true).await;
        before.open();
        (lost, held)
    };
    let (outcome, (lost, held)) = tokio::join!(stage.run(&down), somebody);
    for (name, made) in [("lost", lost), ("held", held)] {
        let target = outcome.target(name, "east").unwrap();
        assert_eq!((target.outcome(), target.change()), (Outcome::Succeeded, Change::Removed), "{target:?}");
        assert!(target.warnings.iter().any(|it| it.contains("made it anew")), "{target:?}");
        let there = stage.object("v1/configmaps", name).await.unwrap();
        assert_eq!(there["metadata"]["uid"], made["metadata"]["uid"]);
    }
    assert_eq!(stage.east.count(|seen| seen.method == Method::DELETE), 2);
}

/// Case 232, D25: what is said while a removal is denied is masked as on the way up, and so is the value that the object has in the
/// cluster, which is from an earlier version of the design.
#[tokio::test]
async fn secret_values_in_what_denies_a_removal_are_masked() {
    let stage = Stage::set("denied-removal").await;
    let secret = |value: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "secret", "namespace": stage.namespace, "labels": {"design.meshery.io/id": DESIGN}},
            "stringData": {"password": value},
        })
    };
    let (old, new) = ("old-canary&<7f1", "new-canary&<7f1");
    assert_eq!(stage.run(&Draft::on(&["east"]).apply("secret", &[], &secret(old))).await.verdict(), Verdict::Succeeded);
    let quoted = format!("{old} {new} old-canary\\u0026\\u003c7f1");
    let denied = format!("admission webhook \"w\" denied the request: {quoted}");
    let denied = Canned::refusal(400, "", &denied, Value::Null).header("warning", &format!("299 - \"it is {quoted}\""));
    stage.east.add(Rule::delete("/secrets/secret", Fault::Answer(denied)));

    let outcome = stage.run(&Draft::on(&["east"]).design(DESIGN).undeploy().apply("secret", &[], &secret(new))).await;

    assert_failed(&outcome, "secret", "WEBHOOK_DENIED", &["denied the request: [redacted] [redacted] [redacted]"]);
    let target = outcome.target("secret", "east").unwrap();
    assert!(target.warnings[0].starts_with("it is [redacted]"), "{target:?}");
    assert!(!format!("{outcome:?}").contains("canary"), "{outcome:?}");
}
