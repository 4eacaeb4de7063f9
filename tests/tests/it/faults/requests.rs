//! Calls that are repeated: a request id stands for one run, whatever became of the calls that named it.

use std::{collections::HashMap, time::Duration};

use switchyard_proto::v1::{
    self, CancelledBy, ClusterAccess, GetRunRequest, ListRunsRequest, OnDisconnect, RunInfo, Start, Verdict,
    execute_request::Part, execute_response::Event,
};
use switchyard_service::status::Reason;
use switchyard_tests::{
    client::{Client, Execution, Outcome},
    fault::{Fault, Gate, Rule, Seen},
    plan::Draft,
    relay::Relay,
    sandbox::Cluster,
};
use tonic::Status;
use tonic_types::StatusExt as _;
use uuid::Uuid;

use super::{
    stage::{Stage, check, eventually, within},
    streams::{chain, refused, run_id, wait_for_results, watch},
};

fn start(request_id: &str, labels: &[(&str, &str)]) -> Start {
    let labels = labels.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
    Start { request_id: request_id.to_owned(), labels }
}

/// Everything that is sent for a plan that is started so.
fn parts(start: &Start, draft: &Draft, access: Vec<ClusterAccess>) -> Vec<Part> {
    let access = access.into_iter().map(Part::Cluster);
    std::iter::once(Part::Start(start.clone())).chain(access).chain(draft.seal().into_parts()).collect()
}

/// A client on a connection of its own, so that it is gone when it is dropped.
async fn call(stage: &Stage, start: &Start, draft: &Draft) -> (Client, Execution) {
    let client = stage.executor.client().await.unwrap();
    let execution = client.open(parts(start, draft, stage.access_for(draft))).await.unwrap();
    (client, execution)
}

async fn finish(stage: &Stage, start: &Start, draft: &Draft) -> Result<Outcome, Status> {
    let (_client, execution) = call(stage, start, draft).await;
    within(execution.finish()).await
}

async fn list(stage: &Stage, request: ListRunsRequest) -> v1::ListRunsResponse {
    stage.client.executor().list_runs(request).await.unwrap().into_inner()
}

async fn runs_labelled(stage: &Stage, key: &str, value: &str) -> Vec<RunInfo> {
    let labels = HashMap::from([(key.to_owned(), value.to_owned())]);
    list(stage, ListRunsRequest { labels, ..ListRunsRequest::default() }).await.runs
}

fn random(below: u128) -> u64 {
    (Uuid::new_v4().as_u128() % below) as u64
}

/// Writes of the plan's own objects on both clusters.
fn writes(stage: &Stage, name: &str) -> usize {
    let of_object = |seen: &Seen| seen.is_write() && seen.path.ends_with(&format!("/configmaps/{name}"));
    stage.east.count(of_object) + stage.west.count(of_object)
}

/// Runs that write to configmaps of the stage's namespace, by the audit logs of both clusters: how often each wrote on each.
async fn runs_by_audit(stage: &Stage, plans: usize) -> [HashMap<String, usize>; 2] {
    let told = async |cluster: &Cluster| {
        let mut runs = HashMap::new();
        // The API server writes it just after it has answered.
        eventually("the audit log", async || {
            runs.clear();
            for event in cluster.audit().unwrap() {
                if event.is_about("configmaps", &stage.namespace) && event.is_write() {
                    let run = event.user_agent.rsplit_once(" run/").map_or("none", |(_, run)| run);
                    *runs.entry(run.to_owned()).or_default() += 1;
                }
            }
            runs.values().sum::<usize>() >= plans * PARTS
        })
        .await;
        runs
    };
    [told(stage.world.east()).await, told(stage.world.west()).await]
}

/// Components of a plan whose calls are cut.
const PARTS: usize = 4;

