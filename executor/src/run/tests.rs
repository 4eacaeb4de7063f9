//! The driver against fulfillers that answer what a test tells them to, in virtual time.

use std::{sync::Mutex, time::Duration};

use switchyard_proto::v1::{Outcome, Verdict as RunVerdict, execute_response::Event as Entry};
use switchyard_service::budget::Budget;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    core::{
        plan::{Direct, Head, Metadata, Options, Step, Work},
        schedule::Patience,
        target::ClusterIx,
    },
    journal::Reader,
};

/// Decides what an attempt comes to, from component name, cluster number and attempt number.
type Script = Box<dyn Fn(&str, u16, u32) -> (Duration, Result<(), Verdict>) + Send + Sync>;

struct Scripted {
    plan: Arc<Plan>,
    script: Script,
    started: Mutex<Vec<(String, u16)>>,
}

impl Fulfil for Scripted {
    async fn attempt(self: Arc<Self>, order: Order) -> Attempt {
        let name = self.plan.steps[order.step].component.name.clone();
        let Target::Cluster(ClusterIx(cluster)) = order.target else { panic!("there are no adapters here") };
        self.started.lock().unwrap().push((name.clone(), cluster));
        assert_ne!(name, "panics", "as the test wants it");
        let (takes, result) = (self.script)(&name, cluster, order.attempt);
        sleep(takes).await;
        let done = Done::new(v1::Change::Created, None);
        Attempt { result: result.map(|()| done), sent: 1, took: None, warnings: Vec::new(), checked: Vec::new() }
    }

    /// A chart of this name says what becomes of it.
    async fn prepare(self: Arc<Self>, step: StepIx, target: Target, stop: CancellationToken) -> Needs {
        let chart = self.plan.steps[step].chart.clone().expect("only steps with a chart are prepared");
        assert_ne!(chart.url, "panics", "as the test wants it");
        let told = |outcome| {
            let need =
                |&cluster| Need::failed(cluster, outcome, Failure::new(Reason::ChartFailed, "as the test wants it"));
            self.plan.clusters_of(step, &target).iter().map(need).collect()
        };
        tokio::select! {
            () = stop.cancelled() => {
                // As a program that is asked to end takes its time.
                sleep(SECOND).await;
                told(UnitOutcome::Cancelled)
            }
            () = sleep(100 * SECOND) => told(UnitOutcome::Failed),
        }
    }

    async fn clear_up(self: Arc<Self>, _: Progress) -> Needs {
        Vec::new()
    }

    async fn left_overs(self: Arc<Self>, _: v1::Verdict, _: CancellationToken) -> Vec<crate::fulfil::LeftOver> {
        Vec::new()
    }
}

/// A plan from text: `api -> db, cache; db; cache` (each step on both clusters, in an order that respects the arrows).
fn plan(text: &str) -> Arc<Plan> {
    let mut steps: Vec<Step> = Vec::new();
    for line in text.split(';').map(str::trim).filter(|line| !line.is_empty()) {
        let (name, dependencies) = line.split_once("->").unwrap_or((line, ""));
        let position = |name: &str| steps.iter().position(|step| step.component.name == name).expect("comes earlier");
        let depends_on = dependencies.split(',').map(str::trim).filter(|name| !name.is_empty());
        let depends_on = depends_on.map(|name| StepIx(position(name) as u32)).collect();
        let head = Head {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            metadata: Metadata { name: name.trim().into(), namespace: None },
        };
        steps.push(Step {
            id: format!("id-{}", name.trim()),
            component: v1::Component { name: name.trim().into(), ..Default::default() },
            depends_on,
            runs_after: Vec::new(),
            chart: None,
            work: Work::Direct(Direct {
                clusters: vec![ClusterIx(0), ClusterIx(1)],
                manifest: bytes::Bytes::new(),
                head,
                kind_by: None,
                namespace_by: None,
                refers_to: Vec::new(),
            }),
        });
    }
    Arc::new(Plan {
        id: "plan".into(),
        operation: v1::Operation::Deploy,
        dry_run: false,
        design: v1::DesignRef::default(),
        clusters: vec!["east".into(), "west".into()].into(),
        adapters: Vec::new().into(),
        options: Options {
            step_timeout: Some(Duration::from_secs(60)),
            max_in_flight: None,
            force_conflicts: false,
            default_namespace: "default".into(),
            create_namespaces: false,
            wait_until_ready: false,
            delete_foreign: false,
            upgrade_dependencies: false,
            remove_dependencies: false,
            goes_on_without_client: false,
            existing: v1::Existing::Refuse,
            report_altered: false,
            write_always: false,
            prune: v1::Prune::Never,
            prune_at_most: None,
        },
        steps: steps.into(),
        traceparent: String::new(),
    })
}

