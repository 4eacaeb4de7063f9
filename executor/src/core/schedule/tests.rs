//! The laws of the schedule, over examples and over random runs.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::core::target::ClusterIx;

const TIMEOUT: Duration = Duration::from_secs(60);
const EAST: Target = Target::Cluster(ClusterIx(0));
const WEST: Target = Target::Cluster(ClusterIx(1));

fn node(targets: &[Target], depends_on: &[u32], runs_after: &[u32]) -> Node {
    Node {
        targets: targets.to_vec(),
        depends_on: depends_on.iter().copied().map(StepIx).collect(),
        runs_after: runs_after.iter().copied().map(StepIx).collect(),
        is_prepared: false,
    }
}

fn prepared_node(targets: &[Target], depends_on: &[u32], runs_after: &[u32]) -> Node {
    Node { is_prepared: true, ..node(targets, depends_on, runs_after) }
}

/// The same for each of the two clusters.
fn both<T: Clone>(value: T) -> Targets<T> {
    Targets { clusters: vec![value; 2].into(), adapters: Vec::new().into() }
}

fn schedule(nodes: &[Node], limit: usize) -> Schedule {
    Schedule::new(Mode::CarryOut, nodes, &both((limit, TIMEOUT)))
}

fn rehearsal(nodes: &[Node], limit: usize) -> Schedule {
    Schedule::new(Mode::Rehearse, nodes, &both((limit, TIMEOUT)))
}

/// Number of a cluster.
fn number(target: Target) -> u16 {
    match target {
        Target::Cluster(cluster) => cluster.0,
        Target::Adapter(_) => panic!("there are no adapters here"),
    }
}

fn started(commands: &[Command]) -> Vec<(u32, u16)> {
    commands
        .iter()
        .filter_map(|command| match command {
            Command::Start { step, target, .. } => Some((step.0, number(*target))),
            _ => None,
        })
        .collect()
}

fn preparing(commands: &[Command]) -> Vec<(u32, u16)> {
    commands
        .iter()
        .filter_map(|command| match command {
            Command::Prepare { step, target } => Some((step.0, number(*target))),
            _ => None,
        })
        .collect()
}

fn prepared(step: u32, target: Target) -> Event {
    Event::Prepared { step: StepIx(step), target }
}

fn settled(commands: &[Command]) -> Vec<(u32, Ending)> {
    commands
        .iter()
        .filter_map(|command| match command {
            Command::Settle { step, ending, .. } => Some((step.0, *ending)),
            _ => None,
        })
        .collect()
}

fn end(step: u32, target: Target, end: End) -> Event {
    Event::Ended { step: StepIx(step), target, end }
}

fn again(after: Option<Duration>, lost: bool) -> End {
    End::Again { after, patience: Patience { budget: Duration::from_secs(30), tries: 3 }, lost }
}

#[test]
fn empty_plan_finishes_at_once() {
    let mut schedule = schedule(&[], 1);
    assert_eq!(schedule.handle(Event::Begin, Instant::now()), [Command::Finish]);
}

#[test]
fn dependent_starts_when_its_dependency_succeeded_on_every_cluster() {
    let now = Instant::now();
    let mut schedule = schedule(&[node(&[EAST, WEST], &[], &[]), node(&[EAST, WEST], &[0], &[])], 8);
    assert_eq!(started(&schedule.handle(Event::Begin, now)), [(0, 0), (0, 1)]);
    assert_eq!(started(&schedule.handle(end(0, EAST, End::Succeeded), now)), []);
    assert_eq!(started(&schedule.handle(end(0, WEST, End::Succeeded), now)), [(1, 0), (1, 1)]);
}

#[test]
fn undeclared_order_holds_cluster_by_cluster() {
    let now = Instant::now();
    let mut schedule = schedule(&[node(&[EAST, WEST], &[], &[]), node(&[EAST, WEST], &[], &[0])], 8);
    let _ = schedule.handle(Event::Begin, now);
    assert_eq!(started(&schedule.handle(end(0, EAST, End::Succeeded), now)), [(1, 0)]);
}

#[test]
fn undeclared_order_never_withholds() {
    let now = Instant::now();
    let mut schedule = schedule(&[node(&[EAST], &[], &[]), node(&[EAST], &[], &[0])], 8);
    let _ = schedule.handle(Event::Begin, now);
    assert_eq!(started(&schedule.handle(end(0, EAST, End::Failed), now)), [(1, 0)]);
}

