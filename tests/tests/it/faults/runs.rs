//! Group 10: a run whose client goes away, is cancelled, is read again, or is in another's way.

use std::time::Duration;

use switchyard_proto::v1::{
    CancelRunRequest, CancelledBy, ListRunsRequest, OnDisconnect, Outcome, Verdict, WatchRunRequest,
};
use switchyard_service::status::Reason;
use switchyard_tests::{
    client,
    fault::{Fault, Gate, Rule, Seen},
    plan::Draft,
};
use tonic::Code;
use tonic_types::StatusExt as _;

use super::{
    stage::{Stage, check, eventually, within},
    streams::{chain, refused, run_id, wait_for_results, watch},
};

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
    assert_eq!(outcome.summary.cancelled_by(), CancelledBy::Disconnect);
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
        let runs = stage.client.executor().list_runs(ListRunsRequest::default()).await.unwrap().into_inner().runs;
        runs.len() == 30 && runs.iter().all(|run| run.finished.is_some())
    })
    .await;
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
    // Case 368: nothing says that what a person stopped should be tried again.
    assert!(!error.retryable);
    assert_eq!(outcome.summary.cancelled_by(), CancelledBy::Caller);
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

    let runs = executor.list_runs(ListRunsRequest::default()).await.unwrap().into_inner().runs;
    assert_eq!(runs.iter().map(|run| run.run_id.as_str()).collect::<Vec<_>>(), [&going_id, &finished_id]);
    assert_eq!((runs[0].verdict(), &runs[0].finished), (Verdict::Unspecified, &None));
    assert_eq!(runs[1].verdict(), Verdict::Succeeded);
    assert_eq!(runs[1].last_sequence, finished.events.len() as u64);
    assert_eq!((runs[1].clusters.as_slice(), runs[1].dry_run), ([String::from("west")].as_slice(), false));

    // A finished run reads as it did the first time, from any place on; beyond its end there is nothing to read.
    assert_eq!(watch(&stage, &finished_id, 0).await.events, finished.events);
    assert_eq!(watch(&stage, &finished_id, 3).await.events, finished.events[3..]);
    let beyond = WatchRunRequest { run_id: finished_id.clone(), after_sequence: 1_000 };
    refused(&executor.watch_run(beyond).await.unwrap_err(), Reason::SequenceUnknown);

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

/// Runs that work on one API server share what it is given at once; none is left with nothing.
#[tokio::test(flavor = "multi_thread")]
async fn runs_on_one_cluster_share_what_it_is_given_at_once() {
    let stage = Stage::set("sharing").await;
    let gate = Gate::shut();
    stage.east.add(Rule::patch("/held-", Fault::Hold(gate.clone())));
    let held = |run: &str| {
        (0..100).fold(Draft::on(&["east"]), |draft, number| {
            let name = format!("held-{run}-{number}");
            draft.apply(&name, &[], &stage.config_map(&name))
        })
    };
    let (first, second) = (held("a"), held("b"));
    let quick = Draft::on(&["east"]).apply("quick", &[], &stage.config_map("quick"));
    let begun_later = async {
        stage.east.wait_for(64, Seen::is_write).await.unwrap();
        stage.run(&second).await
    };
    let counted = async {
        stage.east.wait_for(96, Seen::is_write).await.unwrap();
        // By the time that a third has come to its end, the second would have sent more if it could.
        stage.run(&quick).await;
        let counted = stage.east.count(|seen| seen.is_write() && seen.path.contains("/held-"));
        gate.open();
        counted
    };
    let (first, second, counted) = within(async { tokio::join!(stage.run(&first), begun_later, counted) }).await;
    assert_eq!(counted, 64 + 32, "all that is permitted to the first, and half of it to the second");
    assert_eq!((first.summary.counts["succeeded"], second.summary.counts["succeeded"]), (100, 100));
}
