//! A run of some size, always the same, whose instructions are counted (`tests/tests/it/instructions.rs`).

use super::*;
use crate::core::target::ClusterIx;

/// Layers of ten, each step on three of the layer before, on two clusters.
const STEPS: u32 = 2_000;
const CLUSTERS: [Target; 2] = [Target::Cluster(ClusterIx(0)), Target::Cluster(ClusterIx(1))];

fn both<T: Clone>(value: T) -> Targets<T> {
    Targets { clusters: vec![value; 2].into(), adapters: Vec::new().into() }
}

fn layered() -> Vec<Node> {
    let before = |number: u32| match number {
        0..10 => Vec::new(),
        _ => (0..3).map(|k| StepIx(number / 10 * 10 - 10 + (number + k * 3) % 10)).collect(),
    };
    (0..STEPS)
        .map(|number| Node { targets: CLUSTERS.to_vec(), depends_on: before(number), ..Node::default() })
        .collect()
}

/// Runs to the end and counts the steps that succeeded. Its name is what the counting looks for.
#[inline(never)]
fn counted_schedule(nodes: &[Node]) -> usize {
    let now = Instant::now();
    let mut schedule = Schedule::new(Mode::CarryOut, nodes, &both((32, Duration::from_secs(60))));
    let mut started = std::collections::VecDeque::new();
    let mut succeeded = 0;
    let mut next = Some(Event::Begin);
    while let Some(event) = next.take() {
        for command in schedule.handle(event, now) {
            match command {
                Command::Start { step, target, .. } => started.push_back((step, target)),
                Command::Settle { ending: Ending::Succeeded, .. } => succeeded += 1,
                _ => {}
            }
        }
        next = started.pop_front().map(|(step, target)| Event::Ended { step, target, end: End::Succeeded });
    }
    succeeded
}

#[test]
fn large_plan_runs_to_its_end() {
    assert_eq!(counted_schedule(&layered()), STEPS as usize);
}
