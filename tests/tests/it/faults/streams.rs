//! Group 10: the Execute stream, its client, and the run behind it.

use std::time::Duration;

use futures::StreamExt as _;
use serde_json::json;
use switchyard_proto::v1::{
    self, Cancel, CancelRunRequest, ClusterAccess, ExecuteRequest, ListRunsRequest, OnDisconnect, Outcome, Verdict,
    WatchRunRequest, execute_request::Part, execute_response::Event,
};
use switchyard_service::status::{Reason, reason_of};
use switchyard_tests::{
    client::{self, Execution},
    fault::{Canned, Fault, Gate, Rule, Seen},
    plan::Draft,
    programs::{Program, Running},
};
use tonic::{Code, Request, Status};
use tonic_types::StatusExt as _;

use super::stage::{Stage, check, eventually, within};

/// A chain of components, one after the other.
fn chain(stage: &Stage, clusters: &[&str], number: usize) -> Draft {
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
async fn run_id(execution: &mut Execution) -> String {
    let first = within(execution.next()).await.unwrap().unwrap();
    let Some(Event::RunStarted(started)) = first.event else { panic!("{first:?}") };
    started.run_id
}

/// Reads a run's events from `after` on, to its end.
async fn watch(stage: &Stage, run_id: &str, after: u64) -> client::Outcome {
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
async fn wait_for_results(stage: &Stage, run_id: &str, number: usize) {
    let request = WatchRunRequest { run_id: run_id.to_owned(), after_sequence: 0 };
    let mut events = stage.client.executor().watch_run(request).await.unwrap().into_inner();
    let mut results = 0;
    while results < number {
        let event = within(events.message()).await.unwrap().expect("the run tells of all steps").event.unwrap();
        results += usize::from(matches!(event.event, Some(Event::StepResult(_))));
    }
}

fn refused(status: &Status, reason: Reason) {
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

/// Case 110, D23: a client that vanishes stops what was not begun; what is in flight ends and is recorded.
#[tokio::test]
async fn a_client_that_vanishes_stops_the_run_and_no_write() {
    let stage = Stage::set("vanishes").await;
    let gate = Gate::shut();
    stage.east.add(Rule::patch("/map-2", Fault::Hold(gate.clone())));
    let draft = chain(&stage, &["east"], 10);
    // A connection of its own, so that it is gone with the client.
    let client = stage.executor.client().await.unwrap();
    let mut execution = client.execute(draft.seal(), stage.access_for(&draft)).await.unwrap();
    let run_id = run_id(&mut execution).await;
    stage.east.wait_for(3, Seen::is_write).await.unwrap();

    drop((execution, client));
    // Two were done; of the others all but the one in flight are cancelled.
    wait_for_results(&stage, &run_id, 9).await;
    gate.open();
    let outcome = watch(&stage, &run_id, 0).await;

    check(&outcome, 10);
    assert_eq!(outcome.outcomes()["map-2"], Outcome::Succeeded, "{:?}", outcome.result("map-2"));
    assert_eq!(outcome.summary.counts["cancelled"], 7, "{:?}", outcome.summary.counts);
    assert_eq!(outcome.verdict(), Verdict::Cancelled);
    assert!(outcome.summary.rows[9].because.contains("client went away"), "{:?}", outcome.summary.rows[9]);
    assert_eq!(stage.east.count(Seen::is_write), 3);
    assert!(stage.object("v1/configmaps", "map-2").await.is_some());
}

/// Case 110, D23: with `on_disconnect: CONTINUE` the run goes on to its end, and can be read there.
#[tokio::test]
async fn a_run_that_is_to_go_on_without_its_client_does() {
    let stage = Stage::set("goes-on").await;
    let gate = Gate::shut();
    stage.east.add(Rule::patch("/map-0", Fault::Hold(gate.clone())));
    let draft = chain(&stage, &["east"], 5).options(|options| options.set_on_disconnect(OnDisconnect::Continue));
    let client = stage.executor.client().await.unwrap();
    let mut execution = client.execute(draft.seal(), stage.access_for(&draft)).await.unwrap();
    let run_id = run_id(&mut execution).await;
    stage.east.wait_for(1, Seen::is_write).await.unwrap();

    drop((execution, client));
    gate.open();

    let outcome = watch(&stage, &run_id, 0).await;
    check(&outcome, 5);
    assert_eq!(outcome.verdict(), Verdict::Succeeded);
}

/// Case 110: clients that vanish leave neither runs nor connections behind.
#[tokio::test]
async fn clients_that_vanish_leave_nothing_behind() {
    let stage = Stage::set_with("leaves-nothing", &["--max-runs", "20"]).await;
    for _ in 0..30 {
        let draft = chain(&stage, &["east"], 3);
        let client = stage.executor.client().await.unwrap();
        let mut execution = client.execute(draft.seal(), stage.access_for(&draft)).await.unwrap();
        run_id(&mut execution).await;
        drop((execution, client));
        // More than may go on at once come and go, so whatever stays would be in the way.
    }
    eventually("all runs to end", async || {
        let runs = stage.client.executor().list_runs(ListRunsRequest {}).await.unwrap().into_inner().runs;
        runs.len() == 30 && runs.iter().all(|run| run.finished.is_some())
    })
    .await;
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

/// Case 116: one stream carries one plan. What comes after the trailer is refused; a run that is to go on without its client
/// goes on.
#[tokio::test]
async fn a_second_plan_on_one_stream_is_refused() {
    let stage = Stage::set("second-plan").await;
    for policy in [OnDisconnect::Stop, OnDisconnect::Continue] {
        let gate = Gate::shut();
        stage.east.add(Rule::patch("/map-0", Fault::Hold(gate.clone())).times(1));
        let draft = chain(&stage, &["east"], 2).options(|options| options.set_on_disconnect(policy));
        let mut execution = stage.client.execute(draft.seal(), stage.access_for(&draft)).await.unwrap();
        let run_id = run_id(&mut execution).await;
        execution.send(Part::Trailer(draft.seal().trailer)).await;

        let status = loop {
            match within(execution.next()).await {
                Ok(event) => assert!(event.is_some(), "the breach is answered"),
                Err(status) => break status,
            }
        };
        refused(&status, Reason::PlanInvalid);
        gate.open();
        let outcome = watch(&stage, &run_id, 0).await;
        let expected = if policy == OnDisconnect::Stop { Verdict::Cancelled } else { Verdict::Succeeded };
        assert_eq!(outcome.verdict(), expected);
    }
    let runs = stage.client.executor().list_runs(ListRunsRequest {}).await.unwrap().into_inner().runs;
    assert_eq!(runs.len(), 2);
}

/// D23, case 116: a cancel stops what was not begun, and a second one changes nothing.
#[tokio::test]
async fn a_cancel_stops_what_was_not_begun() {
    let stage = Stage::set("cancel").await;
    let gate = Gate::shut();
    stage.east.add(Rule::patch("/map-1", Fault::Hold(gate.clone())));
    let draft = chain(&stage, &["east", "west"], 4);
    let mut execution = stage.client.execute(draft.seal(), stage.access_for(&draft)).await.unwrap();
    stage.east.wait_for(2, Seen::is_write).await.unwrap();
    execution.cancel("changed my mind").await;
    execution.cancel("again").await;
    let mut outcome = client::Outcome::default();
    while let Some(event) = within(execution.next()).await.unwrap() {
        outcome.take(event);
        if outcome.results.len() == 3 {
            gate.open();
        }
    }

    check(&outcome, 4);
    assert_eq!(outcome.verdict(), Verdict::Cancelled);
    assert_eq!(outcome.summary.counts["succeeded"], 2);
    let row = &outcome.summary.rows[3];
    assert!(row.outcome() == Outcome::Cancelled && row.because.contains("changed my mind"), "{row:?}");
    let error = outcome.result("map-3").unwrap().error.as_ref().unwrap();
    assert_eq!(error.reason, "CANCELLED");
}

/// The contract: ListRuns, WatchRun from any place on, CancelRun, and runs that nobody knows.
#[tokio::test]
async fn runs_can_be_listed_read_again_and_cancelled_by_id() {
    let stage = Stage::set("runs").await;
    let finished = stage.run(&chain(&stage, &["west"], 2)).await;
    let finished_id = finished.summary.run_id.clone();
    let gate = Gate::shut();
    stage.east.add(Rule::patch("/map-0", Fault::Hold(gate.clone())));
    let draft = chain(&stage, &["east"], 3);
    let mut execution = stage.client.execute(draft.seal(), stage.access_for(&draft)).await.unwrap();
    let going_id = run_id(&mut execution).await;
    stage.east.wait_for(1, Seen::is_write).await.unwrap();
    let mut executor = stage.client.executor();

    let runs = executor.list_runs(ListRunsRequest {}).await.unwrap().into_inner().runs;
    assert_eq!(runs.iter().map(|run| run.run_id.as_str()).collect::<Vec<_>>(), [&going_id, &finished_id]);
    assert_eq!((runs[0].verdict(), &runs[0].finished), (Verdict::Unspecified, &None));
    assert_eq!(runs[1].verdict(), Verdict::Succeeded);
    assert_eq!(runs[1].last_sequence, finished.events.len() as u64);
    assert_eq!((runs[1].clusters.as_slice(), runs[1].dry_run), ([String::from("west")].as_slice(), false));

    // A finished run reads as it did the first time, from any place on; beyond its end there is nothing.
    assert_eq!(watch(&stage, &finished_id, 0).await.events, finished.events);
    assert_eq!(watch(&stage, &finished_id, 3).await.events, finished.events[3..]);
    assert_eq!(watch(&stage, &finished_id, 1_000).await.events, []);

    let cancel = CancelRunRequest { run_id: going_id.clone(), reason: "by hand".to_owned() };
    let run = executor.cancel_run(cancel).await.unwrap().into_inner().run.unwrap();
    assert_eq!(run.run_id, going_id);
    wait_for_results(&stage, &going_id, 2).await;
    gate.open();
    let outcome = within(execution.finish()).await.unwrap();
    assert_eq!(outcome.verdict(), Verdict::Cancelled);
    assert!(outcome.summary.rows[2].because.contains("by hand"));
    // It has ended: nothing changes.
    let late = CancelRunRequest { run_id: finished_id, reason: String::new() };
    assert_eq!(executor.cancel_run(late).await.unwrap().into_inner().run.unwrap().verdict(), Verdict::Succeeded);

    let nobody = "00000000-0000-0000-0000-000000000000".to_owned();
    let watched = WatchRunRequest { run_id: nobody.clone(), after_sequence: 0 };
    refused(&executor.watch_run(watched).await.unwrap_err(), Reason::RunUnknown);
    let cancelled = CancelRunRequest { run_id: nobody, reason: String::new() };
    refused(&executor.cancel_run(cancelled).await.unwrap_err(), Reason::RunUnknown);
}

/// Case 55, D24: a second run of one design on one cluster is refused and named the first; anything else is let in.
#[tokio::test]
async fn a_second_run_of_one_design_on_one_cluster_is_refused() {
    let stage = Stage::set("conflicting").await;
    let gate = Gate::shut();
    stage.east.add(Rule::patch("/map-0", Fault::Hold(gate.clone())).times(1));
    let first = chain(&stage, &["east"], 1).design("one-design");
    let mut execution = stage.client.execute(first.seal(), stage.access_for(&first)).await.unwrap();
    let run_id = run_id(&mut execution).await;
    stage.east.wait_for(1, Seen::is_write).await.unwrap();

    let again = chain(&stage, &["east", "west"], 2).design("one-design");
    let status = stage.try_run(&again, stage.access()).await.unwrap_err();
    refused(&status, Reason::RunConflict);
    assert_eq!(status.code(), Code::Aborted);
    assert_eq!(status.get_details_error_info().unwrap().metadata["run_id"], run_id);
    assert_eq!(stage.west.count(Seen::is_write), 0);

    // Another cluster, and another design on the same one.
    assert_eq!(stage.run(&chain(&stage, &["west"], 1).design("one-design")).await.verdict(), Verdict::Succeeded);
    assert_eq!(stage.run(&chain(&stage, &["east"], 1).design("another")).await.verdict(), Verdict::Succeeded);
    gate.open();
    assert_eq!(within(execution.finish()).await.unwrap().verdict(), Verdict::Succeeded);
    assert_eq!(stage.run(&again).await.verdict(), Verdict::Succeeded);
}

/// The contract, Errors: no more runs at once than were permitted, and the caller is told when to come back.
#[tokio::test]
async fn more_runs_than_permitted_are_refused() {
    let stage = Stage::set_with("too-many", &["--max-runs", "1"]).await;
    let gate = Gate::shut();
    stage.east.add(Rule::patch("/map-0", Fault::Hold(gate.clone())).times(1));
    let first = chain(&stage, &["east"], 1);
    let mut execution = stage.client.execute(first.seal(), stage.access_for(&first)).await.unwrap();
    run_id(&mut execution).await;

    let second = chain(&stage, &["west"], 1);
    let status = stage.try_run(&second, stage.access_for(&second)).await.unwrap_err();
    refused(&status, Reason::TooManyRuns);
    assert!(status.get_details_retry_info().unwrap().retry_delay.unwrap() > Duration::ZERO);
    assert!(status.get_details_quota_failure().is_some());

    gate.open();
    within(execution.finish()).await.unwrap();
    assert_eq!(stage.run(&second).await.verdict(), Verdict::Succeeded);
}

/// Case 117: a client that does not read holds up nothing, costs little memory, and misses nothing when it reads again.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_holds_up_nothing_and_misses_nothing() {
    const STEPS: usize = 1_500;
    let stage = Stage::set("slow-reader").await;
    let mut program = Program::Executor.prepare().start().await.unwrap();
    let client = client::Client::connect(&program.url(), &program.url()).await.unwrap();
    let direct = vec![client::kubeconfig("east", stage.world.east().kubeconfig_admin().to_string())];
    let draft = (0..STEPS).fold(Draft::on(&["east"]), |draft, number| {
        let name = format!("map-{number}");
        draft.apply(&name, &[], &stage.config_map(&name))
    });
    client.execute(chain(&stage, &["east"], 1).seal(), direct.clone()).await.unwrap().finish().await.unwrap();
    let before = resident(&mut program);

    let execution = client.execute(draft.seal(), direct).await.unwrap();
    let mut other = client::Client::connect(&program.url(), &program.url()).await.unwrap().executor();
    eventually("the run to end", async || {
        let runs = other.list_runs(ListRunsRequest {}).await.unwrap().into_inner().runs;
        runs.len() == 2 && runs.iter().all(|run| run.finished.is_some())
    })
    .await;
    let grown = resident(&mut program).saturating_sub(before);
    let outcome = within(execution.finish()).await.unwrap();

    check(&outcome, STEPS);
    assert_eq!(outcome.summary.counts["succeeded"] as usize, STEPS);
    assert!(grown < 32 * 1024, "{grown} KiB for {STEPS} components");
    program.stop().await;
}

/// Memory of a program, in KiB.
fn resident(program: &mut Running) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", program.process().id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Case 118: on SIGTERM nothing new starts, what is in flight ends, the stream is told, and the program ends cleanly, whatever
/// else is connected.
#[tokio::test]
async fn a_drain_lets_writes_end_and_tells_the_client() {
    let stage = Stage::set("drain").await;
    let mut program = Program::Executor.prepare().start().await.unwrap();
    let client = client::Client::connect(&program.url(), &program.url()).await.unwrap();
    let idle = tokio::net::TcpStream::connect(program.address()).await.unwrap();
    let gate = Gate::shut();
    stage.east.add(Rule::patch("/map-1", Fault::Hold(gate.clone())));
    let draft = chain(&stage, &["east"], 5);
    let mut execution = client.execute(draft.seal(), stage.access_for(&draft)).await.unwrap();
    stage.east.wait_for(2, Seen::is_write).await.unwrap();

    program.process().signal(rustix::process::Signal::TERM);
    let mut outcome = client::Outcome::default();
    while outcome.results.len() < 4 {
        outcome.take(within(execution.next()).await.unwrap().unwrap());
    }
    let status = client.execute(draft.seal(), vec![]).await.unwrap_err();
    refused(&status, Reason::ShuttingDown);
    gate.open();
    while let Some(event) = within(execution.next()).await.unwrap() {
        outcome.take(event);
    }

    check(&outcome, 5);
    assert_eq!(outcome.outcomes()["map-1"], Outcome::Succeeded);
    assert_eq!(outcome.summary.counts["cancelled"], 3);
    assert!(outcome.summary.rows[4].because.contains("shutting down"), "{:?}", outcome.summary.rows[4]);
    assert_eq!(stage.east.count(Seen::is_write), 2);
    let status = program.process().wait(Duration::from_secs(20)).await;
    assert_eq!(status.and_then(|status| status.code()), Some(0), "{}", program.log());
    drop(idle);
}

/// Case 118: a write that hangs and a client that never reads keep the program no longer than the grace period, and a second
/// signal ends it at once.
#[tokio::test]
async fn a_drain_ends_with_the_grace_period_or_a_second_signal() {
    let stage = Stage::set("drain-hangs").await;
    for (grace, signals) in [("1s", 1), ("10m", 2)] {
        let mut program = Program::Executor.prepare().arg("--grace-period").arg(grace).start().await.unwrap();
        let client = client::Client::connect(&program.url(), &program.url()).await.unwrap();
        stage.east.forget();
        stage.east.add(Rule::patch("/configmaps/", Fault::Ignore));
        let draft = chain(&stage, &["east"], 2);
        let _never_read = client.execute(draft.seal(), stage.access_for(&draft)).await.unwrap();
        stage.east.wait_for(1, Seen::is_write).await.unwrap();

        for _ in 0..signals {
            program.process().signal(rustix::process::Signal::TERM);
            eventually("the signal to be noticed", async || program.log().contains("received a signal")).await;
        }

        let status = program.process().wait(Duration::from_secs(20)).await;
        assert!(status.is_some_and(|status| !status.success()), "{status:?}\n{}", program.log());
    }
}
