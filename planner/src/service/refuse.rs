//! Refusals -> status with details.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use switchyard_service::status::{self, Reason, Refusal, refusal as refused};

use crate::budget::{Budget, Spent};
use crate::convert::{Largest, Mistake, Unfit, sentence};
use crate::plan::{self, BadAddress};
use crate::problem::{Problem, quoted};
use crate::registry;

/// A request that cannot be planned.
pub(super) fn unfit(unfit: Unfit) -> Refusal {
    match unfit {
        Unfit::TooLarge { bytes, limit } => {
            let text = format!(
                "the design has {bytes} bytes and the limit is {limit}; split it, or raise --max-message-bytes"
            );
            refused(Reason::MessageTooLarge, text).quota("max-message-bytes", format!("{limit} bytes"))
        }
        Unfit::Design(problem) => design(&[*problem], 0, &[]),
        Unfit::Mistakes(mistakes) => {
            let text = match mistakes.as_slice() {
                [Mistake { field, message }] => format!("the request is wrong: {field}: {message}"),
                several => format!("the request is wrong in {} places", several.len()),
            };
            mistakes.into_iter().fold(refused(Reason::RequestInvalid, text), |refusal, Mistake { field, message }| {
                refusal.violation(field, message)
            })
        }
    }
}

/// A registry in a request that does not go together.
pub(super) fn registry(registry::Error { field, message }: registry::Error) -> Refusal {
    unfit(Unfit::Mistakes(vec![Mistake { field: format!("registry.{field}"), message }]))
}

/// A design that cannot be planned.
pub(super) fn refusal(refusal: &plan::Refusal, budget: &Budget) -> Refusal {
    match refusal {
        plan::Refusal::Design { problems, left_out, addresses } => design(problems, *left_out, addresses),
        plan::Refusal::Spent(why) => spent(*why, budget),
        plan::Refusal::Addresses(addresses) => {
            let text = match addresses.as_slice() {
                [only] => sentence(only),
                several => format!("{} registrants have addresses that cannot be used", several.len()),
            };
            tracing::info!(addresses = addresses.len(), "design refused for addresses of registrants");
            preconditions(refused(Reason::RegistrantAddressInvalid, text), addresses)
        }
    }
}

/// A request that is no `PlanRequest`: broken bytes, text that is not UTF-8, or structured data too deep to be read.
pub(super) fn undecodable(error: prost::DecodeError) -> Refusal {
    let text = format!(
        "the request cannot be decoded: {error}. Text must be UTF-8, and structured data may be 30 levels deep; deeper \
         designs go as text, in `design.document`"
    );
    refused(Reason::RequestInvalid, text).violation("design", "it cannot be decoded")
}

/// A request whose budget is spent.
pub(super) fn spent(spent: Spent, budget: &Budget) -> Refusal {
    match spent {
        Spent::Request => {
            let limit = budget.limit() / 1_000_000;
            let text = format!(
                "planning this would take more than the {limit} MB that a request of its size may take; split the design, \
                 select fewer clusters, or write less of it by aliases and references"
            );
            refused(Reason::RequestTooCostly, text).quota("memory of one request", format!("{limit} MB"))
        }
        Spent::Others => too_busy(),
        // Whoever stopped it has gone, or is told so by the one who stopped it.
        Spent::Stopped => refused(Reason::RequestTooCostly, "planning was stopped"),
    }
}

/// A request for which there is no place now.
pub(super) fn too_busy() -> Refusal {
    tracing::info!("request refused: others take what it needs");
    status::too_busy("max-held-bytes", "the planner is busy with other requests; call again in a moment")
}

/// A request that took longer to plan than it may.
pub(super) fn too_long(limit: Duration) -> Refusal {
    let limit = limit.as_secs_f64();
    let text =
        format!("planning took more than {limit} s and was stopped; split the design, or raise --max-planning-time");
    refused(Reason::RequestTooCostly, text).quota("max-planning-time", format!("{limit} s"))
}

/// A plan of which a part is larger than a message may be: nobody could take it.
pub(super) fn large_part(Largest { bytes, name }: &Largest, limit: usize) -> Refusal {
    let text = format!(
        "the plan has a part of {bytes} bytes, {}, and a message has at most {limit}; make it smaller, or raise \
         --max-message-bytes here and wherever the plan is read",
        quoted(name)
    );
    refused(Reason::MessageTooLarge, text).quota("max-message-bytes", format!("{limit} bytes"))
}

fn design(problems: &[Problem], left_out: usize, addresses: &[BadAddress]) -> Refusal {
    let mut kinds: BTreeMap<_, usize> = BTreeMap::new();
    for problem in problems {
        *kinds.entry(problem.kind).or_default() += 1;
    }
    let count = problems.len() + left_out;
    tracing::info!(problems = count, kinds = ?kinds, "design refused");
    let text = match problems {
        [only] => format!("the design has a problem: {only}"),
        _ => {
            let kinds: Vec<_> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
            let more = if left_out > 0 { format!(", and {left_out} more that are not told") } else { String::new() };
            format!("the design has {count} problems: {}{more}", kinds.join(", "))
        }
    };
    let refusal = refused(Reason::DesignInvalid, text).metadata("problems", count.to_string());
    let refusal = violations(problems)
        .into_iter()
        .fold(refusal, |refusal, (field, kind, description)| refusal.violation_because(field, kind, description));
    preconditions(refusal, addresses)
}

/// More problems than this are not all told one by one, see [`violations`].
const EACH: usize = 20;

/// One violation a problem, in document order. A status travels in headers, of which clients take 8 KiB, so of many problems
/// those that say the same (forty components of a model nobody registered) share one violation that names where it holds.
fn violations(problems: &[Problem]) -> Vec<(&str, &'static str, String)> {
    let alike = problems.len() > EACH;
    let mut told: Vec<(&Problem, Vec<&str>)> = Vec::new();
    let mut first: HashMap<&str, usize> = HashMap::new();
    for problem in problems {
        let known = if alike { first.get(problem.message.as_str()).copied() } else { None };
        match known.filter(|&index| told[index].0.kind == problem.kind) {
            Some(index) => told[index].1.push(&problem.field),
            None => {
                first.insert(&problem.message, told.len());
                told.push((problem, Vec::new()));
            }
        }
    }
    told.into_iter()
        .map(|(problem, others)| (problem.field.as_str(), problem.kind.as_str(), described(problem, &others)))
        .collect()
}

fn described(problem: &Problem, others: &[&str]) -> String {
    const NAMED: usize = 12;
    if others.is_empty() {
        return problem.to_string();
    }
    let named = others[..others.len().min(NAMED)].join(", ");
    let more = if others.len() > NAMED { ", …" } else { "" };
    format!("{problem}; the same holds for {} more: {named}{more}", others.len())
}

fn preconditions(refusal: Refusal, addresses: &[BadAddress]) -> Refusal {
    addresses.iter().fold(refusal, |refusal, address| {
        let subject = format!("model {}, registrant {}", address.model, address.unusable.registrant);
        refusal.precondition(Reason::RegistrantAddressInvalid.as_str(), subject, sentence(address))
    })
}
