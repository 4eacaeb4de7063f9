//! The run as it happens.

use std::{collections::BTreeMap, time::Duration};

use anyhow::bail;
use switchyard_proto::v1::{
    self, Change, ExecuteResponse, Outcome as Ending, Readiness, Route, StepResult, TargetResult,
    execute_response::Event, target_result::Target,
};

use super::{
    plan::refused,
    screen::{Paint, Screen},
    wait::{spoken, wait},
};
use switchyard_tests::client::{Client, Outcome, PlanParts, TraceParent};

/// Executes the plan and shows each result when it comes.
pub(crate) async fn show(
    heading: &str,
    client: &Client,
    plan: PlanParts,
    screen: &mut Screen,
) -> anyhow::Result<Outcome> {
    screen.heading(heading)?;
    let mut live = Live::new(&plan);
    let mut execution = client.execute(plan, Vec::new()).await.map_err(|status| refused(&status))?;
    let mut outcome = Outcome::default();
    loop {
        let text = live.in_motion(screen);
        match wait(screen, &text, execution.next()).await?.map_err(|status| refused(&status))? {
            Some(event) => {
                live.event(&event, screen)?;
                outcome.take(event);
            }
            None if outcome.summary.complete => return Ok(outcome),
            None => bail!("the executor's answer ended before its summary"),
        }
    }
}

/// Executes the plan once more, to see that nothing is left to do.
pub(crate) async fn again(client: &Client, plan: PlanParts, screen: &mut Screen) -> anyhow::Result<()> {
    // A trace of its own: the one that will be shown holds one run.
    let client = client.clone().traced(TraceParent::random());
    let running = async { client.execute(plan, Vec::new()).await?.finish().await };
    let outcome = wait(screen, "the same plan once more", running).await?.map_err(|status| refused(&status))?;
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for result in &outcome.results {
        for target in result.targets.iter().filter(|target| !is_look(target, result.route())) {
            *counts.entry(word(target, result.route()).1).or_default() += 1;
        }
    }
    let counts: Vec<String> = counts.iter().map(|(word, count)| format!("{count} {word}")).collect();
    screen.done(format!("the same plan once more: {}, in {}", counts.join(", "), elapsed(&outcome)))?;
    Ok(())
}

/// Returns how long a run took.
pub(crate) fn elapsed(outcome: &Outcome) -> String {
    spoken(duration(outcome.summary.elapsed.as_ref()))
}

/// Tells whether this is what was seen on a cluster of an adapter's work.
fn is_look(target: &TargetResult, route: Route) -> bool {
    route == Route::Adapter && matches!(target.target, Some(Target::Cluster(_)))
}

/// Returns what became of a step on a target, in a word or two.
pub(crate) fn word(target: &TargetResult, route: Route) -> (Paint, &'static str) {
    match (target.outcome(), target.change()) {
        (Ending::Succeeded, Change::Removed | Change::Absent) if is_look(target, route) => (Paint::Good, "seen gone"),
        (Ending::Succeeded, _) if is_look(target, route) => (Paint::Good, "seen"),
        (Ending::Failed, _) if is_look(target, route) => (Paint::Bad, "not seen"),
        (Ending::Succeeded, Change::Removed) => (Paint::Good, "removed"),
        (Ending::Succeeded, Change::Absent) => (Paint::Good, "was not there"),
        (Ending::Succeeded, Change::Acknowledged) => (Paint::Good, "acknowledged"),
        (Ending::Succeeded, Change::Created) => (Paint::Good, "created"),
        (Ending::Succeeded, Change::Configured) => (Paint::Good, "configured"),
        (Ending::Succeeded, Change::Unchanged) => (Paint::Good, "unchanged"),
        (ending, _) => ending_word(ending),
    }
}

/// Returns how a step ended, in one word.
pub(crate) fn ending_word(ending: Ending) -> (Paint, &'static str) {
    match ending {
        Ending::Succeeded => (Paint::Good, "succeeded"),
        Ending::Failed => (Paint::Bad, "failed"),
        Ending::Withheld => (Paint::Wary, "withheld"),
        Ending::Indeterminate => (Paint::Bad, "indeterminate"),
        Ending::Cancelled => (Paint::Wary, "cancelled"),
        Ending::Unspecified => (Paint::Bad, "unspecified"),
    }
}

/// Returns whether the object had become ready, if that was waited for.
fn readiness(target: &TargetResult) -> Option<(Paint, &'static str)> {
    match target.readiness() {
        Readiness::Unspecified => None,
        Readiness::Ready => Some((Paint::Good, "ready")),
        Readiness::Progressing => Some((Paint::Wary, "not ready yet")),
        Readiness::Stalled => Some((Paint::Bad, "stalled")),
        Readiness::Unknown => Some((Paint::Wary, "not known to be ready")),
    }
}

fn duration(duration: Option<&prost_types::Duration>) -> Duration {
    duration.and_then(|&duration| duration.try_into().ok()).unwrap_or_default()
}

/// What is known of the run while it goes on.
struct Live {
    steps: BTreeMap<String, Step>,
    total: usize,
    ended: usize,
    running: Vec<String>,
    /// When the run began, by the executor's clock.
    began: Option<Duration>,
    /// Of the longest name of a component, and of a target.
    widths: (usize, usize),
}

/// A step, as far as it has come.
struct Step {
    name: String,
    route: Route,
    /// On how many targets something is done, or seen of what an adapter did.
    targets: usize,
    ended: usize,
}

