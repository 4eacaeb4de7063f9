//! Reasons that no other test here meets: `docs/failures.md` has a test for each.

use serde_json::{Value, json};
use switchyard_proto::v1::{Change, Outcome};
use switchyard_tests::{
    fault::{Canned, Fault, Loss, Rule, Seen},
    plan::Draft,
};

use super::stage::{Stage, assert_applied, assert_failed, failure};

/// A 500 that says nothing of the object is the server's own trouble: worth a few tries, and told as what it is.
#[tokio::test]
async fn error_that_the_server_does_not_explain_is_tried_a_few_times() {
    let stage = Stage::set("server-error").await;
    let trouble = Canned::refusal(500, "InternalError", "Internal error occurred: etcdserver: no leader", Value::Null);
    stage.east.add(Rule::patch("/unlucky", Fault::Answer(trouble)));

    let outcome = stage.run(&Draft::on(&["east"]).apply("unlucky", &[], &stage.config_map("unlucky"))).await;

    assert_failed(&outcome, "unlucky", "SERVER_ERROR", &["no leader"]);
    assert!(failure(&outcome, "unlucky", "east").retryable);
    assert_eq!(outcome.target("unlucky", "east").unwrap().attempts, 3);
}

/// A gateway that gives up says nothing of what the API server did.
#[tokio::test]
async fn gateway_that_gives_up_each_time_is_a_timeout() {
    let stage = Stage::set("gateway").await;
    stage.east.add(Rule::patch("/late", Fault::Answer(Canned::status(504))));

    let outcome =
        stage.run(&Draft::on(&["east"]).step_timeout(4_000).apply("late", &[], &stage.config_map("late"))).await;

    assert_eq!(outcome.outcomes()["late"], Outcome::Indeterminate);
    let failure = failure(&outcome, "late", "east");
    assert!(failure.reason == "TIMEOUT" && failure.retryable, "{failure:?}");
}

/// A connection that breaks with the answer on it, each time, leaves open what became of the write.
#[tokio::test]
async fn connection_that_breaks_each_time_loses_the_answer() {
    let stage = Stage::set("each-answer-lost").await;
    stage.east.add(Rule::patch("/lost", Fault::Lose(Loss::HalfBody)));

    let outcome =
        stage.run(&Draft::on(&["east"]).step_timeout(4_000).apply("lost", &[], &stage.config_map("lost"))).await;

    assert_eq!(outcome.outcomes()["lost"], Outcome::Indeterminate);
    let failure = failure(&outcome, "lost", "east");
    assert!(failure.reason == "ANSWER_LOST" && failure.retryable, "{failure:?}");
}

/// An object that names the uid of one which is no more means that one, whether another took its place or none did.
#[tokio::test]
async fn object_that_is_another_than_was_meant_is_stale() {
    let stage = Stage::set("another").await;
    let design = Draft::on(&["east"]);
    let there = design.clone().apply("there", &[], &stage.config_map("there"));
    assert_applied(&stage.run(&there).await, "there", Change::Created);
    let of_another = |name: &str| {
        let mut object = stage.config_map(name);
        object["metadata"]["uid"] = json!("7f1c7a0e-0000-4000-8000-000000000000");
        object
    };

    let draft = design.apply("there", &[], &of_another("there")).apply("gone", &[], &of_another("gone"));
    let outcome = stage.run(&draft).await;

    for name in ["there", "gone"] {
        assert_failed(&outcome, name, "STALE", &["made anew"]);
        let failure = failure(&outcome, name, "east");
        assert!(!failure.retryable, "{failure:?}");
        assert_eq!(outcome.target(name, "east").unwrap().attempts, 1, "{name}");
    }
}

/// What can be no path is not asked for: it would be waited for in vain.
#[tokio::test]
async fn api_version_that_makes_no_path_is_no_manifest() {
    let stage = Stage::set("no-path").await;
    let mut draft = Draft::on(&["east"]);
    for (name, version) in [("blank", "ex ample/v1"), ("deep", "apps/v1/namespaces"), ("query", "v1?x=")] {
        let mut object = stage.config_map(name);
        object["apiVersion"] = json!(version);
        draft = draft.apply(name, &[], &object);
    }

    let outcome = stage.run(&draft).await;

    for name in ["blank", "deep", "query"] {
        assert_failed(&outcome, name, "MANIFEST_INVALID", &["is no apiVersion"]);
        assert!(!failure(&outcome, name, "east").retryable);
    }
    assert_eq!(stage.east.count(Seen::is_write), 0);
}