/// The same plan, in which the step `name` needs a chart.
fn with_chart(plan: Arc<Plan>, name: &str, url: &str) -> Arc<Plan> {
    let mut plan = Arc::into_inner(plan).expect("nobody else has it");
    let step = plan.steps.iter_mut().find(|step| step.component.name == name).expect("the step is there");
    step.chart = Some(v1::Chart { url: url.into(), ..Default::default() });
    Arc::new(plan)
}

struct Told {
    progress: Vec<(prost_types::Timestamp, v1::StepProgress)>,
    results: HashMap<String, v1::StepResult>,
    order: Vec<String>,
    summary: v1::RunSummary,
}

async fn tell(mut reader: Reader) -> Told {
    let (mut results, mut order, mut summary, mut progress) = (HashMap::new(), Vec::new(), None, Vec::new());
    while let Some(events) = reader.next().await {
        for event in events {
            assert!(summary.is_none(), "nothing follows the summary");
            let message = event.message().unwrap();
            match message.event.unwrap() {
                Entry::StepProgress(it) => progress.push((message.time.unwrap(), it)),
                Entry::StepResult(result) => {
                    let name = result.component.as_ref().unwrap().name.clone();
                    order.push(name.clone());
                    assert!(results.insert(name, result).is_none(), "one result a step");
                }
                Entry::Summary(it) => summary = Some(it),
                _ => {}
            }
        }
    }
    Told { progress, results, order, summary: summary.expect("a run that started ends with a summary") }
}

async fn carry_out(
    plan: Arc<Plan>,
    script: impl Fn(&str, u16, u32) -> (Duration, Result<(), Verdict>) + Send + Sync + 'static,
    cancel_after: Option<Duration>,
) -> (Told, Vec<(String, u16)>) {
    carry_out_within(32, plan, script, cancel_after).await
}

/// The same with so many writes in flight on each cluster.
async fn carry_out_within(
    bound: usize,
    plan: Arc<Plan>,
    script: impl Fn(&str, u16, u32) -> (Duration, Result<(), Verdict>) + Send + Sync + 'static,
    cancel_after: Option<Duration>,
) -> (Told, Vec<(String, u16)>) {
    let fulfil = Arc::new(Scripted { plan: plan.clone(), script: Box::new(script), started: Mutex::default() });
    let journal = Journal::new(Budget::new(0).share(0));
    let identity = Identity { run_id: "run".into(), trace_id: String::new() };
    let (control, controls) = mpsc::channel(1024);
    if let Some(after) = cancel_after {
        let control = control.clone();
        tokio::spawn(async move {
            sleep(after).await;
            control.send(Control::Cancel { by: v1::CancelledBy::Caller, reason: "enough".into() }).await.ok();
        });
    }
    let limits = plan.clusters.iter().map(|_| Limit::Fixed(bound)).collect();
    run(plan, fulfil.clone(), limits, identity, journal.clone(), controls, async |_| {}).await;
    journal.close();
    let started = fulfil.started.lock().unwrap().clone();
    (tell(journal.read_all()).await, started)
}

const SECOND: Duration = Duration::from_secs(1);

fn refused() -> Verdict {
    Verdict::Refused(Failure::new(Reason::Invalid, "no good"))
}