/// Case 252: a unit that is to be tried again is not left behind by what is more urgent until its time is over.
#[test]
fn who_was_throttled_is_tried_before_what_is_new() {
    // a; b; c; d; e -> b; f -> e. With room for one, a waits beside e, which has a longer chain behind it.
    let now = Instant::now();
    let alone = || node(&[EAST], &[], &[]);
    let nodes = [alone(), alone(), alone(), alone(), node(&[EAST], &[1], &[]), node(&[EAST], &[4], &[])];
    let mut schedule = schedule(&nodes, 8);
    let _ = schedule.handle(Event::Begin, now);
    let _ = schedule.handle(end(0, EAST, again(Some(Duration::ZERO), false)), now);
    let _ = schedule.handle(Event::Limit { target: EAST, limit: 1 }, now);
    let _ = schedule.handle(Event::Woken { step: StepIx(0), target: EAST }, now);
    assert_eq!(started(&schedule.handle(end(1, EAST, End::Succeeded), now)), []);
    assert_eq!(started(&schedule.handle(end(2, EAST, End::Succeeded), now)), []);
    assert!(schedule.is_busy(EAST));
    assert_eq!(started(&schedule.handle(end(3, EAST, End::Succeeded), now)), [(0, 0)]);
}

#[test]
fn diamond_with_one_failure_withholds_at_once_and_names_the_root() {
    // a; b -> a; c -> a; d -> b, c; e -> d. c fails while b is still at work.
    let now = Instant::now();
    let nodes = [
        node(&[EAST], &[], &[]),
        node(&[EAST], &[0], &[]),
        node(&[EAST], &[0], &[]),
        node(&[EAST], &[1, 2], &[]),
        node(&[EAST], &[3], &[]),
    ];
    let mut schedule = schedule(&nodes, 8);
    let _ = schedule.handle(Event::Begin, now);
    assert_eq!(started(&schedule.handle(end(0, EAST, End::Succeeded), now)), [(1, 0), (2, 0)]);
    assert_eq!(
        settled(&schedule.handle(end(2, EAST, End::Failed), now)),
        [
            (2, Ending::Failed),
            (3, Ending::Withheld(Hold { by: StepIx(2), root: StepIx(2) })),
            (4, Ending::Withheld(Hold { by: StepIx(3), root: StepIx(2) })),
        ]
    );
    let last = schedule.handle(end(1, EAST, End::Succeeded), now);
    assert_eq!(settled(&last), [(1, Ending::Succeeded)]);
    assert_eq!(last.last(), Some(&Command::Finish));
}

#[test]
fn failure_on_one_cluster_withholds_on_every_cluster_and_the_step_goes_on_elsewhere() {
    let now = Instant::now();
    let mut schedule = schedule(&[node(&[EAST, WEST], &[], &[]), node(&[EAST, WEST], &[0], &[])], 8);
    let _ = schedule.handle(Event::Begin, now);
    let withheld = Ending::Withheld(Hold { by: StepIx(0), root: StepIx(0) });
    assert_eq!(settled(&schedule.handle(end(0, EAST, End::Failed), now)), [(1, withheld)]);
    assert_eq!(settled(&schedule.handle(end(0, WEST, End::Succeeded), now)), [(0, Ending::Failed)]);
}

/// D20: what comes behind a failing step is tried too, and is settled only when all is known that would have held it back.
#[test]
fn rehearsal_tries_everything_and_says_what_would_be_withheld() {
    // a on both clusters; b -> a on one of them; c -> b.
    let now = Instant::now();
    let nodes = [node(&[EAST, WEST], &[], &[]), node(&[EAST], &[0], &[]), node(&[EAST], &[1], &[])];
    let mut schedule = rehearsal(&nodes, 8);
    assert_eq!(started(&schedule.handle(Event::Begin, now)), [(0, 0), (0, 1)]);
    assert_eq!(started(&schedule.handle(end(0, EAST, End::Succeeded), now)), [(1, 0)]);
    let commands = schedule.handle(end(1, EAST, End::Succeeded), now);
    assert_eq!((started(&commands), settled(&commands)), (vec![(2, 0)], vec![]));
    assert_eq!(settled(&schedule.handle(end(2, EAST, End::Succeeded), now)), []);
    let held = |commands: &[Command]| -> Vec<_> {
        let settled = commands.iter().filter_map(|command| match command {
            Command::Settle { step, would_be_withheld, .. } => Some((step.0, *would_be_withheld)),
            _ => None,
        });
        settled.collect()
    };
    let last = schedule.handle(end(0, WEST, End::Failed), now);
    let hold = |by, root| Some(Hold { by: StepIx(by), root: StepIx(root) });
    assert_eq!(held(&last), [(0, None), (1, hold(0, 0)), (2, hold(1, 0))]);
    assert_eq!(last.last(), Some(&Command::Finish));
}

