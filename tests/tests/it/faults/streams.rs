//! Group 10: the Execute stream, its client, and the run behind it.

use futures::StreamExt as _;
use serde_json::json;
use switchyard_proto::v1::{
    self, Cancel, CancelledBy, ClusterAccess, ExecuteRequest, ListRunsRequest, OnDisconnect, Outcome, Verdict,
    WatchRunRequest, execute_request::Part, execute_response::Event,
};
use switchyard_service::status::{Reason, reason_of};
use switchyard_tests::{
    client::{self, Execution},
    fault::{Canned, Fault, Gate, Rule, Seen},
    plan::Draft,
};
use tonic::{Request, Status, codec::CompressionEncoding};
use tonic_types::StatusExt as _;

use super::stage::{Stage, check, within};

/// A chain of components, one after the other.
pub(super) fn chain(stage: &Stage, clusters: &[&str], number: usize) -> Draft {
    (0..number).fold(Draft::on(clusters), |draft, number| {
        let name = format!("map-{number}");
        let before = number.checked_sub(1).map(|before| format!("map-{before}"));
        draft.apply(&name, &before.iter().map(String::as_str).collect::<Vec<_>>(), &stage.config_map(&name))
    })
}

/// Everything that is sent for a plan.
fn parts(draft: &Draft, access: Vec<ClusterAccess>) -> Vec<Part> {
    let mut parts: Vec<_> = draft.seal().into_parts().collect();
    parts.splice(1..1, access.into_iter().map(Part::Cluster));
    parts
}

/// Reads until the run has said what its id is.
pub(super) async fn run_id(execution: &mut Execution) -> String {
    let first = within(execution.next()).await.unwrap().unwrap();
    let Some(Event::RunStarted(started)) = first.event else { panic!("{first:?}") };
    started.run_id
}

/// Reads a run's events from `after` on, to its end.
pub(super) async fn watch(stage: &Stage, run_id: &str, after: u64) -> client::Outcome {
    let request = WatchRunRequest { run_id: run_id.to_owned(), after_sequence: after };
    let mut events = stage.client.executor().watch_run(request).await.unwrap().into_inner();
    let mut outcome = client::Outcome::default();
    while let Some(event) = within(events.message()).await.unwrap() {
        let event = event.event.unwrap();
        assert_eq!(event.sequence, after + outcome.events.len() as u64 + 1);
        outcome.take(event);
    }
    outcome
}

/// Waits until a run has said how so many steps ended.
pub(super) async fn wait_for_results(stage: &Stage, run_id: &str, number: usize) {
    let request = WatchRunRequest { run_id: run_id.to_owned(), after_sequence: 0 };
    let mut events = stage.client.executor().watch_run(request).await.unwrap().into_inner();
    let mut results = 0;
    while results < number {
        let event = within(events.message()).await.unwrap().expect("the run tells of all steps").event.unwrap();
        results += usize::from(matches!(event.event, Some(Event::StepResult(_))));
    }
}

pub(super) fn refused(status: &Status, reason: Reason) {
    assert_eq!(reason_of(status), Some(reason), "{status:?}");
    assert_eq!(status.code(), reason.code());
    assert!(status.message().len() <= 1024);
}

/// Cases 108 and 115: headers come before anything was sent; each event comes when it happens, also when nothing follows.
#[tokio::test]
async fn headers_and_events_come_at_once() {
    let stage = Stage::set("at-once").await;
    let gate = Gate::shut();
    stage.east.add(Rule::patch("/map-0", Fault::Hold(gate.clone())));
    let draft = chain(&stage, &["east"], 1);

    let mut execution = within(stage.client.open(vec![])).await.unwrap();
    for part in parts(&draft, stage.access_for(&draft)) {
        execution.send(part).await;
    }
    run_id(&mut execution).await;
    let started = within(execution.next()).await.unwrap().unwrap();
    assert!(matches!(started.event, Some(Event::StepStarted(_))), "{started:?}");

    gate.open();
    let rest = within(execution.finish()).await.unwrap();
    assert_eq!(rest.verdict(), Verdict::Succeeded);
}