fn throttled() -> Verdict {
    let patience = Patience { budget: Duration::from_secs(30), tries: 100 };
    let failure = Failure::new(Reason::Throttled, "busy");
    Verdict::Again { failure, after: Some(SECOND), patience, lost: false }
}

#[tokio::test(start_paused = true)]
async fn failure_withholds_its_dependents_on_every_cluster_and_nobody_else() {
    let plan = plan("db; cache; api -> db; web -> api; jobs -> cache");
    let script =
        |name: &str, cluster: u16, _| (SECOND, if name == "db" && cluster == 1 { Err(refused()) } else { Ok(()) });
    let (told, started) = carry_out(plan, script, None).await;
    let outcome = |name: &str| told.results[name].outcome();
    assert_eq!(outcome("db"), Outcome::Failed);
    assert_eq!(outcome("api"), Outcome::Withheld);
    assert_eq!(outcome("web"), Outcome::Withheld);
    assert_eq!(outcome("cache"), Outcome::Succeeded);
    assert_eq!(outcome("jobs"), Outcome::Succeeded);
    assert!(started.iter().all(|(name, _)| name != "api" && name != "web"));
    let withheld = told.results["web"].withheld.as_ref().unwrap();
    assert_eq!((withheld.component.as_str(), withheld.root_component.as_str()), ("api", "db"));
    assert_eq!(withheld.root_error.as_ref().unwrap().message, "no good");
    let targets: Vec<_> = told.results["db"].targets.iter().map(v1::TargetResult::outcome).collect();
    assert_eq!(targets, [Outcome::Succeeded, Outcome::Failed]);
    assert_eq!(told.summary.verdict(), RunVerdict::Partial);
    assert_eq!(told.summary.rows.len(), 5);
    assert_eq!(told.summary.counts["withheld"], 2);
    // Case 272: a row names where its component was fulfilled, and nothing else.
    let fulfilled: Vec<_> = told.summary.rows.iter().map(|row| row.fulfilled_by.join(",")).collect();
    assert_eq!(fulfilled, ["east", "east,west", "", "", "east,west"]);
    assert!(told.summary.complete);
}

#[tokio::test(start_paused = true)]
async fn panic_in_an_attempt_is_that_steps_failure() {
    let (told, _) = carry_out(plan("panics; other; after -> panics"), |_, _, _| (SECOND, Ok(())), None).await;
    assert_eq!(told.results["panics"].outcome(), Outcome::Failed);
    assert_eq!(told.results["panics"].targets[0].error.as_ref().unwrap().reason, "INTERNAL");
    assert_eq!(told.results["after"].outcome(), Outcome::Withheld);
    assert_eq!(told.results["other"].outcome(), Outcome::Succeeded);
}

#[tokio::test(start_paused = true)]
async fn throttled_step_comes_through_and_counts_its_attempts() {
    let script = |_: &str, _, attempt| (SECOND, if attempt < 3 { Err(throttled()) } else { Ok(()) });
    let (told, _) = carry_out(plan("a"), script, None).await;
    assert_eq!(told.results["a"].outcome(), Outcome::Succeeded);
    assert_eq!(told.results["a"].targets[0].attempts, 3);
    assert_eq!(told.results["a"].targets[0].elapsed.unwrap().seconds, 5);
}

#[tokio::test(start_paused = true)]
async fn throttling_that_does_not_end_fails_within_its_budget() {
    let (told, _) = carry_out(plan("a"), |_: &str, _, _| (SECOND, Err(throttled())), None).await;
    let target = &told.results["a"].targets[0];
    assert_eq!(target.outcome(), Outcome::Failed);
    assert!(target.elapsed.unwrap().seconds <= 31);
    assert!(target.error.as_ref().unwrap().message.contains("given up after"));
}