#[test]
fn longest_chain_goes_first() {
    let now = Instant::now();
    let nodes = [node(&[EAST], &[], &[]), node(&[EAST], &[], &[]), node(&[EAST], &[1], &[])];
    let mut schedule = schedule(&nodes, 1);
    assert_eq!(started(&schedule.handle(Event::Begin, now)), [(1, 0)]);
}

#[test]
fn what_only_waits_gives_its_place_to_the_next() {
    let now = Instant::now();
    let mut schedule = schedule(&[node(&[EAST], &[], &[]), node(&[EAST], &[], &[])], 1);
    assert_eq!(started(&schedule.handle(Event::Begin, now)), [(0, 0)]);
    let written = Event::Written { step: StepIx(0), target: EAST };
    assert_eq!(started(&schedule.handle(written, now)), [(1, 0)]);
}

#[test]
fn retry_ends_with_the_tries_or_the_budget() {
    let now = Instant::now();
    let mut schedule = schedule(&[node(&[EAST], &[], &[])], 1);
    let _ = schedule.handle(Event::Begin, now);
    for _ in 0..2 {
        let commands = schedule.handle(end(0, EAST, again(None, false)), now);
        assert!(matches!(commands[..], [Command::Pause { .. }]));
        let _ = schedule.handle(Event::Woken { step: StepIx(0), target: EAST }, now);
    }
    assert_eq!(settled(&schedule.handle(end(0, EAST, again(None, false)), now)), [(0, Ending::Failed)]);

    let mut schedule = super::tests::schedule(&[node(&[EAST], &[], &[])], 1);
    let _ = schedule.handle(Event::Begin, now);
    let hour = Some(Duration::from_secs(3600));
    assert_eq!(settled(&schedule.handle(end(0, EAST, again(hour, false)), now)), [(0, Ending::Failed)]);
}

#[test]
fn last_try_comes_when_patience_ends() {
    let now = Instant::now();
    let mut schedule = schedule(&[node(&[EAST], &[], &[])], 1);
    let _ = schedule.handle(Event::Begin, now);
    let patience = Patience { budget: Duration::from_secs(4), tries: 100 };
    let unknown = || End::Again { after: None, patience, lost: false };
    let mut at = now;
    loop {
        let commands = schedule.handle(end(0, EAST, unknown()), at);
        let [Command::Pause { until, .. }] = commands[..] else { break };
        at = until;
        let _ = schedule.handle(Event::Woken { step: StepIx(0), target: EAST }, at);
    }
    assert_eq!(at - now, patience.budget);
}

#[test]
fn unit_whose_time_went_by_while_it_waited_for_its_place_is_not_started_again() {
    let now = Instant::now();
    let nodes = [node(&[EAST], &[], &[]), node(&[EAST], &[], &[]), node(&[EAST], &[], &[0])];
    let mut schedule = schedule(&nodes, 1);
    let _ = schedule.handle(Event::Begin, now);
    let soon = now + Duration::from_secs(1);
    let commands = schedule.handle(end(0, EAST, again(Some(Duration::from_secs(1)), false)), soon);
    assert_eq!(started(&commands), [(1, 0)]);
    // The other one takes all of the first one's time.
    let _ = schedule.handle(Event::Woken { step: StepIx(0), target: EAST }, now + Duration::from_secs(2));
    let commands = schedule.handle(end(1, EAST, End::Succeeded), now + TIMEOUT);
    assert_eq!(settled(&commands), [(1, Ending::Succeeded), (0, Ending::Failed)]);
    assert_eq!(started(&commands), [(2, 0)]);
}