impl Step {
    fn new(step: &v1::PlanStep) -> Self {
        let name = step.component.clone().unwrap_or_default().name;
        let (route, targets) = match &step.route {
            Some(v1::plan_step::Route::Direct(direct)) => (Route::Direct, direct.clusters.len()),
            Some(v1::plan_step::Route::Adapter(adapter)) => (Route::Adapter, 1 + adapter.clusters.len()),
            None => (Route::Unspecified, 0),
        };
        Self { name, route, targets, ended: 0 }
    }
}

impl Live {
    fn new(plan: &PlanParts) -> Self {
        let steps: BTreeMap<_, _> = plan.steps.iter().map(|step| (step.id.clone(), Step::new(step))).collect();
        let total = steps.values().map(|step| step.targets).sum();
        let name = steps.values().map(|step| step.name.chars().count()).max().unwrap_or(0);
        let places = plan.steps.iter().map(|step| match &step.route {
            Some(v1::plan_step::Route::Adapter(adapter)) => format!("{}:{}", adapter.host, adapter.port).len(),
            _ => 0,
        });
        let clusters = plan.header.clusters.iter().map(|name| name.chars().count());
        let place = places.chain(clusters).max().unwrap_or(0);
        Self { steps, total, ended: 0, running: Vec::new(), began: None, widths: (name, place) }
    }

    fn name(&self, step: &str) -> String {
        self.steps.get(step).map_or(step, |step| &step.name).to_owned()
    }

    fn in_motion(&self, screen: &Screen) -> String {
        const WIDTH: usize = 24;
        if self.began.is_none() {
            return "proving that every cluster is workable".to_owned();
        }
        let full = (self.ended * WIDTH).checked_div(self.total).unwrap_or(WIDTH);
        let bar = screen.paint(Paint::Good, "━".repeat(full)) + &screen.paint(Paint::Faint, "━".repeat(WIDTH - full));
        format!("{bar} {}/{} {}", self.ended, self.total, self.running.join(", "))
    }

    fn event(&mut self, event: &ExecuteResponse, screen: &mut Screen) -> anyhow::Result<()> {
        let now = event.time.as_ref().map_or(Duration::ZERO, |time| {
            Duration::new(time.seconds.try_into().unwrap_or(0), time.nanos.try_into().unwrap_or(0))
        });
        let began = *self.began.get_or_insert(now);
        let at = format!("{:>7.3} s", now.saturating_sub(began).as_secs_f64());
        let at = screen.paint(Paint::Faint, at);
        match &event.event {
            Some(Event::RunStarted(started)) => {
                for v1::ClusterInfo { name, server, version } in &started.clusters {
                    screen.done(format!("{name} is workable: Kubernetes {version} at {server}"))?;
                }
                screen.line(format!("  run {}", started.run_id))?;
            }
            Some(Event::StepStarted(started)) => self.running.push(started.component.clone()),
            Some(Event::TargetResult(target)) => self.target(target, &at, screen)?,
            Some(Event::StepResult(result)) => self.step(result, &at, screen)?,
            Some(Event::StepProgress(_) | Event::LeftOver(_) | Event::Summary(_)) | None => {}
        }
        Ok(())
    }

    fn target(&mut self, target: &TargetResult, at: &str, screen: &mut Screen) -> anyhow::Result<()> {
        self.ended += 1;
        let route = self.steps.get_mut(&target.step_id).map_or(Route::Unspecified, |step| {
            step.ended += 1;
            step.route
        });
        let place = match &target.target {
            Some(Target::Cluster(name)) => name,
            Some(Target::AdapterAddress(address)) => address,
            None => "",
        };
        let mut rest = format!("{place:<width$}", width = self.widths.1);
        if !is_look(target, route) {
            rest += &format!("  {}", spoken(duration(target.elapsed.as_ref())));
        }
        if let Some(readiness) = readiness(target) {
            rest += &format!("  {}", screen.paint(readiness.0, readiness.1));
        }
        self.result(word(target, route), &self.name(&target.step_id), &rest, at, screen)?;
        if let Some(error) = &target.error {
            screen.line(format!("{:24}{}: {}", "", screen.paint(Paint::Bad, &error.reason), error.message))?;
        }
        target.warnings.iter().try_for_each(|warning| screen.line(format!("{:24}warning: {warning}", "")))?;
        Ok(())
    }

    fn step(&mut self, result: &StepResult, at: &str, screen: &mut Screen) -> anyhow::Result<()> {
        let name = self.name(&result.step_id);
        self.running.retain(|running| *running != name);
        // Where nothing was attempted, or could be seen, no target says anything.
        self.ended += self.steps.get(&result.step_id).map_or(0, |step| step.targets.saturating_sub(step.ended));
        if !result.targets.is_empty() {
            return Ok(());
        }
        let because = match &result.withheld {
            Some(withheld) if withheld.step_id == withheld.root_step_id => {
                format!("{} did not succeed", withheld.component)
            }
            Some(withheld) => {
                format!("{} did not succeed, because of {}", withheld.component, withheld.root_component)
            }
            None => result.error.as_ref().map(|error| error.message.clone()).unwrap_or_default(),
        };
        self.result(ending_word(result.outcome()), &name, &because, at, screen)
    }

    fn result(
        &self,
        (paint, word): (Paint, &str),
        name: &str,
        rest: &str,
        at: &str,
        screen: &mut Screen,
    ) -> anyhow::Result<()> {
        let count = format!("{}/{}", self.ended, self.total);
        let word = screen.paint(paint, format!("{word:<13}"));
        let line = format!("  {at}  {count:>6}  {word}  {name:<width$}  {rest}", width = self.widths.0);
        screen.line(line.trim_end())?;
        Ok(())
    }
}