/// A call that is cut at any moment, also before the run began, and repeated until it is answered to its end: the plan is
/// carried out once. The API servers are the witness: one write a component and cluster, whatever was cut, and as many runs as
/// plans. `SWITCHYARD_CUTS` says how many plans (else 36).
#[tokio::test(flavor = "multi_thread")]
async fn calls_that_are_cut_and_repeated_are_one_run() {
    let plans = std::env::var("SWITCHYARD_CUTS").map_or(36, |text| text.parse().unwrap());
    let stage = Stage::set_with("repeated", &[]).await;
    let executor = stage.executor.url().trim_start_matches("http://").parse().unwrap();
    let (mut before_the_run, mut cuts) = (0, 0);
    for number in 0..plans {
        let name = |part: usize| format!("cut-{number}-{part}");
        let draft = (0..PARTS).fold(Draft::on(&["east", "west"]), |draft, part: usize| {
            let before = part.checked_sub(1).map(name);
            let before: Vec<_> = before.iter().map(String::as_str).collect();
            draft.apply(&name(part), &before, &stage.config_map(&name(part)))
        });
        let draft = draft.options(|options| options.set_on_disconnect(OnDisconnect::Continue));
        let start = start(&Uuid::new_v4().to_string(), &[("cut", &number.to_string())]);

        let mut told = Vec::new();
        for _ in 0..1 + random(3) {
            cuts += 1;
            // The connection ends without a word, as when the network or the caller's machine is gone.
            let relay = Relay::before(executor).await.unwrap();
            let url = format!("http://{}", relay.address());
            let client = Client::connect(&url, &url).await.unwrap();
            let mut parts = parts(&start, &draft, stage.access_for(&draft));
            match number % 3 {
                // In the middle of the plan, or right behind it.
                0 => parts.truncate(random(parts.len() as u128 + 1) as usize),
                // At any moment from before the run began until after its end.
                1 => {}
                // After some events.
                _ => {
                    let mut execution = client.open(parts).await.unwrap();
                    for _ in 0..random(8) {
                        if let Ok(Some(event)) = within(execution.next()).await {
                            told.extend(started(event));
                        }
                    }
                    relay.cut();
                    continue;
                }
            }
            let execution = client.open(parts).await.unwrap();
            tokio::time::sleep(Duration::from_millis(random(60))).await;
            relay.cut();
            drop((execution, client));
        }
        before_the_run += usize::from(runs_labelled(&stage, "cut", &number.to_string()).await.is_empty());

        let outcome = finish(&stage, &start, &draft).await.unwrap();
        check(&outcome, PARTS);
        assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:?}", outcome.summary);
        let run_id = &outcome.summary.run_id;
        assert!(told.iter().all(|told| told == run_id), "{told:?} and {run_id}");
        let runs = runs_labelled(&stage, "cut", &number.to_string()).await;
        assert_eq!(runs.iter().map(|run| &run.run_id).collect::<Vec<_>>(), [run_id]);
        for part in 0..PARTS {
            assert_eq!(writes(&stage, &name(part)), 2, "one a cluster, of {}", name(part));
        }
    }
    println!("{plans} plans, {cuts} cuts, {before_the_run} plans were cut before their run began");
    assert!((1..plans).contains(&before_the_run), "{before_the_run} of {plans} were cut before the run began");
    for runs in runs_by_audit(&stage, plans).await {
        println!("{} runs wrote, {} writes", runs.len(), runs.values().sum::<usize>());
        assert_eq!(runs.len(), plans, "runs that wrote");
        assert!(runs.values().all(|&writes| writes == PARTS), "{runs:?}");
    }
}

fn started(event: v1::ExecuteResponse) -> Option<String> {
    match event.event {
        Some(Event::RunStarted(started)) => Some(started.run_id),
        _ => None,
    }
}

/// Calls that come at once are one run, and each is told all of it.
#[tokio::test(flavor = "multi_thread")]
async fn calls_that_come_at_once_are_one_run() {
    let stage = Stage::set_with("at-once-named", &[]).await;
    let draft = chain(&stage, &["east", "west"], 3);
    let start = start("the-same", &[]);
    let outcomes = futures::future::join_all((0..8).map(|_| finish(&stage, &start, &draft))).await;
    let outcomes: Vec<_> = outcomes.into_iter().map(Result::unwrap).collect();
    for outcome in &outcomes {
        check(outcome, 3);
        assert_eq!(outcome.events, outcomes[0].events, "everybody is told the same");
    }
    for name in ["map-0", "map-1", "map-2"] {
        assert_eq!(writes(&stage, name), 2);
    }
    assert_eq!(list(&stage, ListRunsRequest::default()).await.runs.len(), 1);

    // After its end as well.
    let later = finish(&stage, &start, &draft).await.unwrap();
    assert_eq!(later.events, outcomes[0].events);
    assert_eq!(writes(&stage, "map-0"), 2);
}

