//! D24 across executors: a Lease in each cluster keeps two runs of one design off it.

use serde_json::{Value, json};
use switchyard_proto::v1::{Outcome, Verdict};
use switchyard_service::status::Reason;
use switchyard_tests::{
    client,
    embedded::Executor,
    fault::{Fault, Gate, Rule},
    plan::Draft,
    sandbox::Sandbox,
};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::{
    clusters::unusable,
    stage::{Stage, eventually, within},
    streams::{chain, refused, run_id},
};

/// The executor's Leases of a design, as the cluster east or west has them.
async fn leases(stage: &Stage, cluster: &str, design: &str) -> Vec<Value> {
    let cluster = if cluster == "east" { stage.world.east() } else { stage.world.west() };
    let list = stage.read(cluster, "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases").await.unwrap();
    let mut leases = list["items"].as_array().unwrap().clone();
    let purpose = format!("one run of design {design} at a time");
    leases.retain(|lease| lease["metadata"]["annotations"]["switchyard.meshery.io/purpose"] == purpose.as_str());
    leases
}

fn design() -> String {
    format!("design-{}", uuid::Uuid::new_v4())
}

fn conflict_with(status: &Status) -> String {
    refused(status, Reason::RunConflict);
    assert_eq!(status.code(), Code::Aborted);
    status.get_details_error_info().unwrap().metadata["run_id"].clone()
}

/// Case 55: another executor is refused too, and is told the run; with the summary the way is free.
#[tokio::test]
async fn another_executor_is_refused_while_the_design_is_worked_on() {
    let stage = Stage::set_with("two-executors", &[]).await;
    let executor = Executor::start(&[]).await.unwrap();
    let other = executor.client().await.unwrap();
    let gate = Gate::shut();
    stage.east.add(Rule::patch("/map-0", Fault::Hold(gate.clone())).times(1));
    let id = design();
    let first = chain(&stage, &["east", "west"], 1).design(&id);
    let mut execution = stage.client.execute(first.seal(), stage.access_for(&first)).await.unwrap();
    let run = run_id(&mut execution).await;

    let lease = leases(&stage, "east", &id).await.remove(0);
    assert_eq!(lease["spec"]["holderIdentity"], run.as_str());
    let second = chain(&stage, &["west"], 1).design(&id);
    let status = other.execute(second.seal(), stage.access_for(&second)).await.unwrap().finish().await.unwrap_err();
    assert_eq!(conflict_with(&status), run);
    assert!(status.message().contains("cluster west"), "{}", status.message());
    // Another design goes its way.
    let aside = chain(&stage, &["west"], 1).design(&design());
    let outcome = other.execute(aside.seal(), stage.access_for(&aside)).await.unwrap().finish().await.unwrap();
    assert_eq!(outcome.verdict(), Verdict::Succeeded);

    gate.open();
    within(async { while execution.next().await.unwrap().is_some() {} }).await;
    assert!(leases(&stage, "east", &id).await.is_empty());
    let outcome = other.execute(second.seal(), stage.access_for(&second)).await.unwrap().finish().await.unwrap();
    assert_eq!(outcome.verdict(), Verdict::Succeeded);
}

/// A Lease as an executor leaves it that died.
async fn left_behind(stage: &Stage, design: &str, term: u64) -> String {
    // Learned from a run, since its name is the executor's own affair.
    let gate = Gate::shut();
    stage.east.add(Rule::patch("/map-0", Fault::Hold(gate.clone())).times(1));
    let draft = chain(stage, &["east"], 1).design(design);
    let mut execution = stage.client.execute(draft.seal(), stage.access_for(&draft)).await.unwrap();
    run_id(&mut execution).await;
    let name = leases(stage, "east", design).await.remove(0)["metadata"]["name"].as_str().unwrap().to_owned();
    gate.open();
    within(async { while execution.next().await.unwrap().is_some() {} }).await;
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{name}");
    take_over(stage, &path, "dead", term).await;
    path
}

async fn take_over(stage: &Stage, path: &str, holder: &str, term: u64) {
    let name = path.rsplit('/').next().unwrap();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": term},
    });
    stage.seize_as(&format!("switchyard-{holder}"), path, &lease).await;
}

/// The Lease of an executor that died is free when its term is over by the API server's clock, and not before.
#[tokio::test]
async fn lock_of_a_dead_executor_ends_by_itself() {
    let stage = Stage::set_with("dead-executor", &[]).await;
    let id = design();
    let path = left_behind(&stage, &id, 3600).await;
    let draft = chain(&stage, &["east"], 1).design(&id);
    let status = stage.try_run(&draft, stage.access_for(&draft)).await.unwrap_err();
    assert_eq!(conflict_with(&status), "dead");

    take_over(&stage, &path, "dead", 1).await;
    eventually("the term to be over", async || match stage.try_run(&draft, stage.access_for(&draft)).await {
        Ok(outcome) => outcome.verdict() == Verdict::Succeeded,
        Err(status) => conflict_with(&status) != "dead",
    })
    .await;
    assert!(stage.read(stage.world.east(), &path).await.is_none(), "it was let go of");
}