#[tokio::test(start_paused = true)]
async fn cancel_records_what_is_in_flight_and_accounts_for_the_rest() {
    let script = |_: &str, _, _| (10 * SECOND, Ok(()));
    let (told, started) = carry_out(plan("a; b -> a; c -> b"), script, Some(SECOND)).await;
    assert_eq!(told.results["a"].outcome(), Outcome::Succeeded);
    assert_eq!(told.results["b"].outcome(), Outcome::Cancelled);
    assert_eq!(told.results["c"].outcome(), Outcome::Cancelled);
    assert_eq!(started.len(), 2);
    assert_eq!(told.summary.verdict(), RunVerdict::Cancelled);
    assert!(told.summary.rows[1].because.contains("enough"));
}

#[tokio::test(start_paused = true)]
async fn what_a_component_needs_delays_it_alone_and_withholds_nothing() {
    let plan = with_chart(plan("a; b -> a; c"), "a", "https://x");
    let (told, started) = carry_out(plan, |_: &str, _, _| (SECOND, Ok(())), None).await;
    assert!(told.results.values().all(|result| result.outcome() == Outcome::Succeeded));
    assert_eq!(told.order, ["c", "a", "b"]);
    let needs: Vec<_> = told.results["a"].prerequisites.iter().map(v1::PrerequisiteResult::outcome).collect();
    assert_eq!(needs, [Outcome::Failed, Outcome::Failed]);
    assert!(told.results["b"].prerequisites.is_empty());
    // Case 271: what failed beside a component that succeeded stands in the summary, and changes no verdict.
    assert_eq!(told.summary.rows[0].prerequisites, told.results["a"].prerequisites);
    assert!(told.summary.rows[1].prerequisites.is_empty());
    assert_eq!(told.summary.verdict(), RunVerdict::Succeeded);
    assert_eq!(told.results["a"].elapsed.unwrap().seconds, 101);
    // What was done before is no part of what the component took on its cluster.
    assert_eq!(told.results["a"].targets[0].elapsed.unwrap().seconds, 1);
    assert_eq!(started.len(), 6);
}

#[tokio::test(start_paused = true)]
async fn cancel_cuts_short_what_is_done_before_a_component_and_waits_for_its_end() {
    let plan = with_chart(plan("a; b -> a"), "a", "https://x");
    let (told, started) = carry_out(plan, |_: &str, _, _| (SECOND, Ok(())), Some(SECOND)).await;
    assert_eq!(started, []);
    assert_eq!(told.results["a"].outcome(), Outcome::Cancelled);
    let needs: Vec<_> = told.results["a"].prerequisites.iter().map(v1::PrerequisiteResult::outcome).collect();
    assert_eq!(needs, [Outcome::Cancelled, Outcome::Cancelled]);
    assert_eq!(told.results["b"].outcome(), Outcome::Cancelled);
    assert_eq!(told.summary.elapsed.unwrap().seconds, 2);
}

#[tokio::test(start_paused = true)]
async fn panic_over_what_a_component_needs_is_told_and_the_component_is_applied() {
    let plan = with_chart(plan("a; b -> a"), "a", "panics");
    let (told, _) = carry_out(plan, |_: &str, _, _| (SECOND, Ok(())), None).await;
    assert!(told.results.values().all(|result| result.outcome() == Outcome::Succeeded));
    assert_eq!(told.results["a"].prerequisites[0].error.as_ref().unwrap().reason, "INTERNAL");
}

