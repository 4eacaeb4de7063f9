//! The plan as a table.

use std::io;

use switchyard_proto::v1::{PlanStep, plan_step::Route};
use tonic::Status;
use tonic_types::StatusExt as _;

use super::{
    screen::{Paint, Screen},
    table::{Table, plain},
};
use switchyard_tests::client::PlanParts;

/// Shows the plan.
pub(crate) fn show(plan: &PlanParts, screen: &mut Screen) -> io::Result<()> {
    let PlanParts { header, steps, .. } = plan;
    screen.heading("The plan")?;
    let mut table = Table::new(&["wave", "component", "kind", "path", "targets", "depends on (runs after)"]);
    for step in steps {
        let component = step.component.clone().unwrap_or_default();
        let (path, targets) = path(step);
        table.row(vec![
            plain(step.wave.to_string()),
            (Paint::Strong, component.name),
            plain(component.kind),
            plain(path),
            plain(targets),
            plain(order(plan, step)),
        ]);
    }
    for aside in &header.set_aside {
        let name = if aside.name.is_empty() { &aside.component_id } else { &aside.name };
        let cells = [plain("-"), (Paint::Faint, name.clone()), plain(&aside.kind), (Paint::Faint, "set aside".into())];
        table.row(cells.into());
    }
    let table = table.draw(screen);
    screen.block(&table)?;
    for warning in &header.warnings {
        screen.line(format!("  {} {}: {}", screen.paint(Paint::Wary, "warning"), warning.field, warning.message))?;
    }
    let note = format!(
        "plan {}…: {} steps for {}. A step starts the moment all that it depends on is on every cluster.\n\
         In brackets: order that nobody declared. Definitions and namespaces come before what needs them.",
        header.plan_id.get(..12).unwrap_or(&header.plan_id),
        header.step_count,
        header.clusters.join(" and "),
    );
    note.lines().try_for_each(|line| screen.line(format!("  {}", screen.paint(Paint::Faint, line))))
}

/// Names what a step depends on and, in brackets, what it only runs after.
fn order(plan: &PlanParts, step: &PlanStep) -> String {
    let names = |ids: &[String]| {
        let names: Vec<&str> = ids.iter().map(|id| plan.name(id).unwrap_or(id)).collect();
        names.join(", ")
    };
    match (step.depends_on.as_slice(), step.runs_after.as_slice()) {
        (declared, []) => names(declared),
        ([], undeclared) => format!("({})", names(undeclared)),
        (declared, undeclared) => format!("{} ({})", names(declared), names(undeclared)),
    }
}

/// Returns the path, and who the step is done by.
pub(crate) fn path(step: &PlanStep) -> (&'static str, String) {
    match &step.route {
        Some(Route::Direct(direct)) => ("direct", direct.clusters.join(", ")),
        Some(Route::Adapter(adapter)) => ("adapter", format!("{}:{}", adapter.host, adapter.port)),
        None => ("none", String::new()),
    }
}

/// Turns a refusal into an error that says all that the service said.
pub(crate) fn refused(status: &Status) -> anyhow::Error {
    let details = status.get_error_details();
    let mut text = format!("{:?}: {}", status.code(), status.message());
    for violation in details.bad_request().into_iter().flat_map(|bad| &bad.field_violations) {
        text += &format!("\n  {}: {}", violation.field, violation.description);
    }
    for violation in details.precondition_failure().into_iter().flat_map(|failure| &failure.violations) {
        text += &format!("\n  {}: {}", violation.subject, violation.description);
    }
    anyhow::anyhow!(text)
}