#[test]
fn trouble_of_one_kind_does_not_use_up_the_tries_of_another() {
    let now = Instant::now();
    let mut schedule = schedule(&[node(&[EAST], &[], &[])], 1);
    let patient = Patience { budget: Duration::from_secs(30), tries: 100 };
    let throttled = || End::Again { after: None, patience: patient, lost: false };
    let _ = schedule.handle(Event::Begin, now);
    for attempt in [throttled(), throttled(), throttled(), again(None, true), again(None, true)] {
        let commands = schedule.handle(end(0, EAST, attempt), now);
        assert!(matches!(commands[..], [Command::Pause { .. }]), "{commands:?}");
        let _ = schedule.handle(Event::Woken { step: StepIx(0), target: EAST }, now);
    }
    assert_eq!(settled(&schedule.handle(end(0, EAST, again(None, true)), now)), [(0, Ending::Indeterminate)]);

    let mut schedule = super::tests::schedule(&[node(&[EAST], &[], &[])], 1);
    let _ = schedule.handle(Event::Begin, now);
    let late = now + TIMEOUT - Duration::from_millis(50);
    // Whatever the kind deserves, the step's time ends it.
    assert_eq!(settled(&schedule.handle(end(0, EAST, throttled()), late)), [(0, Ending::Failed)]);
}

#[test]
fn lost_answer_makes_a_unit_that_is_given_up_indeterminate() {
    let now = Instant::now();
    let mut schedule = schedule(&[node(&[EAST], &[], &[])], 1);
    let _ = schedule.handle(Event::Begin, now);
    let _ = schedule.handle(end(0, EAST, again(None, true)), now);
    let commands = schedule.handle(Event::Cancel, now);
    assert_eq!(settled(&commands), [(0, Ending::Indeterminate)]);
}

#[test]
fn cancel_lets_writes_end_and_starts_nothing() {
    let now = Instant::now();
    let mut schedule = schedule(&[node(&[EAST, WEST], &[], &[]), node(&[EAST], &[], &[]), node(&[EAST], &[0], &[])], 1);
    assert_eq!(started(&schedule.handle(Event::Begin, now)), [(0, 0), (0, 1)]);
    assert_eq!(settled(&schedule.handle(Event::Cancel, now)), [(1, Ending::Cancelled), (2, Ending::Cancelled)]);
    let _ = schedule.handle(end(0, EAST, End::Succeeded), now);
    let last = schedule.handle(end(0, WEST, End::Succeeded), now);
    assert_eq!(settled(&last), [(0, Ending::Succeeded)]);
    assert_eq!(last.last(), Some(&Command::Finish));
}

#[test]
fn unit_is_prepared_when_nothing_holds_it_back_and_starts_after_that() {
    let now = Instant::now();
    let mut schedule = schedule(&[node(&[EAST], &[], &[]), prepared_node(&[EAST, WEST], &[0], &[])], 8);
    assert_eq!(preparing(&schedule.handle(Event::Begin, now)), []);
    let commands = schedule.handle(end(0, EAST, End::Succeeded), now);
    assert_eq!((preparing(&commands), started(&commands)), (vec![(1, 0), (1, 1)], vec![]));
    assert_eq!(started(&schedule.handle(prepared(1, WEST), now)), [(1, 1)]);
    assert_eq!(started(&schedule.handle(prepared(1, EAST), now)), [(1, 0)]);
}

#[test]
fn preparing_takes_no_place_and_none_of_the_steps_time() {
    let now = Instant::now();
    let mut schedule = schedule(&[prepared_node(&[EAST], &[], &[]), node(&[EAST], &[], &[])], 1);
    let commands = schedule.handle(Event::Begin, now);
    assert_eq!((preparing(&commands), started(&commands)), (vec![(0, 0)], vec![(1, 0)]));
    let _ = schedule.handle(end(1, EAST, End::Succeeded), now);
    let late = now + 10 * TIMEOUT;
    let commands = schedule.handle(prepared(0, EAST), late);
    assert!(
        matches!(commands[..], [Command::Start { deadline, attempt: 1, .. }] if deadline == late + TIMEOUT),
        "{commands:?}"
    );
}