/// A run that others believe to be dead stops, and leaves their Lease alone.
#[tokio::test]
async fn run_whose_lock_was_taken_over_stops() {
    let stage = Stage::set_with("taken-over", &[]).await;
    let gate = Gate::shut();
    stage.east.add(Rule::patch("/map-0", Fault::Hold(gate.clone())).times(1));
    let id = design();
    let draft = chain(&stage, &["east"], 2).design(&id);
    let mut execution = stage.client.execute(draft.seal(), stage.access_for(&draft)).await.unwrap();
    run_id(&mut execution).await;
    let name = leases(&stage, "east", &id).await.remove(0)["metadata"]["name"].as_str().unwrap().to_owned();
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{name}");
    take_over(&stage, &path, "other", 3600).await;

    // The step that was not begun is told to be cancelled while the first is still in flight.
    let mut outcome = client::Outcome::default();
    within(async {
        while outcome.results.is_empty() {
            outcome.take(execution.next().await.unwrap().expect("the run goes on"));
        }
    })
    .await;
    assert_eq!(outcome.outcomes()["map-1"], Outcome::Cancelled);
    gate.open();
    within(async {
        while let Some(event) = execution.next().await.unwrap() {
            outcome.take(event);
        }
    })
    .await;
    assert_eq!(outcome.outcomes()["map-0"], Outcome::Succeeded);
    assert!(outcome.summary.rows[1].because.contains("run other has taken cluster east over"), "{:?}", outcome.summary);
    let lease = stage.read(stage.world.east(), &path).await.unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "other");
    stage.delete(stage.world.east(), &path).await;
}

/// A conflict on one cluster leaves nothing behind on the others.
#[tokio::test]
async fn clusters_are_locked_together_or_not_at_all() {
    let stage = Stage::set_with("together", &[]).await;
    let id = design();
    let path = left_behind(&stage, &id, 3600).await;
    let draft = chain(&stage, &["west", "east"], 1).design(&id);
    let status = stage.try_run(&draft, stage.access_for(&draft)).await.unwrap_err();
    assert_eq!(conflict_with(&status), "dead");
    assert!(leases(&stage, "west", &id).await.is_empty());
    stage.delete(stage.world.east(), &path).await;
}

/// A client that goes away while the clusters are being locked leaves no lock behind.
#[tokio::test]
async fn lock_that_nobody_waits_for_is_let_go_of() {
    let stage = Stage::set_with("nobody-waits", &[]).await;
    let gate = Gate::shut();
    stage.west.add(Rule::patch("/leases/", Fault::Hold(gate.clone())));
    let id = design();
    let draft = chain(&stage, &["east", "west"], 1).design(&id);
    let client = stage.executor.client().await.unwrap();
    let execution = client.execute(draft.seal(), stage.access_for(&draft)).await.unwrap();
    eventually("east to be locked", async || !leases(&stage, "east", &id).await.is_empty()).await;
    drop((execution, client));
    gate.open();
    eventually("the locks to be gone", async || {
        leases(&stage, "east", &id).await.is_empty() && leases(&stage, "west", &id).await.is_empty()
    })
    .await;
    assert_eq!(stage.east.applies("/map-0"), 0);
}

/// Case 147: credentials that may not touch Leases deploy all the same; a namespace that is not there is told.
#[tokio::test]
async fn lock_needs_its_namespace_and_not_the_right() {
    let stage = Stage::set_with("no-right", &["--lock-namespace", "not-there"]).await;
    let draft = chain(&stage, &["east"], 1).design(&design());
    let status = stage.try_run(&draft, stage.access_for(&draft)).await.unwrap_err();
    let why = &unusable(&status)["east"];
    assert!(why.contains("namespace not-there") && why.contains("--lock-namespace"), "{why}");

    let operator = stage.world.east().kubeconfig_with_token(Sandbox::OPERATOR_TOKEN);
    stage.world.east().grant("operator", &["get", "patch", "create"], "", &["configmaps"]).await.unwrap();
    let access = || vec![client::kubeconfig("east", operator.to_string())];
    let stage = Stage::set_with("no-right-either", &[]).await;
    let draft = chain(&stage, &["east"], 1).design(&design());
    eventually("the grant to take effect", async || {
        stage.try_run(&draft, access()).await.unwrap().verdict() == Verdict::Succeeded
    })
    .await;
}

/// D20: a dry run changes nothing anywhere, so it locks nothing either.
#[tokio::test]
async fn dry_run_takes_no_lock() {
    let stage = Stage::set_with("dry-lock", &[]).await;
    let draft: Draft = chain(&stage, &["east"], 1).design(&design()).dry_run();
    let outcome = stage.try_run(&draft, stage.access_for(&draft)).await.unwrap();
    assert_eq!(outcome.verdict(), Verdict::Succeeded);
    assert_eq!(stage.east.count(|seen| seen.path.contains("/leases")), 0);
}