/// Who waits is told what for, also while nothing else happens.
#[tokio::test]
async fn waits_are_told_while_nothing_else_happens() {
    let stage = Stage::set("waits").await;
    let gate = Gate::shut();
    stage.east.add(Rule::patch("/map-0", Fault::Hold(gate.clone())));
    let draft = chain(&stage, &["east", "west"], 1);
    let mut execution = stage.client.execute(draft.seal(), stage.access_for(&draft)).await.unwrap();
    let mut outcome = client::Outcome::default();
    let progress = loop {
        let event = within(execution.next()).await.unwrap().unwrap();
        outcome.take(event.clone());
        if let Some(Event::StepProgress(progress)) = event.event {
            break progress;
        }
    };
    let target = v1::step_progress::Target::Cluster("east".into());
    assert_eq!((progress.step_id.as_str(), progress.target, progress.attempts), ("map-0", Some(target), 1));
    assert_eq!(progress.waiting_for, "an answer of cluster east");
    gate.open();
    while let Some(event) = within(execution.next()).await.unwrap() {
        outcome.take(event);
    }
    check(&outcome, 1);
    assert_eq!(outcome.verdict(), Verdict::Succeeded);
}

/// Case 111, D22: a plan that is cut short starts nothing, whichever way it is cut.
#[tokio::test]
async fn a_plan_that_is_cut_short_starts_nothing() {
    let stage = Stage::set("cut-short").await;
    let draft = chain(&stage, &["east"], 3);
    let all = parts(&draft, stage.access_for(&draft));

    for length in 0..all.len() {
        let mut execution = stage.client.open(all[..length].to_vec()).await.unwrap();
        execution.close();
        let status = within(execution.finish()).await.unwrap_err();
        refused(&status, Reason::PlanIncomplete);
    }
    let client = stage.executor.client().await.unwrap();
    let execution = client.open(all[..all.len() - 1].to_vec()).await.unwrap();
    drop((execution, client));

    // A whole plan on another stream: had anything else been started, it would have been before.
    stage.run(&chain(&stage, &["west"], 1)).await;
    assert_eq!(stage.east.dials(), 0);
}

/// Case 111: the end of the client's messages after the trailer is no cancel.
#[tokio::test]
async fn a_half_closed_stream_goes_on_after_the_trailer() {
    let stage = Stage::set("half-closed").await;
    let gate = Gate::shut();
    stage.east.add(Rule::patch("/map-0", Fault::Hold(gate.clone())));
    let draft = chain(&stage, &["east"], 3);
    let mut execution = stage.client.execute(draft.seal(), stage.access_for(&draft)).await.unwrap();
    execution.close();
    stage.east.wait_for(1, Seen::is_write).await.unwrap();
    gate.open();

    let outcome = within(execution.finish()).await.unwrap();

    check(&outcome, 3);
    assert_eq!(outcome.verdict(), Verdict::Succeeded);
}

/// Case 113: the caller's deadline stops the run, and the status says so after an account of everything.
#[tokio::test]
async fn the_callers_deadline_stops_the_run() {
    let stage = Stage::set("deadline").await;
    let gate = Gate::shut();
    stage.east.add(Rule::patch("/map-1", Fault::Hold(gate.clone())));
    let draft = chain(&stage, &["east"], 5);
    let mut events = with_timeout(&stage, &draft, "1500m").await;

    let mut outcome = client::Outcome::default();
    let status = loop {
        match within(events.message()).await {
            Ok(event) => outcome.take(event.expect("the stream ends with a status")),
            Err(status) => break status,
        }
        // One was done and three are cancelled: only what is in flight is waited for.
        if outcome.results.len() == 4 {
            gate.open();
        }
    };

    refused(&status, Reason::DeadlineExceeded);
    check(&outcome, 5);
    assert_eq!(outcome.outcomes()["map-1"], Outcome::Succeeded);
    assert_eq!(outcome.summary.counts["cancelled"], 3);
    assert_eq!(outcome.summary.cancelled_by(), CancelledBy::Deadline);
    assert_eq!(stage.east.count(Seen::is_write), 2, "nothing starts after the deadline");
}

