//! Keeps every event to a size that clients take (case 249).

use prost::Message;
use switchyard_proto::v1::{self, execute_response::Event};
use switchyard_service::status::capped;

/// Largest event, in bytes: well below the 4 MiB that gRPC clients take by default (case 249).
pub(crate) const MAX_EVENT: usize = 2 * 1024 * 1024;
/// Longest text that is said again where it has been said in full already, in bytes.
const MAX_REPEATED: usize = 256;
/// Most names of clusters that are listed in one place.
pub(crate) const MAX_LISTED: usize = 1000;

/// A text that has been said in full elsewhere.
pub(crate) fn repeated(text: &str) -> String {
    capped(text, MAX_REPEATED)
}

/// How many of the first fit.
pub(crate) fn fitting<M: Message>(messages: &[M], bytes: usize) -> usize {
    let mut size = 0;
    let fits = |message: &&M| {
        size += message.encoded_len() + 8;
        size <= bytes
    };
    messages.iter().take_while(fits).count()
}

/// Names in a list, and how many more there are if they are too many.
pub(crate) fn listed(names: &[String], most: usize) -> Vec<String> {
    let mut listed: Vec<_> = names.iter().take(most).cloned().collect();
    if names.len() > most {
        listed.push(format!("and {} more", names.len() - most));
    }
    listed
}

/// Cuts an event to [`MAX_EVENT`]: what is said elsewhere goes first, then detail, then what went well.
pub(crate) fn fit(event: Event) -> Event {
    let mut event = brief(event);
    match &mut event {
        Event::RunStarted(started) => {
            keep_within(&mut started.clusters, MAX_EVENT / 2);
            started.warnings = listed(&started.warnings, MAX_LISTED);
        }
        Event::StepResult(result) => {
            result.targets.sort_by_key(|target| target.outcome() == v1::Outcome::Succeeded);
            result.prerequisites.sort_by_key(|need| need.outcome() == v1::Outcome::Succeeded);
            keep_within(&mut result.targets, MAX_EVENT / 2);
            keep_within(&mut result.prerequisites, MAX_EVENT / 4);
        }
        Event::TargetResult(_)
        | Event::StepStarted(_)
        | Event::StepProgress(_)
        | Event::LeftOver(_)
        | Event::Summary(_) => {}
    }
    event
}

/// An event without its details: outcomes and reasons stay, texts are short.
pub(crate) fn brief(mut event: Event) -> Event {
    fn brief_target(target: &mut v1::TargetResult) {
        shorten(&mut target.error, MAX_REPEATED);
        target.warnings.truncate(1);
        target.warnings.iter_mut().for_each(|warning| *warning = repeated(warning));
        target.altered.clear();
        if !target.diff.is_empty() {
            target.warnings.push(format!("{} fields that would change are left out", target.diff.len()));
            target.diff_left_out += target.diff.len() as u32;
            target.diff.clear();
        }
    }
    match &mut event {
        Event::TargetResult(target) => brief_target(target),
        Event::StepResult(result) => {
            shorten(&mut result.error, MAX_REPEATED);
            result.targets.iter_mut().for_each(brief_target);
            result.prerequisites.iter_mut().for_each(|need| shorten(&mut need.error, MAX_REPEATED));
        }
        Event::LeftOver(left_over) => shorten(&mut left_over.error, MAX_REPEATED),
        Event::RunStarted(_) | Event::StepStarted(_) | Event::StepProgress(_) | Event::Summary(_) => {}
    }
    event
}

/// Leaves so much of what a failure says, in bytes, and no causes.
pub(crate) fn shorten(failure: &mut Option<v1::Failure>, most: usize) {
    if let Some(failure) = failure {
        failure.message = capped(&failure.message, most);
        failure.causes.clear();
    }
}

/// Keeps as many of the first as fit.
pub(crate) fn keep_within<M: Message>(messages: &mut Vec<M>, bytes: usize) {
    messages.truncate(fitting(messages, bytes));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(length: usize) -> String {
        "x".repeat(length)
    }

    fn target(number: usize, outcome: v1::Outcome) -> v1::TargetResult {
        let causes = (0..20).map(|_| v1::Cause { message: text(1000), ..Default::default() }).collect();
        v1::TargetResult {
            step_id: text(200),
            target: Some(v1::target_result::Target::Cluster(format!("cluster-{number}"))),
            outcome: outcome.into(),
            error: (outcome == v1::Outcome::Failed).then(|| v1::Failure {
                message: text(4000),
                causes,
                ..Default::default()
            }),
            warnings: (0..5).map(|_| text(4000)).collect(),
            diff: (0..200)
                .map(|_| v1::FieldDiff { path: text(100), before: text(1000), after: text(1000), ..Default::default() })
                .collect(),
            ..Default::default()
        }
    }

    /// Case 249.
    #[test]
    fn every_event_fits_whatever_it_is_about() {
        let targets = |number| {
            (0..number).map(|number| match number % 100 {
                99 => target(number, v1::Outcome::Failed),
                _ => target(number, v1::Outcome::Succeeded),
            })
        };
        let failed = |event: &Event| match event {
            Event::StepResult(result) => {
                let failed = result.targets.iter().filter(|it| it.outcome() == v1::Outcome::Failed);
                failed.map(|target| target.error.as_ref().unwrap().message.len()).collect::<Vec<_>>()
            }
            _ => Vec::new(),
        };
        let result = |number| {
            fit(Event::StepResult(v1::StepResult { targets: targets(number).collect(), ..Default::default() }))
        };
        assert_eq!(failed(&result(1_000)), [MAX_REPEATED; 10]);
        // What failed is told before what did not.
        assert_eq!(failed(&result(10_000)), [MAX_REPEATED; 100]);
        let clusters =
            (0..10_000).map(|_| v1::ClusterInfo { name: text(253), server: text(255), version: text(20) }).collect();
        let warnings = (0..10_000).map(|_| text(500)).collect();
        let started = fit(Event::RunStarted(v1::RunStarted { clusters, warnings, ..Default::default() }));
        let one = fit(Event::TargetResult(target(1, v1::Outcome::Failed)));
        for event in [result(10_000), started, one] {
            let size = v1::ExecuteResponse { event: Some(event), ..Default::default() }.encoded_len();
            assert!(size <= MAX_EVENT, "{size}");
        }
    }

    #[test]
    fn list_of_names_says_how_many_it_leaves_out() {
        let names: Vec<_> = (0..1_500).map(|number| number.to_string()).collect();
        let shown = listed(&names, MAX_LISTED);
        assert_eq!((shown.len(), shown[1_000].as_str()), (1_001, "and 500 more"));
        assert_eq!(listed(&names[..2], MAX_LISTED), ["0", "1"]);
    }
}
