//! L2: the Lease of a design stays between runs and says what the design has there.

use http::Method;
use serde_json::{Value, json};
use switchyard_proto::v1::Verdict;
use switchyard_tests::{
    client,
    fault::{Fault, Gate, Rule, Seen},
    plan::Draft,
    programs::Program,
};

use super::{
    stage::{Stage, eventually, within},
    streams::run_id,
};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";

/// What the Lease of a design says on a cluster.
#[derive(Debug)]
struct Said {
    holder: String,
    kinds: String,
    last_run: Value,
}

async fn said(stage: &Stage, cluster: &str, design: &str) -> Option<Said> {
    let cluster = if cluster == "east" { stage.world.east() } else { stage.world.west() };
    let list = stage.read(cluster, LEASES).await.unwrap();
    let purpose = format!("one run of design {design} at a time");
    let is_its = |lease: &&Value| lease["metadata"]["annotations"]["switchyard.meshery.io/purpose"] == purpose.as_str();
    let lease = list["items"].as_array().unwrap().iter().find(is_its)?;
    let annotation = |name: &str| lease["metadata"]["annotations"][name].as_str().unwrap_or_default().to_owned();
    Some(Said {
        holder: lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned(),
        kinds: annotation("switchyard.dev/kinds"),
        last_run: serde_json::from_str(&annotation("switchyard.dev/last-run")).unwrap(),
    })
}

fn secret(stage: &Stage) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "secret", "namespace": stage.namespace},
        "stringData": {"key": "value"},
    })
}

fn marked(mut object: Value, draft: &str) -> Value {
    object["metadata"]["labels"] = json!({"design.meshery.io/id": draft});
    object
}

#[tokio::test]
async fn lease_stays_between_runs_and_says_what_the_design_has_and_how_its_last_run_ended() {
    let stage = Stage::set_with("record", &[]).await;
    let first = Draft::on(&["east"]);
    let id = first.design_id().to_owned();
    let first = first.apply("map", &[], &marked(stage.config_map("map"), &id));
    let second = first.clone().apply("secret", &[], &marked(secret(&stage), &id));
    let about_leases = |seen: &Seen| seen.path.contains("/leases");

    // It makes the Lease, takes it at the second run, and needs one request more where there are new kinds.
    for (draft, requests, kinds) in
        [(&first, 3, "v1/ConfigMap"), (&first, 2, "v1/ConfigMap"), (&second, 3, "v1/ConfigMap,v1/Secret")]
    {
        stage.east.forget();
        let outcome = stage.run(draft).await;
        assert_eq!(outcome.verdict(), Verdict::Succeeded);
        assert_eq!(outcome.started().unwrap().warnings, [""; 0]);
        assert_eq!(stage.east.count(about_leases), requests);
        let Said { holder, kinds: known, last_run } = said(&stage, "east", &id).await.unwrap();
        assert_eq!((holder.as_str(), known.as_str()), ("", kinds));
        assert_eq!(last_run["run"], outcome.summary.run_id.as_str());
        assert_eq!(last_run["plan"], outcome.started().unwrap().plan_id.as_str());
        assert_eq!((&last_run["operation"], &last_run["verdict"]), (&json!("DEPLOY"), &json!("SUCCEEDED")));
        assert!(last_run["start"].as_str() <= last_run["end"].as_str(), "{last_run}");
        assert!(last_run["executor"].as_str().unwrap().starts_with("switchyard-executor/"), "{last_run}");
    }
    let seen = stage.east.seen();
    let noted = seen.iter().position(|it| about_leases(it) && String::from_utf8_lossy(&it.body).contains("v1/Secret"));
    let written = seen.iter().position(|it| it.method == Method::PATCH && it.path.ends_with("/secrets/secret"));
    assert!(noted.unwrap() < written.unwrap(), "kinds are written down before their first object");

    assert_eq!(stage.run(&second.undeploy()).await.verdict(), Verdict::Succeeded);
    assert!(said(&stage, "east", &id).await.is_none(), "with the design goes its Lease");
}

#[tokio::test]
async fn run_before_that_never_ended_is_told() {
    let stage = Stage::set_with("never-ended", &[]).await;
    let mut program = Program::Executor.prepare().start().await.unwrap();
    let client = client::Client::connect(&program.url(), &program.url()).await.unwrap();
    let gate = Gate::shut();
    stage.east.add(Rule::patch("/map", Fault::Hold(gate.clone())).times(1));
    let draft = Draft::on(&["east"]);
    let id = draft.design_id().to_owned();
    let draft = draft.apply("map", &[], &marked(stage.config_map("map"), &id));
    let mut execution = client.execute(draft.seal(), stage.access_for(&draft)).await.unwrap();
    let run = run_id(&mut execution).await;
    assert_eq!(said(&stage, "east", &id).await.unwrap().last_run["verdict"], "GOING_ON");
    program.process().kill();
    gate.open();

    let mut outcome = None;
    eventually("its term to be over", async || {
        outcome = stage.try_run(&draft, stage.access_for(&draft)).await.ok();
        outcome.is_some()
    })
    .await;
    let outcome = outcome.unwrap();
    assert_eq!(outcome.verdict(), Verdict::Succeeded);
    let warnings = &outcome.started().unwrap().warnings;
    let wanted = format!("on cluster east the last run of this design, {run} (deploy of version 0.0.1, begun ");
    assert!(warnings.len() == 1 && warnings[0].starts_with(&wanted), "{warnings:?}");
    assert!(warnings[0].contains("never recorded its end"), "{warnings:?}");
    assert_eq!(stage.run(&draft).await.started().unwrap().warnings, [""; 0]);
}

/// What is known of the last run is not lost to one that was refused.
#[tokio::test]
async fn run_that_is_refused_leaves_the_record_as_it_was() {
    let stage = Stage::set_with("refused", &[]).await;
    let draft = Draft::on(&["west", "east"]);
    let id = draft.design_id().to_owned();
    let both = draft.apply("map", &[], &marked(stage.config_map("map"), &id));
    stage.run(&both).await;
    let before = said(&stage, "west", &id).await.unwrap().last_run;

    let gate = Gate::shut();
    stage.east.add(Rule::patch("/map", Fault::Hold(gate.clone())).times(1));
    let mut changed = marked(stage.config_map("map"), &id);
    changed["data"]["key"] = json!("changed");
    let on_east = Draft::on(&["east"]).design(&id).apply("map", &[], &changed);
    let mut execution = stage.client.execute(on_east.seal(), stage.access_for(&on_east)).await.unwrap();
    run_id(&mut execution).await;
    let other = switchyard_tests::embedded::Executor::start(&[]).await.unwrap();
    let client = other.client().await.unwrap();
    let refused = client.execute(both.seal(), stage.access_for(&both)).await.unwrap().finish().await;
    assert!(refused.is_err());
    let now = said(&stage, "west", &id).await.unwrap();
    assert_eq!((now.holder.as_str(), now.last_run), ("", before));
    gate.open();
    within(async { while execution.next().await.unwrap().is_some() {} }).await;
}