/// Case 113: a write that hangs does not keep the caller beyond the deadline; the run is recorded all the same.
#[tokio::test]
async fn a_write_that_hangs_does_not_hold_the_caller_beyond_the_deadline() {
    let stage = Stage::set("deadline-hangs").await;
    let gate = Gate::shut();
    stage.east.add(Rule::patch("/map-1", Fault::Hold(gate.clone())));
    let draft = chain(&stage, &["east"], 5).step_timeout(600_000);
    let mut events = with_timeout(&stage, &draft, "1S").await;
    let first = within(events.message()).await.unwrap().unwrap();
    let Some(Event::RunStarted(started)) = first.event else { panic!("{first:?}") };

    let status = loop {
        match within(events.message()).await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the stream ended OK after its deadline"),
            Err(status) => break status,
        }
    };
    refused(&status, Reason::DeadlineExceeded);

    gate.open();
    let outcome = watch(&stage, &started.run_id, 0).await;
    check(&outcome, 5);
    assert_eq!(outcome.outcomes()["map-1"], Outcome::Succeeded);
    assert_eq!(outcome.summary.counts["cancelled"], 3);
}

/// Case 267: the caller's deadline ends the reading of a run that is to go on without its client, and not the run.
#[tokio::test]
async fn deadline_ends_only_the_reading_of_a_run_that_goes_on_without_its_client() {
    let stage = Stage::set("deadline-goes-on").await;
    let gate = Gate::shut();
    stage.east.add(Rule::patch("/map-1", Fault::Hold(gate.clone())));
    let draft = chain(&stage, &["east"], 3).options(|options| options.set_on_disconnect(OnDisconnect::Continue));
    let mut events = with_timeout(&stage, &draft, "1S").await;
    let first = within(events.message()).await.unwrap().unwrap();
    let Some(Event::RunStarted(started)) = first.event else { panic!("{first:?}") };
    let status = loop {
        match within(events.message()).await {
            Ok(event) => assert!(event.is_some(), "the stream ends with a status"),
            Err(status) => break status,
        }
    };
    refused(&status, Reason::DeadlineExceeded);
    assert!(status.message().contains(&started.run_id), "{status:?}");

    gate.open();
    let outcome = watch(&stage, &started.run_id, 0).await;
    check(&outcome, 3);
    assert_eq!((outcome.verdict(), outcome.summary.cancelled_by()), (Verdict::Succeeded, CancelledBy::Unspecified));
}

async fn with_timeout(stage: &Stage, draft: &Draft, timeout: &str) -> tonic::Streaming<v1::ExecuteResponse> {
    let messages = parts(draft, stage.access_for(draft)).into_iter().map(|part| ExecuteRequest { part: Some(part) });
    let messages = futures::stream::iter(messages).chain(futures::stream::pending());
    let mut request = Request::new(messages);
    request.metadata_mut().insert("grpc-timeout", timeout.parse().unwrap());
    stage.client.executor().execute(request).await.unwrap().into_inner()
}

/// Case 114: ten megabytes go through the stream; a message above the limit is refused and the connection stays.
#[tokio::test(flavor = "multi_thread")]
async fn large_plans_go_through_and_a_message_too_large_is_refused() {
    let stage = Stage::set("large-plan").await;
    let filled = |name: &str, bytes: usize| {
        let mut map = stage.config_map(name);
        map["data"]["key"] = json!("x".repeat(bytes));
        map
    };
    let large = (0..100).fold(Draft::on(&["east"]), |draft, number| {
        let name = format!("map-{number}");
        draft.apply(&name, &[], &filled(&name, 100 * 1024))
    });
    let too_large = Draft::on(&["east"]).apply("map", &[], &filled("map", 17 * 1024 * 1024));

    let status = stage.try_run(&too_large, stage.access_for(&too_large)).await.unwrap_err();
    refused(&status, Reason::MessageTooLarge);
    assert!(status.message().contains("16777216"), "{status:?}");

    let outcome = stage.run(&large).await;
    assert_eq!(outcome.summary.counts["succeeded"], 100, "{:?}", outcome.summary.counts);
}