#[test]
fn nothing_is_prepared_for_a_step_that_is_withheld() {
    let now = Instant::now();
    let mut schedule = schedule(&[node(&[EAST], &[], &[]), prepared_node(&[EAST], &[0], &[])], 1);
    let _ = schedule.handle(Event::Begin, now);
    let commands = schedule.handle(end(0, EAST, End::Failed), now);
    assert_eq!(preparing(&commands), []);
    assert_eq!(commands.last(), Some(&Command::Finish));
}

#[test]
fn cancelled_run_waits_until_preparations_are_over() {
    let now = Instant::now();
    let nodes = [prepared_node(&[EAST, WEST], &[], &[]), prepared_node(&[EAST], &[0], &[])];
    let mut schedule = schedule(&nodes, 1);
    let _ = schedule.handle(Event::Begin, now);
    assert_eq!(settled(&schedule.handle(Event::Cancel, now)), [(1, Ending::Cancelled)]);
    assert_eq!(schedule.handle(prepared(0, EAST), now).len(), 1);
    let last = schedule.handle(prepared(0, WEST), now);
    assert_eq!(settled(&last), [(0, Ending::Cancelled)]);
    assert_eq!((started(&last), last.last()), (vec![], Some(&Command::Finish)));
}

#[test]
fn a_lowered_limit_holds_for_what_starts_next() {
    let now = Instant::now();
    let nodes: Vec<_> = (0..4).map(|_| node(&[EAST], &[], &[])).collect();
    let mut schedule = schedule(&nodes, 2);
    assert_eq!(started(&schedule.handle(Event::Begin, now)).len(), 2);
    let _ = schedule.handle(Event::Limit { target: EAST, limit: 1 }, now);
    assert_eq!(started(&schedule.handle(end(0, EAST, End::Succeeded), now)), []);
    assert_eq!(started(&schedule.handle(end(1, EAST, End::Succeeded), now)).len(), 1);
}

#[test]
fn long_chain_and_wide_fan_are_linear() {
    let now = Instant::now();
    let count = 100_000;
    let chain: Vec<_> = (0..count)
        .map(|ix| node(&[EAST], if ix == 0 { &[] } else { std::slice::from_ref(&ix) }, &[]))
        .map(|mut node| {
            node.depends_on.iter_mut().for_each(|ix| ix.0 -= 1);
            node
        })
        .collect();
    let mut schedule = schedule(&chain, 1);
    let _ = schedule.handle(Event::Begin, now);
    let commands = schedule.handle(end(0, EAST, End::Failed), now);
    assert_eq!(settled(&commands).len(), count as usize);
    assert_eq!(commands.last(), Some(&Command::Finish));
}

#[derive(Clone, Debug)]
struct World {
    mode: Mode,
    nodes: Vec<Node>,
    limit: usize,
    /// Decides, number by number, what happens next.
    fate: Vec<u8>,
    cancel_at: Option<usize>,
}

impl World {
    /// What must have succeeded before a step begins.
    fn dependencies(&self, step: StepIx) -> &[StepIx] {
        match self.mode {
            Mode::CarryOut => &self.nodes[step.0 as usize].depends_on,
            Mode::Rehearse => &[],
        }
    }

    /// What would have to, if it were no rehearsal.
    fn rehearsed(&self, step: StepIx) -> &[StepIx] {
        match self.mode {
            Mode::CarryOut => &[],
            Mode::Rehearse => &self.nodes[step.0 as usize].depends_on,
        }
    }

    /// What must have ended.
    fn earlier(&self, step: StepIx) -> impl Iterator<Item = &StepIx> {
        self.rehearsed(step).iter().chain(&self.nodes[step.0 as usize].runs_after)
    }
}

fn has_failed(concluded: &BTreeMap<(StepIx, Target), UnitOutcome>, step: StepIx) -> bool {
    concluded.iter().any(|((at, _), outcome)| *at == step && *outcome == UnitOutcome::Failed)
}

