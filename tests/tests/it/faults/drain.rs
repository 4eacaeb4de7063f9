//! Group 10, with the real program: a reader that does not read, and the way down.

use std::time::Duration;

use switchyard_proto::v1::{CancelRunRequest, CancelledBy, ListRunsRequest, Outcome, execute_request::Part};
use switchyard_service::status::Reason;
use switchyard_tests::{
    client,
    fault::{Fault, Gate, Rule, Seen},
    plan::Draft,
    programs::{Program, Running},
};

use super::{
    stage::{Stage, check, eventually, within},
    streams::{chain, refused, run_id, watch},
};

/// Case 117: a client that does not read holds up nothing, costs little memory, and misses nothing when it reads again.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_holds_up_nothing_and_misses_nothing() {
    const STEPS: usize = 1_500;
    let stage = Stage::set("slow-reader").await;
    let mut program = Program::Executor.prepare().arg("--run-lock").arg("process").start().await.unwrap();
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
        let runs = other.list_runs(ListRunsRequest::default()).await.unwrap().into_inner().runs;
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
    let mut program = Program::Executor.prepare().arg("--run-lock").arg("process").start().await.unwrap();
    let client = client::Client::connect(&program.url(), &program.url()).await.unwrap();
    let idle = tokio::net::TcpStream::connect(program.address()).await.unwrap();
    let gate = Gate::shut();
    stage.east.add(Rule::patch("/map-1", Fault::Hold(gate.clone())));
    let draft = chain(&stage, &["east"], 5);
    let mut execution = client.execute(draft.seal(), stage.access_for(&draft)).await.unwrap();
    let mut silent = client.open(vec![Part::Header(draft.seal().header)]).await.unwrap();
    stage.east.wait_for(2, Seen::is_write).await.unwrap();

    program.process().signal(rustix::process::Signal::TERM);
    // A plan that is not whole is not waited for.
    refused(&within(silent.next()).await.unwrap_err(), Reason::ShuttingDown);
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
    assert_eq!(outcome.summary.cancelled_by(), CancelledBy::Shutdown);
    // Case 368: the same plan may be carried out by the next executor.
    assert!(outcome.result("map-4").unwrap().error.as_ref().unwrap().retryable);
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
        let mut program = Program::Executor
            .prepare()
            .arg("--run-lock")
            .arg("process")
            .arg("--grace-period")
            .arg(grace)
            .start()
            .await
            .unwrap();
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

/// Case 263: a process that goes down gives every run its account first. What is in flight is indeterminate, the rest is
/// cancelled, the summary comes, and the locks are let go of, shortly before the grace period is over or when a second signal
/// comes.
#[tokio::test]
async fn a_drain_that_runs_out_of_time_gives_every_run_its_account() {
    let stage = Stage::set("drain-account").await;
    for (grace, signals) in [("4s", 1), ("10m", 2)] {
        let mut program = Program::Executor.prepare().arg("--grace-period").arg(grace).start().await.unwrap();
        let client = client::Client::connect(&program.url(), &program.url()).await.unwrap();
        stage.east.forget();
        stage.east.add(Rule::patch("/map-1", Fault::Ignore));
        let draft = chain(&stage, &["east", "west"], 3).design(&format!("design-{}", uuid::Uuid::new_v4()));
        let mut execution = client.execute(draft.seal(), stage.access_for(&draft)).await.unwrap();
        stage.east.wait_for(1, |seen| seen.path.contains("/map-1")).await.unwrap();
        let mut outcome = client::Outcome::default();
        // On the other cluster it is done.
        while outcome.targets().count() < 3 {
            outcome.take(within(execution.next()).await.unwrap().unwrap());
        }

        for _ in 0..signals {
            program.process().signal(rustix::process::Signal::TERM);
            eventually("the signal to be noticed", async || program.log().contains("received a signal")).await;
        }
        while let Some(event) = within(execution.next()).await.unwrap() {
            outcome.take(event);
        }

        check(&outcome, 3);
        assert_eq!(outcome.outcomes()["map-0"], Outcome::Succeeded);
        assert_eq!(outcome.outcomes()["map-1"], Outcome::Indeterminate);
        assert_eq!(outcome.outcomes()["map-2"], Outcome::Cancelled);
        assert_eq!(outcome.target("map-1", "west").unwrap().outcome(), Outcome::Succeeded);
        let error = outcome.target("map-1", "east").unwrap().error.as_ref().unwrap();
        assert!(error.reason == "ANSWER_LOST" && error.message.contains("cluster east"), "{error:?}");
        assert_eq!(outcome.summary.cancelled_by(), CancelledBy::Shutdown);
        let frees = |seen: &Seen| seen.path.contains("/leases/") && seen.body.ends_with(br#""value":""}]"#);
        assert_eq!(stage.east.count(frees), 1, "the lock is let go of");
        let status = program.process().wait(Duration::from_secs(20)).await;
        assert!(status.is_some_and(|status| !status.success()), "not all was waited for: {}", program.log());
    }
}

/// Case 332: while an executor drains, who waits for it can see what goes on and stop it.
#[tokio::test]
async fn runs_are_listed_watched_and_cancelled_while_the_executor_drains() {
    let stage = Stage::set("drain-runs").await;
    let gate = Gate::shut();
    stage.east.add(Rule::patch("/map-0", Fault::Hold(gate.clone())));
    let draft = chain(&stage, &["east"], 2);
    let mut execution = stage.client.execute(draft.seal(), stage.access_for(&draft)).await.unwrap();
    let run_id = run_id(&mut execution).await;
    stage.east.wait_for(1, Seen::is_write).await.unwrap();

    stage.executor.shutdown().drain();
    let late = stage.try_run(&draft, stage.access_for(&draft)).await.unwrap_err();

    refused(&late, Reason::ShuttingDown);
    let mut executor = stage.client.executor();
    let runs = executor.list_runs(ListRunsRequest::default()).await.unwrap().into_inner().runs;
    assert_eq!(runs.len(), 1);
    executor.cancel_run(CancelRunRequest { run_id: run_id.clone(), reason: String::new() }).await.unwrap();
    gate.open();
    let outcome = watch(&stage, &run_id, 0).await;
    assert_eq!(outcome.outcomes()["map-1"], Outcome::Cancelled);
}