/// The contract: a summary that is too large for one message comes in several, and only the last is complete.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_summary_comes_in_several_messages() {
    let stage = Stage::set("large-summary").await;
    let long = format!("admission webhook \"a.b\" denied the request: {}", "no ".repeat(2 * 1024));
    stage.east.add(Rule::patch("/configmaps/", Fault::Answer(Canned::refusal(403, "Forbidden", &long, json!(null)))));
    let draft = (0..600).fold(Draft::on(&["east"]), |draft, number| {
        let name = format!("map-{number}");
        draft.apply(&name, &[], &stage.config_map(&name))
    });

    let outcome = stage.run(&draft).await;

    let complete: Vec<_> = outcome
        .events
        .iter()
        .filter_map(|event| match &event.event {
            Some(Event::Summary(summary)) => Some(summary.complete),
            _ => None,
        })
        .collect();
    assert_eq!(complete, [false, true]);
    assert_eq!(outcome.summary.counts["failed"], 600);
    assert!(outcome.summary.rows.iter().all(|row| row.targets_failed == ["east"]), "{:?}", outcome.summary.rows[0]);

    // In one answer there is no room for all of it, which it says.
    let request = v1::GetRunRequest { run_id: outcome.summary.run_id.clone() };
    let summary = stage.client.executor().get_run(request).await.unwrap().into_inner().summary.unwrap();
    assert!(!summary.complete && (100..600).contains(&summary.rows.len()), "{} rows", summary.rows.len());
    assert_eq!((summary.verdict(), &summary.counts), (Verdict::Failed, &outcome.summary.counts));
    assert_eq!(summary.rows[..], outcome.summary.rows[..summary.rows.len()]);
}

/// Case 116 and the contract: whatever breaks the protocol before the trailer is refused, and nothing was started.
#[tokio::test]
async fn what_breaks_the_protocol_is_refused() {
    let stage = Stage::set("protocol").await;
    let draft = chain(&stage, &["east"], 2);
    let plan = draft.seal();
    let access = stage.access_for(&draft);
    let [header, trailer] = [Part::Header(plan.header.clone()), Part::Trailer(plan.trailer.clone())];
    let step = |number: usize| Part::Step(plan.steps[number].clone());
    let stray = client::kubeconfig("north", "x");
    let mut unknown = plan.steps[1].clone();
    unknown.depends_on = vec!["nobody".into()];
    let mut altered = plan.steps[1].clone();
    altered.component.as_mut().unwrap().name = "altered".into();
    let mut routeless = plan.steps[1].clone();
    routeless.route = None;
    let other = Part::Trailer(v1::PlanTrailer { plan_id: "0".repeat(64), step_count: 2 });
    let cases = [
        ("a step first", vec![step(0)], Reason::PlanInvalid),
        ("the trailer first", vec![trailer.clone()], Reason::PlanIncomplete),
        ("a second header", vec![header.clone(), header.clone()], Reason::PlanInvalid),
        ("an id twice", vec![header.clone(), step(0), step(0)], Reason::PlanInvalid),
        ("an unknown id", vec![header.clone(), step(0), Part::Step(unknown)], Reason::PlanInvalid),
        ("no route", vec![header.clone(), step(0), Part::Step(routeless)], Reason::PlanInvalid),
        ("too many steps", vec![header.clone(), step(0), step(1), Part::Step(altered.clone())], Reason::PlanInvalid),
        ("too few steps", vec![header.clone(), step(0), trailer.clone()], Reason::PlanIncomplete),
        (
            "a step altered",
            vec![header.clone(), step(0), Part::Step(altered), trailer.clone()],
            Reason::PlanDigestMismatch,
        ),
        ("another trailer", vec![header.clone(), step(0), step(1), other], Reason::PlanDigestMismatch),
        ("access twice", vec![Part::Cluster(access[0].clone()), Part::Cluster(access[0].clone())], Reason::PlanInvalid),
        (
            "access to a stranger",
            vec![header.clone(), step(0), step(1), Part::Cluster(stray), trailer.clone()],
            Reason::PlanInvalid,
        ),
        ("a cancel", vec![header.clone(), Part::Cancel(Cancel::default())], Reason::RunCancelled),
    ];

    for (what, parts, reason) in cases {
        let execution = stage.client.open(parts).await.unwrap();
        let status = within(execution.finish()).await.unwrap_err();
        assert_eq!(reason_of(&status), Some(reason), "{what}: {status:?}");
        assert!(status.get_details_error_info().is_some(), "{what}");
    }
    // A part that this version does not know arrives as none.
    let nothing = futures::stream::iter([ExecuteRequest { part: None }]);
    let mut events = stage.client.executor().execute(nothing).await.unwrap().into_inner();
    refused(&within(events.message()).await.unwrap_err(), Reason::PlanInvalid);
    assert_eq!(stage.east.dials(), 0);
}

