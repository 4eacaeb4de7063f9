//! The undeploy: the same design taken down again, dependents first.

use switchyard_proto::v1::Verdict;

use super::{
    design::Design,
    plan::refused,
    run,
    screen::{Paint, Screen},
    summary::{self, verdict_word},
    world::World,
};
use switchyard_tests::client::{Client, TraceParent};

/// Takes the design down and tells whether nothing of it is left.
pub(crate) async fn show(world: &World, design: &Design, screen: &mut Screen) -> anyhow::Result<bool> {
    let client = Client::connect(&world.planner.url(), &world.executor.url()).await?.traced(TraceParent::random());
    let request = design.undeploy(&world.cluster_names());
    let plan = client.plan(request).await.map_err(|status| refused(&status))?;
    let outcome = run::show("The undeploy: dependents first", &client, plan.clone(), screen).await?;
    summary::show("What the undeploy came to", &plan, &outcome, screen)?;
    let is_gone = outcome.verdict() == Verdict::Succeeded;
    let places = world.cluster_names().join(" and ");
    if is_gone {
        screen.done(format!("nothing of the design is left on {places}"))?;
    } else {
        let verdict = verdict_word(outcome.verdict());
        let text =
            format!("  {} the undeploy ended {verdict}; see above for what is left", screen.paint(Paint::Bad, "✗"));
        screen.line(text)?;
    }
    Ok(is_gone)
}
