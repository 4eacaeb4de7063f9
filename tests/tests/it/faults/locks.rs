//! D24 across executors: a Lease in each cluster keeps two runs of one design off it.

use std::time::Duration;

use serde_json::{Value, json};
use switchyard_proto::v1::{CancelledBy, Outcome, Verdict};
use switchyard_service::status::Reason;
use switchyard_tests::{
    client,
    embedded::Executor,
    fault::{Canned, Fault, Gate, Loss, Rule},
    plan::Draft,
    programs::Program,
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

/// Whether the Lease of a design is there and nobody has it (L2).
async fn is_free(stage: &Stage, cluster: &str, design: &str) -> bool {
    let leases = leases(stage, cluster, design).await;
    leases.len() == 1 && leases[0]["spec"]["holderIdentity"] == ""
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
    // Case 365: every cluster that is worked on is named, by this executor and by that which has the run.
    let both = chain(&stage, &["east", "west"], 1).design(&id);
    for client in [&other, &stage.client] {
        let refused = client.execute(both.seal(), stage.access_for(&both)).await.unwrap().finish().await.unwrap_err();
        assert_eq!(conflict_with(&refused), run);
        let metadata = refused.get_details_error_info().unwrap().metadata;
        assert_eq!((metadata["cluster"].as_str(), &metadata["design_id"]), ("east", &id));
        let named = refused.get_details_precondition_failure().unwrap().violations;
        let named: Vec<_> = named.iter().map(|it| (it.r#type.as_str(), it.subject.as_str())).collect();
        assert_eq!(named, [("RUN", "east"), ("RUN", "west")]);
        assert!(refused.get_details_retry_info().unwrap().retry_delay.is_some());
    }
    // Another design goes its way.
    let aside = chain(&stage, &["west"], 1).design(&design());
    let outcome = other.execute(aside.seal(), stage.access_for(&aside)).await.unwrap().finish().await.unwrap();
    assert_eq!(outcome.verdict(), Verdict::Succeeded);

    gate.open();
    within(async { while execution.next().await.unwrap().is_some() {} }).await;
    assert!(is_free(&stage, "east", &id).await);
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
    assert!(is_free(&stage, "east", &id).await, "it was let go of");
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
    assert_eq!(outcome.summary.cancelled_by(), CancelledBy::LockLost);
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
        let outcome = stage.try_run(&draft, access()).await.unwrap();
        // Case 262: the run says it, and not the log alone.
        let warnings = &outcome.started().unwrap().warnings;
        let text = "the credentials for cluster east have no rights to Leases in namespace kube-system";
        assert!(warnings.len() == 1 && warnings[0].contains(text), "{warnings:?}");
        outcome.verdict() == Verdict::Succeeded
    })
    .await;
}

/// Case 261: a lock that is another's, or may be, is not passed by for want of the right to look at it.
#[tokio::test]
async fn lock_that_is_held_and_cannot_be_looked_at_is_not_passed_by() {
    let stage = Stage::set_with("held-unseen", &[]).await;
    let id = design();
    let path = left_behind(&stage, &id, 3600).await;
    let forbidden = Canned::refusal(403, "Forbidden", "User cannot get resource \"leases\"", Value::Null);
    stage.east.add(Rule::get("/leases/", Fault::Answer(forbidden)));
    let draft = chain(&stage, &["east"], 1).design(&id);
    let status = stage.try_run(&draft, stage.access_for(&draft)).await.unwrap_err();
    let why = &unusable(&status)["east"];
    assert!(why.contains("another run may have it"), "{why}");
    stage.delete(stage.world.east(), &path).await;
}

/// Case 261: a lock whose taking was answered late or not at all is held, and let go of.
#[tokio::test]
async fn lock_whose_taking_was_not_answered_is_taken_and_let_go_of() {
    let stage = Stage::set_with("taking-lost", &[]).await;
    let unavailable = Fault::Answer(Canned::status(503));
    for (name, fault) in [("lost", Fault::Lose(Loss::BeforeHeaders)), ("unavailable", unavailable)] {
        let id = design();
        let draft = chain(&stage, &["east"], 1).design(&id);
        // The one that makes it, and the one that takes what is there.
        for rule in [Rule::any("/leases", fault.clone()).after(1).times(1), Rule::patch("/leases/", fault).times(1)] {
            stage.east.add(rule);
            let outcome = stage.try_run(&draft, stage.access_for(&draft)).await.unwrap();
            assert_eq!(outcome.verdict(), Verdict::Succeeded, "{name}");
            assert!(is_free(&stage, "east", &id).await, "{name}");
            stage.east.clear();
        }
    }
}

/// A run of two components in a row, the first of which is held.
struct Locked {
    execution: client::Execution,
    design: String,
    gate: Gate,
}

impl Locked {
    async fn begin(stage: &Stage, client: &client::Client) -> Self {
        let (gate, design) = (Gate::shut(), design());
        stage.east.add(Rule::patch("/map-0", Fault::Hold(gate.clone())).times(1));
        let draft = chain(stage, &["east"], 2).design(&design).step_timeout(600_000);
        let mut execution = client.execute(draft.seal(), stage.access_for(&draft)).await.unwrap();
        run_id(&mut execution).await;
        stage.east.wait_for(1, |seen| seen.path.contains("/map-0")).await.unwrap();
        Self { execution, design, gate }
    }

    /// Reads until the second component has its result, then lets the first go, and reads to the end.
    async fn end(self) -> client::Outcome {
        self.end_after(|| {}).await
    }

    /// The same, and does something before the first is let go.
    async fn end_after(self, meanwhile: impl Fn()) -> client::Outcome {
        let Self { mut execution, gate, .. } = self;
        let mut outcome = client::Outcome::default();
        within(async {
            while let Some(event) = execution.next().await.unwrap() {
                outcome.take(event);
                if outcome.results.len() == 1 {
                    meanwhile();
                    gate.open();
                }
            }
        })
        .await;
        outcome
    }
}

/// What a run came to that lost its lock while its first component was in flight.
#[track_caller]
fn assert_lost(stage: &Stage, outcome: &client::Outcome, why: &str) {
    assert_eq!(outcome.outcomes()["map-0"], Outcome::Succeeded, "what was in flight ends and is recorded");
    assert_eq!(outcome.outcomes()["map-1"], Outcome::Cancelled);
    let because = &outcome.summary.rows[1].because;
    assert!(because.contains(why), "{because}");
    assert_eq!(outcome.summary.cancelled_by(), CancelledBy::LockLost);
    assert!(outcome.result("map-1").unwrap().error.as_ref().unwrap().retryable);
    assert_eq!(stage.east.applies("/map-1"), 0, "nothing more is started");
}

/// Case 261: a run whose renewals fail while its writes succeed starts nothing more before its lock's term is over.
#[tokio::test]
async fn run_that_cannot_renew_its_lock_starts_nothing_more() {
    let stage = Stage::set_with("no-renewal", &[]).await;
    stage.east.add(Rule::patch("/leases/", Fault::Answer(Canned::status(503))).after(1));
    let locked = Locked::begin(&stage, &stage.client).await;
    let design = locked.design.clone();
    let outcome = locked.end_after(|| stage.east.clear()).await;
    assert_lost(&stage, &outcome, "its Lease on cluster east was not renewed for 25 s (it answered 503");
    assert!(is_free(&stage, "east", &design).await, "it is let go of all the same");
}

/// Case 261: a Lease that has gone is not made anew as if nothing had been: another run may have come and gone.
#[tokio::test]
async fn run_whose_lock_has_gone_stops_and_makes_none_anew() {
    let stage = Stage::set_with("lock-gone", &[]).await;
    let locked = Locked::begin(&stage, &stage.client).await;
    let design = locked.design.clone();
    let name = leases(&stage, "east", &design).await.remove(0)["metadata"]["name"].as_str().unwrap().to_owned();
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{name}");
    stage.delete(stage.world.east(), &path).await;
    let outcome = locked.end().await;
    assert_lost(&stage, &outcome, "its Lease on cluster east is gone");
    assert!(leases(&stage, "east", &design).await.is_empty());
}

/// Case 261: a renewal whose answer is lost costs nothing, neither the run nor the next one.
#[tokio::test]
async fn renewal_whose_answer_is_lost_is_made_up_for() {
    let stage = Stage::set_with("renewal-lost", &[]).await;
    stage.east.add(Rule::patch("/leases/", Fault::Lose(Loss::GatewayTimeout)).after(1).times(1));
    let locked = Locked::begin(&stage, &stage.client).await;
    let design = locked.design.clone();
    // Two make it.
    within(stage.east.wait_for(3, |seen| seen.is_write() && seen.path.contains("/leases"))).await.unwrap();
    locked.gate.open();
    let outcome = locked.end().await;
    assert_eq!(outcome.verdict(), Verdict::Succeeded);
    assert!(is_free(&stage, "east", &design).await, "it is let go of, though it is newer than was seen");
}

/// Case 261: a process that was paused beyond its lock's term writes nothing when it goes on, however much there is to do.
#[tokio::test]
async fn process_that_was_paused_beyond_its_locks_term_writes_nothing() {
    let stage = Stage::set_with("paused", &[]).await;
    let mut program = Program::Executor.prepare().start().await.unwrap();
    let client = client::Client::connect(&program.url(), &program.url()).await.unwrap();
    let locked = Locked::begin(&stage, &client).await;

    program.process().signal(rustix::process::Signal::STOP);
    // The answer waits for the process: when it goes on, the next component could start at once.
    locked.gate.open();
    // Another executor is let in when the term is over by the API server's clock.
    let second = chain(&stage, &["east"], 1).design(&locked.design);
    eventually("another executor to be let in", async || {
        tokio::time::sleep(Duration::from_millis(500)).await;
        stage.try_run(&second, stage.access_for(&second)).await.is_ok()
    })
    .await;
    program.process().signal(rustix::process::Signal::CONT);

    let outcome = locked.end().await;
    // Told to stop in time or held up at the last moment.
    let second = outcome.outcomes()["map-1"];
    assert!([Outcome::Cancelled, Outcome::Failed].contains(&second), "{:#?}", outcome.summary);
    assert!(outcome.summary.rows[1].because.contains("Lease") || outcome.summary.rows[1].because.contains("lock"));
    assert_eq!(stage.east.applies("/map-1"), 0);
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