fn world() -> impl Strategy<Value = World> {
    let nodes = (1usize..24, 1u16..4).prop_flat_map(|(count, clusters)| {
        let step = (
            prop::collection::btree_set(0..clusters, 1..=clusters as usize),
            prop::collection::vec(any::<prop::sample::Index>(), 0..3),
            prop::collection::vec(any::<prop::sample::Index>(), 0..3),
            any::<bool>(),
        );
        prop::collection::vec(step, count).prop_map(|steps| {
            let pick = |set: Vec<prop::sample::Index>, ix: usize| -> Vec<StepIx> {
                if ix == 0 {
                    return Vec::new();
                }
                let picked: BTreeSet<_> = set.into_iter().map(|index| StepIx(index.index(ix) as u32)).collect();
                picked.into_iter().collect()
            };
            steps
                .into_iter()
                .enumerate()
                .map(|(ix, (clusters, depends_on, runs_after, is_prepared))| Node {
                    targets: clusters.into_iter().map(|it| Target::Cluster(ClusterIx(it))).collect(),
                    depends_on: pick(depends_on, ix),
                    runs_after: pick(runs_after, ix),
                    is_prepared,
                })
                .collect::<Vec<_>>()
        })
    });
    let mode = prop_oneof![Just(Mode::CarryOut), Just(Mode::Rehearse)];
    (mode, nodes, 1usize..4, prop::collection::vec(any::<u8>(), 1..64), prop::option::of(0usize..40))
        .prop_map(|(mode, nodes, limit, fate, cancel_at)| World { mode, nodes, limit, fate, cancel_at })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Dependencies first, then what is needed; the limit kept; one ending each; always finishes, once and last; cancel from any
    /// state. A rehearsal withholds nothing and says of each step what would have held it back (D20).
    #[test]
    fn laws_hold_in_every_run(world in world()) {
        let lanes = Targets { clusters: vec![(world.limit, TIMEOUT); 4].into(), adapters: Vec::new().into() };
        let mut schedule = Schedule::new(world.mode, &world.nodes, &lanes);
        let mut now = Instant::now();
        let mut fate = world.fate.iter().copied().cycle();
        let mut running: Vec<(StepIx, Target)> = Vec::new();
        let mut in_flight: BTreeMap<(StepIx, Target), bool> = BTreeMap::new();
        let mut pausing: Vec<(StepIx, Target, Instant)> = Vec::new();
        let mut preparing: Vec<(StepIx, Target)> = Vec::new();
        let mut prepared: BTreeSet<(StepIx, Target)> = BTreeSet::new();
        let mut concluded: BTreeMap<(StepIx, Target), UnitOutcome> = BTreeMap::new();
        let mut attempted: BTreeSet<StepIx> = BTreeSet::new();
        let mut endings: BTreeMap<StepIx, Ending> = BTreeMap::new();
        let mut held: BTreeMap<StepIx, StepIx> = BTreeMap::new();
        let mut cancelled = false;
        let mut finished = false;
        let mut event = Event::Begin;
        for turn in 0.. {
            prop_assert!(turn < 10_000, "a run must end");
            for command in schedule.handle(event.clone(), now) {
                prop_assert!(!finished, "nothing follows Finish");
                match command {
                    Command::Prepare { step, target } => {
                        prop_assert!(!cancelled && world.nodes[step.0 as usize].is_prepared);
                        for dependency in world.dependencies(step) {
                            prop_assert_eq!(endings.get(dependency), Some(&Ending::Succeeded));
                        }
                        prop_assert!(prepared.insert((step, target)), "a unit is prepared once");
                        preparing.push((step, target));
                    }
                    Command::Start { step, target, answer_by, deadline, .. } => {
                        prop_assert!(!cancelled);
                        prop_assert!(now <= answer_by && answer_by <= deadline);
                        let node = &world.nodes[step.0 as usize];
                        prop_assert!(!preparing.contains(&(step, target)));
                        prop_assert_eq!(node.is_prepared, prepared.contains(&(step, target)));
                        for dependency in world.dependencies(step) {
                            prop_assert_eq!(endings.get(dependency), Some(&Ending::Succeeded));
                        }
                        for earlier in world.earlier(step) {
                            let targets = &world.nodes[earlier.0 as usize].targets;
                            let is_over = |at: &Target| concluded.contains_key(&(*earlier, *at));
                            let there = targets.contains(&target);
                            let over = endings.contains_key(earlier)
                                || if there { is_over(&target) } else { targets.iter().all(is_over) };
                            prop_assert!(over, "{:?} on {:?} started before {:?} ended", step, target, earlier);
                        }
                        prop_assert!(!endings.contains_key(&step));
                        attempted.insert(step);
                        running.push((step, target));
                        in_flight.insert((step, target), true);
                        let busy = in_flight.iter().filter(|((_, at), holds)| *at == target && **holds).count();
                        prop_assert!(busy <= world.limit);
                    }
                    Command::Pause { step, target, until } => {
                        prop_assert!(!cancelled && until >= now);
                        pausing.push((step, target, until));
                    }
                    Command::Conclude { step, target, outcome } => {
                        prop_assert!(concluded.insert((step, target), outcome).is_none());
                        pausing.retain(|(paused, at, _)| (*paused, *at) != (step, target));
                    }
                    Command::Settle { step, ending, would_be_withheld } => {
                        prop_assert!(!preparing.iter().any(|(unit, _)| *unit == step), "it is still being prepared");
                        prop_assert!(endings.insert(step, ending).is_none());
                        held.extend(would_be_withheld.map(|hold| (step, hold.root)));
                        if !cancelled && !matches!(event, Event::Cancel) {
                            let failed = |step| has_failed(&concluded, step);
                            let held_by = |by: &StepIx| held.get(by).copied().or_else(|| failed(*by).then_some(*by));
                            let mut behind = world.rehearsed(step).iter();
                            let expected = behind.find_map(|&by| held_by(&by).map(|root| Hold { by, root }));
                            prop_assert_eq!(would_be_withheld, expected);
                            prop_assert!(world.rehearsed(step).iter().all(|by| endings.contains_key(by)));
                        }
                        match ending {
                            Ending::Withheld(Hold { by, root }) => {
                                prop_assert_eq!(world.mode, Mode::CarryOut);
                                prop_assert!(!attempted.contains(&step));
                                prop_assert!(world.nodes[step.0 as usize].depends_on.contains(&by));
                                let failed = concluded.iter().any(|((at, _), outcome)| {
                                    *at == root && matches!(outcome, UnitOutcome::Failed | UnitOutcome::Indeterminate)
                                });
                                prop_assert!(failed, "the root of a withheld chain has failed by itself");
                            }
                            Ending::Succeeded => {
                                for &target in &world.nodes[step.0 as usize].targets {
                                    prop_assert_eq!(concluded.get(&(step, target)), Some(&UnitOutcome::Succeeded));
                                }
                            }
                            Ending::Cancelled => prop_assert!(cancelled || matches!(event, Event::Cancel)),
                            Ending::Failed | Ending::Indeterminate => {}
                        }
                    }
                    Command::Finish => finished = true,
                }
            }
            cancelled |= matches!(event, Event::Cancel);
            if finished {
                break;
            }
            if world.cancel_at == Some(turn) {
                event = Event::Cancel;
                continue;
            }
            let choice = fate.next().expect("a cycle does not end");
            if !preparing.is_empty() && (choice % 3 == 0 || (running.is_empty() && pausing.is_empty())) {
                let (step, target) = preparing.remove(choice as usize % preparing.len());
                event = Event::Prepared { step, target };
                continue;
            }
            if running.is_empty() || (choice % 5 == 0 && !pausing.is_empty()) {
                prop_assert!(!pausing.is_empty(), "nothing runs, nothing waits, and the run has not ended");
                let (step, target, until) = pausing.remove(choice as usize % pausing.len());
                now = now.max(until);
                event = Event::Woken { step, target };
                continue;
            }
            let at = choice as usize % running.len();
            let (step, target) = running[at];
            if choice % 7 == 1 && in_flight[&(step, target)] {
                in_flight.insert((step, target), false);
                event = Event::Written { step, target };
                continue;
            }
            running.remove(at);
            in_flight.remove(&(step, target));
            let end = match choice % 11 {
                0 | 1 => End::Failed,
                2 => End::Indeterminate,
                3 | 4 => again(None, choice % 2 == 0),
                _ => End::Succeeded,
            };
            event = Event::Ended { step, target, end };
        }
        prop_assert_eq!(endings.len(), world.nodes.len());
        if !cancelled && endings.values().all(|ending| *ending != Ending::Failed && *ending != Ending::Indeterminate) {
            prop_assert!(endings.values().all(|ending| *ending == Ending::Succeeded));
        }
    }
}
