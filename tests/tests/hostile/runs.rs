//! Runs that are made to leave more behind than they were.

use serde_json::json;
use switchyard_proto::v1::{
    CancelRunRequest, Outcome, WatchRunRequest, execute_request::Part, execute_response::Event,
};
use switchyard_tests::{
    client::{self, Execution},
    fault::{Canned, Fault, Gate, Proxy, Rule},
    plan::Draft,
    sandbox::Sandbox,
};

use super::victim::Victim;

const LIMIT: std::time::Duration = std::time::Duration::from_secs(120);

fn config_map(name: &str) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}})
}

/// A step that fails and `number` that depend on it.
fn fan(number: usize) -> Draft {
    (0..number).fold(Draft::on(&["east"]).apply("root", &[], &config_map("root")), |draft, number| {
        let name = format!("map-{number}");
        draft.apply(&name, &["root"], &config_map(&name))
    })
}

fn parts(draft: &Draft, proxy: &Proxy) -> (Vec<Part>, usize) {
    let mut parts: Vec<_> = draft.seal().into_parts().collect();
    parts.insert(1, Part::Cluster(client::kubeconfig("east", proxy.kubeconfig().to_string())));
    let sent = parts.iter().map(Part::encoded_len).sum();
    (parts, sent)
}

async fn finish(execution: Execution) -> client::Outcome {
    tokio::time::timeout(LIMIT, execution.finish()).await.unwrap().unwrap()
}

/// Case 248: one refusal with 300 causes and 2,000 dependents held 738 MiB for an hour.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_with_many_causes_and_dependents_is_told_briefly() {
    let east = Proxy::before(Sandbox::shared().await.unwrap().east()).await.unwrap();
    let cause = |number| json!({"field": format!("spec.f{number}"), "reason": "FieldValueInvalid", "message": "m".repeat(1000)});
    let causes: Vec<_> = (0..300).map(cause).collect();
    let refusal = Canned::refusal(422, "Invalid", &"no ".repeat(1000), json!({"causes": causes}));
    east.add(Rule::patch("/root", Fault::Answer(refusal)));
    let mut victim = Victim::start(&[]).await;
    let (parts, sent) = parts(&fan(2_000), &east);

    let outcome = finish(victim.client.open(parts).await.unwrap()).await;

    assert_eq!(outcome.summary.counts["withheld"], 2_000);
    let root = outcome.results.iter().find(|result| result.step_id == "root").unwrap();
    let error = root.targets[0].error.as_ref().unwrap();
    assert!(error.causes.len() <= 21, "{}", error.causes.len());
    assert!(error.causes.last().unwrap().message.starts_with("and "), "{:?}", error.causes.last());
    let withheld = outcome.results.iter().find(|result| result.outcome() == Outcome::Withheld).unwrap();
    let root_error = withheld.withheld.as_ref().unwrap().root_error.as_ref().unwrap();
    assert_eq!((root_error.reason.as_str(), root_error.causes.len()), ("INVALID", 0));
    assert!(!root_error.message.is_empty() && root_error.message.len() <= 256);
    assert!(outcome.summary.rows.iter().all(|row| row.because.len() <= 2048));
    victim.serves_others().await;
    victim.took_little(sent, "a refusal with 300 causes");
}

/// A reason of megabytes is not said for every component, and cancels by the thousand wait for nothing.
#[tokio::test(flavor = "multi_thread")]
async fn cancels_with_long_reasons_and_by_the_thousand_are_told_briefly() {
    let east = Proxy::before(Sandbox::shared().await.unwrap().east()).await.unwrap();
    let gate = Gate::shut();
    east.add(Rule::patch("/root", Fault::Hold(gate.clone())));
    let mut victim = Victim::start(&[]).await;
    let (parts, mut sent) = parts(&fan(2_000), &east);
    let mut execution = victim.client.open(parts).await.unwrap();
    let Some(Event::RunStarted(started)) = execution.next().await.unwrap().unwrap().event else { panic!() };
    let reason = "r".repeat(1 << 20);
    for _ in 0..3 {
        sent += reason.len();
        execution.cancel(&reason).await;
    }
    for _ in 0..1_000 {
        execution.cancel("enough").await;
        let request = CancelRunRequest { run_id: started.run_id.clone(), reason: String::new() };
        victim.client.executor().cancel_run(request).await.unwrap();
    }
    victim.serves_others().await;
    gate.open();

    let outcome = finish(execution).await;

    assert!(outcome.summary.counts["cancelled"] >= 1_999, "{:?}", outcome.summary.counts);
    assert!(outcome.summary.rows.iter().all(|row| row.because.len() <= 512));
    victim.took_little(sent, "cancels");
}

/// Readers who do not read, on a connection of their own, hold up neither the run nor others.
#[tokio::test(flavor = "multi_thread")]
async fn readers_who_do_not_read_hold_up_nobody() {
    let east = Proxy::before(Sandbox::shared().await.unwrap().east()).await.unwrap();
    east.add(Rule::patch("/root", Fault::Answer(Canned::refusal(403, "Forbidden", &"no ".repeat(1000), json!(null)))));
    let mut victim = Victim::start(&[]).await;
    let (parts, sent) = parts(&fan(2_000), &east);
    let mut execution = victim.client.open(parts).await.unwrap();
    let Some(Event::RunStarted(started)) = execution.next().await.unwrap().unwrap().event else { panic!() };
    let idle = client::Client::connect(&victim.url(), &victim.url()).await.unwrap();
    let mut unread = Vec::new();
    for _ in 0..200 {
        let request = WatchRunRequest { run_id: started.run_id.clone(), after_sequence: 0 };
        unread.push(idle.executor().watch_run(request).await.unwrap());
    }
    victim.serves_others().await;

    let outcome = finish(execution).await;

    assert_eq!(outcome.summary.counts["withheld"], 2_000);
    victim.serves_others().await;
    victim.took_little(sent, "readers who do not read");
}

/// Case 249: a result on which much would change fits into a message of 4 MiB, and its changes stand with its targets.
#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_that_changes_much_is_told_in_messages_that_fit() {
    let world = Sandbox::shared().await.unwrap();
    let east = Proxy::before(world.east()).await.unwrap();
    let name = format!("much-{}", uuid::Uuid::new_v4().simple());
    let map = |letter: &str| {
        let data: serde_json::Map<_, _> =
            (0..200).map(|number| (format!("{}{number}", "k".repeat(200)), json!(letter.repeat(4_000)))).collect();
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data})
    };
    let mut victim = Victim::start(&[]).await;
    let draft = |letter: &str| Draft::on(&["east"]).design(&name).apply(&name, &[], &map(letter));
    let (deploy, first) = parts(&draft("a"), &east);
    let outcome = finish(victim.client.open(deploy).await.unwrap()).await;
    assert_eq!(outcome.summary.counts["succeeded"], 1, "{outcome:?}");

    let (rehearse, second) = parts(&draft("b").dry_run(), &east);
    let outcome = finish(victim.client.open(rehearse).await.unwrap()).await;

    let told = outcome.events.iter().find_map(|event| match &event.event {
        Some(Event::TargetResult(target)) => Some(target.diff.len()),
        _ => None,
    });
    assert_eq!(told, Some(200), "{:?}", outcome.summary);
    assert!(outcome.results[0].targets[0].diff.is_empty());
    assert!(outcome.events.iter().all(|event| prost_len(event) <= 2 << 20));
    victim.took_little(first + second, "a dry run that changes much");
}

fn prost_len(event: &switchyard_proto::v1::ExecuteResponse) -> usize {
    prost::Message::encoded_len(event)
}
