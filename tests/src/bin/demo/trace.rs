//! The run as one trace, read back from Jaeger.

use std::time::Duration;

use super::{
    screen::{Paint, Screen},
    tree,
    wait::wait,
    world::World,
};
use switchyard_tests::{
    client::PlanParts,
    sandbox::{Span, Trace},
};

/// API servers and etcd send what they have every five seconds.
const ARRIVAL: Duration = Duration::from_secs(20);

/// Shows the trace.
pub(crate) async fn show(world: &World, trace_id: &str, plan: &PlanParts, screen: &mut Screen) -> anyhow::Result<()> {
    screen.heading("The trace")?;
    let with_servers = !world.is_own();
    let arriving =
        world.ground.jaeger().wait_for(trace_id, ARRIVAL, |trace| is_whole(trace, plan.steps.len(), with_servers));
    let text = "waiting for the spans; API servers and etcd send theirs every five seconds";
    let trace = match wait(screen, text, arriving).await? {
        Ok(trace) => trace,
        Err(_) => {
            screen.line(screen.paint(Paint::Wary, "  not all of it has arrived:"))?;
            world.ground.jaeger().trace(trace_id).await?
        }
    };
    screen.block(&tree::draw(&trace, screen))?;
    let services: Vec<&str> = trace.services().into_iter().collect();
    screen.line(format!("  {} spans from {}", trace.spans.len(), services.join(", ")))?;
    screen.line(format!("  all of it: {}/api/v3/traces/{trace_id}", world.ground.jaeger().query_url()))?;
    Ok(())
}

/// Tells whether everything has arrived: the calls, which end last, and below each write what the API server did, down to etcd
/// if the write was let through, and below each call to an adapter what that did. etcd's spans come last of all.
fn is_whole(trace: &Trace, steps: usize, with_servers: bool) -> bool {
    let calls = ["Plan", "Execute"].iter().all(|call| trace.spans.iter().any(|span| span.name.ends_with(call)));
    let writes: Vec<&Span> = trace.spans.iter().filter(|span| tree::is_write(span)).collect();
    let served = |write: &&Span| {
        let stored = || trace.of("etcd").any(|span| trace.is_below(span, write));
        trace.children(&write.id).next().is_some() && (!tree::was_let_through(write) || stored())
    };
    let answered = |call: &Span| trace.children(&call.id).next().is_some();
    let adapters = trace.spans.iter().filter(|span| tree::is_adapter_call(span)).all(answered);
    calls && adapters && (steps == 0 || !writes.is_empty()) && (!with_servers || writes.iter().all(served))
}
