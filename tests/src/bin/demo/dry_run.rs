//! The dry run: what the deploy would do, asked of every cluster.

use std::collections::BTreeMap;

use anyhow::bail;
use switchyard_proto::v1::{Change, Outcome as Ending, StepResult, TargetResult, target_result::Target};

use super::{
    ground::Asked,
    plan::refused,
    run::elapsed,
    screen::{Paint, Screen},
    table::{Table, plain},
    wait::wait,
    world::World,
};
use switchyard_tests::client::{Client, PlanParts};

/// Executes the plan, which has to be one of a dry run, and shows what each component was answered.
pub(crate) async fn show(world: &World, client: &Client, plan: PlanParts, screen: &mut Screen) -> anyhow::Result<()> {
    screen.heading("The dry run: what would happen, asked of every cluster")?;
    let before = world.ground.asked()?;
    let running = async { client.execute(plan.clone(), Vec::new()).await?.finish().await };
    let outcome = wait(screen, "asking every cluster", running).await?.map_err(|status| refused(&status))?;

    let mut table = Table::new(&["component", "answer", "where", "because"]);
    for name in plan.names() {
        let Some(result) = outcome.result(name) else { continue };
        let mut name = (Paint::Strong, name.to_owned());
        for (answer, places) in answers(result) {
            let Answer { paint, word, because } = answer;
            let name = std::mem::replace(&mut name, plain(""));
            table.row(vec![name, (paint, word.to_owned()), plain(places.join(", ")), plain(because)]);
        }
    }
    let table = table.draw(screen);
    screen.block(&table)?;
    let proof = before.zip(world.ground.asked()?).map(|(before, after)| nothing_changed(before, after)).transpose()?;
    let took = elapsed(&outcome);
    match proof {
        Some(proof) => {
            screen.done(format!("nothing was changed, in {took}"))?;
            screen.line(format!("    {}", screen.paint(Paint::Faint, proof)))?;
        }
        // Other people's logs are not ours to read.
        None => screen.done(format!("asked, in {took}; every request told the API servers to change nothing"))?,
    }
    Ok(())
}

/// Makes sure that nothing was changed, by the word of those who would know.
fn nothing_changed(before: Asked, after: Asked) -> anyhow::Result<String> {
    let (writes, calls) = (after.writes - before.writes, after.calls - before.calls);
    if writes > 0 || calls > 0 {
        bail!("the dry run sent {writes} writes to clusters and {calls} calls to the adapter");
    }
    let tried = after.dry_runs - before.dry_runs;
    Ok(format!("by the clusters' own logs {tried} writes were tried out and none was made; the adapter was not called"))
}

/// What would happen.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Answer {
    word: &'static str,
    paint: Paint,
    because: String,
}

/// Returns the answers to one component, each with the clusters that gave it.
fn answers(result: &StepResult) -> BTreeMap<Answer, Vec<&str>> {
    let mut answers: BTreeMap<Answer, Vec<&str>> = BTreeMap::new();
    for target in &result.targets {
        let place = match &target.target {
            Some(Target::Cluster(name) | Target::AdapterAddress(name)) => name,
            None => "",
        };
        let mut answer = answer(target);
        // Which cluster it is, and what the answer is, stands beside it.
        answer.because = answer.because.replace(&format!(" on cluster {place}"), "");
        answer.because = answer.because.trim_start_matches("cannot tell in a dry run: ").to_owned();
        if let Some(withheld) = &result.would_be_withheld {
            let because = format!("would be withheld by {}; {}", withheld.component, answer.because);
            answer.because = because.trim_end_matches("; ").to_owned();
        }
        answers.entry(answer).or_default().push(place);
    }
    answers
}

fn answer(target: &TargetResult) -> Answer {
    let (paint, word) = match (target.outcome(), target.change()) {
        (Ending::Succeeded, Change::Created) => (Paint::Good, "would create"),
        (Ending::Succeeded, Change::Configured) => (Paint::Good, "would change"),
        (Ending::Succeeded, Change::Unchanged) => (Paint::Good, "would leave as it is"),
        (Ending::Succeeded, _) => (Paint::Good, "would succeed"),
        (Ending::Indeterminate, _) => (Paint::Wary, "cannot tell"),
        _ => (Paint::Bad, "would fail"),
    };
    let says_how = |it: &&String| ["tried in namespace ", "as checked against "].iter().any(|how| it.starts_with(how));
    let tried = || target.warnings.iter().find(says_how).cloned();
    let because = target.error.as_ref().map(|error| error.message.clone()).or_else(tried).unwrap_or_default();
    Answer { word, paint, because }
}

#[cfg(test)]
mod tests {
    use switchyard_proto::v1::{Failure, Withheld};

    use super::*;

    fn target(cluster: &str, outcome: Ending, change: Change, why: Option<&str>) -> TargetResult {
        TargetResult {
            target: Some(Target::Cluster(cluster.into())),
            outcome: outcome.into(),
            change: change.into(),
            error: why.map(|message| Failure { message: message.into(), ..Failure::default() }),
            ..TargetResult::default()
        }
    }

    #[test]
    fn clusters_that_answer_the_same_share_a_line() {
        let why = |cluster: &str| format!("cannot tell in a dry run: namespace shop is not there on cluster {cluster}");
        let result = StepResult {
            targets: vec![
                target("east", Ending::Indeterminate, Change::Unspecified, Some(&why("east"))),
                target("west", Ending::Indeterminate, Change::Unspecified, Some(&why("west"))),
                target("south", Ending::Succeeded, Change::Created, None),
            ],
            would_be_withheld: Some(Withheld { component: "db".into(), ..Withheld::default() }),
            ..StepResult::default()
        };
        let answers: Vec<_> = answers(&result)
            .into_iter()
            .map(|(Answer { word, because, .. }, places)| (word, because, places.join(" ")))
            .collect();
        let told = |word, because: &str, places: &str| (word, because.to_owned(), places.to_owned());
        assert_eq!(
            answers,
            [
                told("cannot tell", "would be withheld by db; namespace shop is not there", "east west"),
                told("would create", "would be withheld by db", "south"),
            ]
        );
    }
}
