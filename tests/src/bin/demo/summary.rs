//! The account of the run.

use std::{collections::BTreeMap, io};

use switchyard_proto::v1::{RunSummary, SummaryRow, Verdict};

use super::{
    run::{elapsed, ending_word, word},
    screen::{Paint, Screen},
    table::{Table, plain},
};
use switchyard_tests::client::{Outcome, PlanParts};

/// Shows the summary: every component, and of those that did not succeed why.
pub(crate) fn show(heading: &str, plan: &PlanParts, outcome: &Outcome, screen: &mut Screen) -> io::Result<()> {
    let RunSummary { counts, rows, critical_path, .. } = &outcome.summary;
    screen.heading(heading)?;
    let mut table = Table::new(&["component", "model", "path", "where", "outcome", "changes"]);
    for row in rows {
        let (paint, outcome_word) = ending_word(row.outcome());
        table.row(vec![
            (Paint::Strong, row.component.clone()),
            plain(&row.model),
            plain(row.route().as_str_name().trim_start_matches("ROUTE_").to_lowercase()),
            plain(row.fulfilled_by.join(", ")),
            (paint, outcome_word.to_owned()),
            (Paint::Faint, changes(row, outcome)),
        ]);
    }
    let table = table.draw(screen);
    screen.block(&table)?;
    let failures: Vec<&SummaryRow> = rows.iter().filter(|row| !row.because.is_empty()).collect();
    for row in &failures {
        let (paint, word) = ending_word(row.outcome());
        let because = row.because.strip_prefix(&format!("{word}: ")).unwrap_or(&row.because);
        // Of the components that are withheld each repeats the whole cause, which stands here already.
        let root = failures.iter().find(|root| root.step_id != row.step_id && because.ends_with(&root.because));
        let because = root.map_or(because, |root| because.trim_end_matches(&root.because).trim_end_matches(": "));
        screen.line(format!("  {} {}: {because}", screen.paint(paint, word), row.component))?;
    }

    let paint = match outcome.verdict() {
        Verdict::Succeeded => Paint::Good,
        Verdict::Partial | Verdict::Cancelled => Paint::Wary,
        Verdict::Failed | Verdict::Unspecified => Paint::Bad,
    };
    let verdict = screen.paint(paint, verdict_word(outcome.verdict()));
    let counts: BTreeMap<_, _> = counts.iter().collect();
    let counts: Vec<String> = counts.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
    screen.line(format!("  verdict {verdict}: {}, in {}", counts.join(", "), elapsed(outcome)))?;
    let longest: Vec<&str> = critical_path.iter().map(|id| plan.name(id).unwrap_or(id)).collect();
    screen.line(screen.paint(Paint::Faint, format!("  what took longest: {}", longest.join(" → "))))
}

/// Returns a verdict in one word.
pub(crate) fn verdict_word(verdict: Verdict) -> String {
    verdict.as_str_name().trim_start_matches("VERDICT_").to_lowercase()
}

/// What changed and, of an adapter's work, what was seen of it; the same on several clusters said once.
fn changes(row: &SummaryRow, outcome: &Outcome) -> String {
    let Some(result) = outcome.results.iter().find(|result| result.step_id == row.step_id) else {
        return String::new();
    };
    let words: Vec<&str> = result.targets.iter().map(|target| word(target, result.route()).1).collect();
    let same = words.chunk_by(|one, other| one == other).map(|same| match same {
        [one] => (*one).to_owned(),
        _ => format!("{} on {}", same[0], same.len()),
    });
    same.collect::<Vec<_>>().join(", ")
}