#[tokio::test(start_paused = true)]
async fn slow_cluster_does_not_hold_up_the_other() {
    let plan = plan("a; b; c");
    let script = |_: &str, cluster, _| (if cluster == 0 { SECOND } else { 100 * SECOND }, Ok(()));
    let (told, _) = carry_out(plan, script, None).await;
    for name in ["a", "b", "c"] {
        assert_eq!(told.results[name].targets[0].elapsed.unwrap().seconds, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn critical_path_is_the_chain_that_ended_last() {
    let plan = plan("a; b; c -> a, b; d -> b");
    let script = |name: &str, _, _| (if name == "a" { 5 * SECOND } else { SECOND }, Ok(()));
    let (told, _) = carry_out(plan, script, None).await;
    assert_eq!(told.summary.critical_path, ["id-a", "id-c"]);
    assert_eq!(told.order, ["b", "d", "a", "c"]);
}

#[tokio::test(start_paused = true)]
async fn empty_plan_ends_with_an_empty_summary() {
    let (told, _) = carry_out(plan(""), |_: &str, _, _| (SECOND, Ok(())), None).await;
    assert_eq!(told.summary.verdict(), RunVerdict::Succeeded);
    assert!(told.summary.rows.is_empty() && told.summary.complete);
}

#[tokio::test]
async fn others_have_their_turn_before_what_happened_is_told() {
    let journal = Journal::new(Budget::new(0).share(0));
    let mut reader = journal.read_all();
    let mut telling = pin!(super::tell(&journal));
    assert!(futures::poll!(&mut telling).is_pending());
    for _ in 0..3 {
        journal.append(Entry::StepStarted(v1::StepStarted::default()));
        assert!(futures::poll!(&mut telling).is_pending());
        assert!(reader.next().now_or_never().is_none(), "the run's requests go out first");
        assert!(futures::poll!(&mut telling).is_pending());
        assert_eq!(reader.next().now_or_never().flatten().map(|events| events.len()), Some(1));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_waited_for_is_told_now_and_then() {
    let script = |name: &str, cluster, attempt| match (name, cluster, attempt) {
        ("slow", 0, _) => (17 * SECOND, Ok(())),
        // Pauses of a second, which are no wait of five.
        ("busy", 0, 1..=8) => (Duration::ZERO, Err(throttled())),
        _ => (SECOND, Ok(())),
    };
    let (told, _) = carry_out(plan("slow; busy; quick"), script, None).await;
    let of = |step: &str| {
        let of_step = told.progress.iter().filter(move |(_, it)| it.step_id == format!("id-{step}"));
        of_step.map(|(_, it)| (it.waiting_for.clone(), it.attempts, it.readiness())).collect::<Vec<_>>()
    };
    let answer = ("an answer of cluster east".to_owned(), 1, v1::Readiness::Unspecified);
    assert_eq!(of("slow"), vec![answer; 3]);
    assert!(of("busy").iter().any(|(text, attempts, _)| text.contains("busy") && *attempts > 1), "{:?}", of("busy"));
    assert_eq!(of("quick"), []);
    assert!(told.progress.iter().all(|(_, it)| it.target == Some(v1::step_progress::Target::Cluster("east".into()))));
}

#[tokio::test(start_paused = true)]
async fn many_waits_are_told_a_few_at_a_time() {
    let steps: Vec<_> = (0..100).map(|number| format!("step-{number}")).collect();
    let script = |_: &str, _, _| (60 * SECOND, Ok(()));
    let (told, _) = carry_out_within(1_000, plan(&steps.join(";")), script, None).await;
    // Once a second for as long as there is something to tell of; and each of the 200 has its turn, one after the other.
    let (looks, at_once) = (56, 20);
    assert!((1_000..=looks * at_once).contains(&told.progress.len()), "{}", told.progress.len());
    let mut targets: HashMap<_, usize> = HashMap::new();
    for (_, progress) in &told.progress {
        *targets.entry(format!("{}{:?}", progress.step_id, progress.target)).or_default() += 1;
    }
    assert_eq!(targets.len(), 200);
    assert!(targets.values().all(|times| (5..=6).contains(times)), "{targets:?}");
}

#[tokio::test(start_paused = true)]
async fn what_a_component_needs_is_told_while_it_is_seen_to() {
    let plan = with_chart(plan("a"), "a", "https://user:canary@charts/x.tgz");
    let (told, _) = carry_out(plan, |_: &str, _, _| (SECOND, Ok(())), None).await;
    let (_, first) = &told.progress[0];
    assert_eq!((first.waiting_for.as_str(), first.attempts), ("what it needs: https://charts/x.tgz", 0));
    assert_eq!(told.progress.len(), 2 * (100 / 5 - 1), "{:?}", told.progress.len());
}
