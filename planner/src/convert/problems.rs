//! What is wrong with a design, in the contract's types.

use switchyard_proto::v1::{self, Position, ProblemCode};

use crate::document::Place;
use crate::plan::{BadAddress, Refusal};
use crate::problem::{Problem, Subject, quoted};
use crate::route::Unusable;

/// Every problem that a refusal tells of, in document order; addresses that cannot be used come behind them, and at the end how
/// many problems nobody could read any more.
pub fn problems(refusal: Refusal) -> Box<dyn Iterator<Item = v1::Problem> + Send> {
    let (problems, left_out, addresses) = match refusal {
        Refusal::Design { problems, left_out, addresses } => (problems, left_out, addresses),
        Refusal::Addresses(addresses) => (Vec::new(), 0, addresses),
        Refusal::Spent(_) => (Vec::new(), 0, Vec::new()),
    };
    let more = (left_out > 0).then(|| v1::Problem {
        code: name(ProblemCode::MoreProblems),
        message: format!("{left_out} more problems are not told"),
        hint: "Correct those that are told, and plan again.".into(),
        ..v1::Problem::default()
    });
    Box::new(problems.into_iter().map(problem).chain(addresses.into_iter().map(address)).chain(more))
}

/// One problem.
pub(super) fn problem(problem: Problem) -> v1::Problem {
    let Problem { kind, component, field, place, earlier, message, .. } = problem;
    let (component_id, component) = component.map(|Subject { id, name }| (id, name)).unwrap_or_default();
    let places = place.into_iter().chain(earlier.and_then(|earlier| earlier.place));
    v1::Problem {
        code: kind.as_str().into(),
        component_id,
        component,
        field,
        at: places.map(position).collect(),
        message,
        hint: kind.hint().into(),
    }
}

fn address(address: BadAddress) -> v1::Problem {
    v1::Problem {
        code: name(ProblemCode::RegistrantAddressInvalid),
        message: sentence(&address),
        field: address.model,
        hint: "Correct host and port of the registrant in the registry.".into(),
        ..v1::Problem::default()
    }
}

/// The code as it stands in answers.
fn name(code: ProblemCode) -> String {
    code.as_str_name().trim_start_matches("PROBLEM_CODE_").into()
}

/// A place in a text.
pub(super) fn position(Place { line, column }: Place) -> Position {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Position { line: count(line), column: count(column) }
}

/// What is wrong with an address, and what to do.
pub(crate) fn sentence(BadAddress { model, unusable }: &BadAddress) -> String {
    let Unusable { registrant, address, why } = unusable;
    format!(
        "the address {} of registrant {}, who stands behind model {}, cannot be used: {why}; correct it in the registry",
        quoted(address),
        quoted(registrant),
        quoted(model)
    )
}

#[cfg(test)]
mod tests {
    use switchyard_proto::v1::WarningCode;

    use super::*;
    use crate::plan::Code;
    use crate::problem::Kind;

    #[test]
    fn every_code_is_in_the_contract() {
        let of_problems = (1..).map_while(|value| ProblemCode::try_from(value).ok()).map(name);
        let mut kinds: Vec<_> = Kind::ALL.iter().map(|kind| kind.as_str().to_owned()).collect();
        kinds.extend([ProblemCode::RegistrantAddressInvalid, ProblemCode::MoreProblems].map(name));
        assert_eq!(sorted(kinds), sorted(of_problems.collect()));
        let of_warnings = (1..).map_while(|value| WarningCode::try_from(value).ok());
        let of_warnings = of_warnings.map(|code| code.as_str_name().trim_start_matches("WARNING_CODE_").to_owned());
        let codes = Code::ALL.iter().map(|code| code.as_str().to_owned());
        assert_eq!(sorted(codes.collect()), sorted(of_warnings.collect()));
    }

    fn sorted(mut names: Vec<String>) -> Vec<String> {
        names.sort_unstable();
        names
    }
}