/// A request id stands for one plan; a run that has one goes on for as long as one of its callers is there.
#[tokio::test]
async fn a_run_stops_when_the_last_of_its_callers_has_gone() {
    let stage = Stage::set("last-caller").await;
    let [gate, last] = [Gate::shut(), Gate::shut()];
    stage.east.add(Rule::patch("/map-1", Fault::Hold(gate.clone())));
    stage.east.add(Rule::patch("/map-3", Fault::Hold(last.clone())));
    let draft = chain(&stage, &["east"], 5);
    let start = start("shared", &[]);
    let (first, mut one) = call(&stage, &start, &draft).await;
    let id = run_id(&mut one).await;
    stage.east.wait_for(2, Seen::is_write).await.unwrap();
    let (second, mut other) = call(&stage, &start, &draft).await;
    assert_eq!(run_id(&mut other).await, id, "the run that goes on, from its first event");

    let another = finish(&stage, &start, &chain(&stage, &["west"], 1)).await.unwrap_err();
    refused(&another, Reason::RequestIdReused);
    assert_eq!(another.get_details_error_info().unwrap().metadata["run_id"], id);
    assert_eq!(stage.west.dials(), 0);

    // The one that is left is not disturbed by that.
    drop((one, first));
    gate.open();
    stage.east.wait_for(4, Seen::is_write).await.unwrap();
    drop((other, second));
    wait_for_results(&stage, &id, 4).await;
    last.open();
    let told = finish(&stage, &start, &draft).await.unwrap();
    check(&told, 5);
    assert_eq!((told.summary.run_id.as_str(), told.summary.counts["cancelled"]), (id.as_str(), 1));
    assert_eq!(told.summary.cancelled_by(), CancelledBy::Disconnect);
    assert_eq!(told.events, watch(&stage, &id, 0).await.events);
    assert_eq!(stage.east.count(Seen::is_write), 4);
}

/// A call that is cut before its run began leaves nothing behind that would be in the way of the next.
#[tokio::test]
async fn a_call_that_is_cut_before_its_run_began_is_in_nobodys_way() {
    let stage = Stage::set_with("cut-early", &[]).await;
    let gate = Gate::shut();
    // One cluster is locked and the other is not yet: the run has not begun.
    stage.west.add(Rule::patch("/leases/", Fault::Hold(gate.clone())).times(1));
    let draft = chain(&stage, &["east", "west"], 2);
    let start = start("cut-early", &[]);
    let (client, execution) = call(&stage, &start, &draft).await;
    for cluster in [&stage.east, &stage.west] {
        cluster.wait_for(1, |seen| seen.path.contains("/leases/")).await.unwrap();
    }
    drop((client, execution));
    let again = finish(&stage, &start, &draft);
    let opened = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        gate.open();
    };
    let (outcome, ()) = tokio::join!(again, opened);
    let outcome = outcome.unwrap();
    assert_eq!((outcome.verdict(), outcome.summary.cancelled_by()), (Verdict::Succeeded, CancelledBy::Unspecified));
    assert_eq!(list(&stage, ListRunsRequest::default()).await.runs.len(), 1);
    assert_eq!(writes(&stage, "map-0"), 2, "one a cluster");
}

/// What a run is called is told wherever it is told of, and what is too long or out of place is refused.
#[tokio::test]
async fn labels_are_told_and_bounded() {
    let stage = Stage::set("labels").await;
    let draft = chain(&stage, &["east"], 1);
    let labels = [("team", "web"), ("example.com/ticket", "4711")];
    let outcome = finish(&stage, &start("", &labels), &draft).await.unwrap();
    let told = &outcome.started().unwrap().labels;
    assert_eq!(*told, start("", &labels).labels);
    let run = &runs_labelled(&stage, "team", "web").await[0];
    assert_eq!((&run.run_id, &run.labels), (&outcome.summary.run_id, told));
    assert!(runs_labelled(&stage, "team", "shop").await.is_empty());

    let refusals = [start(&"x".repeat(129), &[]), start("a b", &[]), start("", &[("", "x")])];
    for wrong in refusals {
        let status = finish(&stage, &wrong, &draft).await.unwrap_err();
        refused(&status, Reason::PlanInvalid);
        let violations = status.get_details_bad_request().unwrap().field_violations;
        assert!(violations[0].field.starts_with("start."), "{violations:?}");
    }
    // First of all parts, and once.
    let mut late = parts(&start("late", &[]), &draft, stage.access_for(&draft));
    late.swap(0, 1);
    let status = within(stage.client.open(late).await.unwrap().finish()).await.unwrap_err();
    refused(&status, Reason::PlanInvalid);
    assert_eq!(stage.east.count(Seen::is_write), 1);
}