/// Cases 116 and 269: one stream carries one plan. Whatever part but a cancel comes after the trailer, the stream is refused and
/// the run goes on, whether it would without its client or not.
#[tokio::test]
async fn a_second_plan_on_one_stream_is_refused_and_the_run_goes_on() {
    let stage = Stage::set("second-plan").await;
    for policy in [OnDisconnect::Stop, OnDisconnect::Continue] {
        let draft = chain(&stage, &["east"], 2).options(|options| options.set_on_disconnect(policy));
        let plan = draft.seal();
        let access = stage.access_for(&draft).remove(0);
        let strays = [
            Part::Header(plan.header.clone()),
            Part::Step(plan.steps[0].clone()),
            Part::Trailer(plan.trailer.clone()),
            Part::Cluster(access),
        ];
        for stray in strays {
            let gate = Gate::shut();
            stage.east.add(Rule::patch("/map-0", Fault::Hold(gate.clone())).times(1));
            let mut execution = stage.client.execute(draft.seal(), stage.access_for(&draft)).await.unwrap();
            let run_id = run_id(&mut execution).await;
            execution.send(stray).await;

            let status = loop {
                match within(execution.next()).await {
                    Ok(event) => assert!(event.is_some(), "the breach is answered"),
                    Err(status) => break status,
                }
            };
            refused(&status, Reason::PlanInvalid);
            assert!(status.message().contains(&run_id), "{status:?}");
            gate.open();
            let outcome = watch(&stage, &run_id, 0).await;
            assert_eq!(outcome.verdict(), Verdict::Succeeded, "{policy:?}: {:?}", outcome.summary);
            assert_eq!(outcome.summary.cancelled_by(), CancelledBy::Unspecified);
        }
    }
    let runs = stage.client.executor().list_runs(ListRunsRequest::default()).await.unwrap().into_inner().runs;
    assert_eq!(runs.len(), 8);
}

/// Case 334: compressed requests are taken in.
#[tokio::test]
async fn a_compressed_plan_is_carried_out() {
    let stage = Stage::set("gzip").await;
    let draft = chain(&stage, &["east"], 2);
    let messages = parts(&draft, stage.access_for(&draft)).into_iter().map(|part| ExecuteRequest { part: Some(part) });
    let mut client = stage.client.executor().send_compressed(CompressionEncoding::Gzip);

    let mut events = client.execute(futures::stream::iter(messages)).await.unwrap().into_inner();

    let mut outcome = client::Outcome::default();
    while let Some(event) = within(events.message()).await.unwrap() {
        outcome.take(event);
    }
    check(&outcome, 2);
    assert_eq!(outcome.verdict(), Verdict::Succeeded);
}
