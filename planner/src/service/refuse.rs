//! Refusals -> status with details.

use std::collections::{BTreeMap, HashMap};

use switchyard_service::status::{Reason, Refusal, refusal as refused};

use crate::convert::{Mistake, Unfit};
use crate::plan::{self, BadAddress};
use crate::problem::{Problem, quoted};
use crate::registry;
use crate::route::Unusable;

/// A request that cannot be planned.
pub(super) fn unfit(unfit: Unfit) -> Refusal {
    match unfit {
        Unfit::TooLarge { bytes, limit } => {
            let text = format!(
                "the design has {bytes} bytes and the limit is {limit}; split it, or raise --max-message-bytes"
            );
            refused(Reason::MessageTooLarge, text).quota("max-message-bytes", format!("{limit} bytes"))
        }
        Unfit::Design(problem) => design(vec![*problem], Vec::new()),
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
pub(super) fn refusal(refusal: plan::Refusal) -> Refusal {
    match refusal {
        plan::Refusal::Design { problems, addresses } => design(problems, addresses),
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

fn design(problems: Vec<Problem>, addresses: Vec<BadAddress>) -> Refusal {
    let mut kinds: BTreeMap<_, usize> = BTreeMap::new();
    for problem in &problems {
        *kinds.entry(problem.kind).or_default() += 1;
    }
    tracing::info!(problems = problems.len(), kinds = ?kinds, "design refused");
    let text = match problems.as_slice() {
        [only] => format!("the design has a problem: {only}"),
        several => {
            let kinds: Vec<_> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
            format!("the design has {} problems: {}", several.len(), kinds.join(", "))
        }
    };
    let refusal = refused(Reason::DesignInvalid, text).metadata("problems", problems.len().to_string());
    let refusal = violations(problems)
        .into_iter()
        .fold(refusal, |refusal, (field, kind, description)| refusal.violation_because(field, kind, description));
    preconditions(refusal, addresses)
}

/// More problems than this are not all told one by one, see [`violations`].
const EACH: usize = 20;

/// One violation a problem, in document order. A status travels in headers, of which clients take 8 KiB, so of many problems
/// those that say the same (forty components of a model nobody registered) share one violation that names where it holds.
fn violations(problems: Vec<Problem>) -> Vec<(String, &'static str, String)> {
    let alike = problems.len() > EACH;
    let mut told: Vec<(Problem, Vec<String>)> = Vec::new();
    let mut first: HashMap<String, usize> = HashMap::new();
    for problem in problems {
        let known = if alike { first.get(&problem.message).copied() } else { None };
        match known.filter(|&index| told[index].0.kind == problem.kind) {
            Some(index) => told[index].1.push(problem.field),
            None => {
                first.insert(problem.message.clone(), told.len());
                told.push((problem, Vec::new()));
            }
        }
    }
    let violation = |(problem, others): (Problem, Vec<String>)| {
        let mut description = problem.to_string();
        if !others.is_empty() {
            const NAMED: usize = 12;
            let named = others.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = if others.len() > NAMED { ", …" } else { "" };
            description.push_str(&format!("; the same holds for {} more: {named}{more}", others.len()));
        }
        (problem.field, problem.kind.as_str(), description)
    };
    told.into_iter().map(violation).collect()
}

fn preconditions(refusal: Refusal, addresses: Vec<BadAddress>) -> Refusal {
    addresses.into_iter().fold(refusal, |refusal, address| {
        let subject = format!("model {}, registrant {}", address.model, address.unusable.registrant);
        refusal.precondition(Reason::RegistrantAddressInvalid.as_str(), subject, sentence(&address))
    })
}

fn sentence(BadAddress { model, unusable }: &BadAddress) -> String {
    let Unusable { registrant, address, why } = unusable;
    format!(
        "the address {} of registrant {}, who stands behind model {}, cannot be used: {why}; correct it in the registry",
        quoted(address),
        quoted(registrant),
        quoted(model)
    )
}