/// Pages of runs, newest first, and one run with all that is kept of it.
#[tokio::test]
async fn runs_are_listed_in_pages_and_shown_one_by_one() {
    let stage = Stage::set("pages").await;
    let gate = Gate::shut();
    let mut ids = Vec::new();
    for number in 0..5 {
        let draft = chain(&stage, &[if number == 3 { "west" } else { "east" }], 1);
        let draft = if number == 4 { draft.design("of-its-own").dry_run() } else { draft };
        ids.push(stage.run(&draft).await.summary.run_id);
    }
    stage.west.add(Rule::patch("/map-0", Fault::Hold(gate.clone())));
    let going = chain(&stage, &["west"], 1).design("of-its-own");
    let (_client, mut execution) = call(&stage, &start("", &[]), &going).await;
    ids.push(run_id(&mut execution).await);
    ids.reverse();

    let mut pages: Vec<Vec<String>> = Vec::new();
    let mut request = ListRunsRequest { page_size: 4, ..ListRunsRequest::default() };
    loop {
        let page = list(&stage, request.clone()).await;
        pages.push(page.runs.into_iter().map(|run| run.run_id).collect());
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            break;
        }
    }
    assert_eq!(pages, [ids[..4].to_vec(), ids[4..].to_vec()]);

    let any = ListRunsRequest::default;
    for (request, wanted) in [
        (ListRunsRequest { design_id: "of-its-own".into(), ..any() }, vec![0, 1]),
        (ListRunsRequest { cluster: "west".into(), ..any() }, vec![0, 2]),
        (ListRunsRequest { going_on: Some(true), ..any() }, vec![0]),
        (ListRunsRequest { going_on: Some(false), cluster: "west".into(), ..any() }, vec![2]),
        (ListRunsRequest { verdict: Verdict::Succeeded.into(), ..any() }, vec![1, 2, 3, 4, 5]),
        (ListRunsRequest { verdict: Verdict::Failed.into(), ..any() }, vec![]),
    ] {
        let told = list(&stage, request.clone()).await;
        let told: Vec<_> = told.runs.into_iter().map(|run| run.run_id).collect();
        assert_eq!(told, wanted.iter().map(|&at: &usize| ids[at].clone()).collect::<Vec<_>>(), "{request:?}");
    }
    let wrong =
        stage.client.executor().list_runs(ListRunsRequest { page_token: "x".into(), ..any() }).await.unwrap_err();
    refused(&wrong, Reason::RequestInvalid);

    let get = async |at: usize| {
        let request = GetRunRequest { run_id: ids[at].clone() };
        stage.client.executor().get_run(request).await.unwrap().into_inner()
    };
    let run = get(0).await;
    assert_eq!((run.summary, run.run.unwrap().verdict()), (None, Verdict::Unspecified));
    assert_eq!(run.header.as_ref(), Some(&going.seal().header));
    gate.open();
    within(execution.finish()).await.unwrap();
    let outcome = watch(&stage, &ids[0], 0).await;
    let started = outcome.started().unwrap();
    assert_eq!((started.operation(), started.dry_run, started.target_count), (v1::Operation::Deploy, false, 1));
    assert_eq!((&started.design, &started.options), (&going.seal().header.design, &going.seal().header.options));
    let run = get(0).await;
    assert_eq!((run.summary, run.run.unwrap().verdict()), (Some(outcome.summary), Verdict::Succeeded));
    let unknown = stage.client.executor().get_run(GetRunRequest { run_id: "none".into() }).await.unwrap_err();
    refused(&unknown, Reason::RunUnknown);
}

/// Case 362: a reading that begins at the end of a run is told how it ended, and one that begins beyond is refused.
#[tokio::test]
async fn reading_from_the_end_of_a_run_ends_with_its_summary() {
    let stage = Stage::set("at-the-end").await;
    let outcome = stage.run(&chain(&stage, &["east"], 1)).await;
    let (id, last) = (outcome.summary.run_id.clone(), outcome.events.last().unwrap().clone());
    let read = async |after: u64| {
        let request = v1::WatchRunRequest { run_id: id.clone(), after_sequence: after };
        stage.client.executor().watch_run(request).await.map(tonic::Response::into_inner)
    };
    let mut events = read(last.sequence).await.unwrap();
    assert_eq!(within(events.message()).await.unwrap().unwrap().event, Some(last.clone()));
    assert_eq!(within(events.message()).await.unwrap(), None);
    let beyond = read(last.sequence + 1).await.unwrap_err();
    refused(&beyond, Reason::SequenceUnknown);
    assert_eq!(beyond.get_details_error_info().unwrap().metadata["last_sequence"], last.sequence.to_string());
}
