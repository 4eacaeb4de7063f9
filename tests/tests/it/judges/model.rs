//! The rules of order and failure, written down once more from the rules themselves (S7, S11, S12, S14, S20, S21, D8): what has to
//! become of each component, given what befalls each of them on each cluster. Shares nothing with the product.

use std::collections::BTreeSet;

/// What becomes of a component on one cluster, if it is attempted there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is done, at once or after further attempts.
    Done,
    /// It is refused.
    Refused,
    /// Nobody can tell.
    Unknown,
}

/// How a component has to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Succeeded,
    Failed,
    Indeterminate,
    /// Not attempted. Any of `by` may be named as what it waited for in vain, and of each of them any of its own roots.
    Withheld {
        by: BTreeSet<usize>,
        roots: BTreeSet<usize>,
    },
}

/// How each component has to end. `needs` holds, for each, those that have to succeed before it; there are no cycles in it.
pub(super) fn endings(needs: &[Vec<usize>], fates: &[Vec<Fate>]) -> Vec<Ending> {
    let mut known = vec![None; needs.len()];
    // Not by an order of the components but by asking each what it needs, until all have an answer.
    while known.iter().any(Option::is_none) {
        for component in 0..needs.len() {
            let answered: Option<Vec<_>> = needs[component].iter().map(|&need| known[need].clone()).collect();
            if let (None, Some(answered)) = (&known[component], answered) {
                known[component] = Some(ending(&needs[component], &answered, &fates[component]));
            }
        }
    }
    known.into_iter().flatten().collect()
}

fn ending(needs: &[usize], answered: &[Ending], fates: &[Fate]) -> Ending {
    let short = needs.iter().zip(answered).filter(|(_, ending)| **ending != Ending::Succeeded);
    let by: BTreeSet<usize> = short.clone().map(|(&need, _)| need).collect();
    if !by.is_empty() {
        let roots = short.flat_map(|(&need, ending)| match ending {
            Ending::Withheld { roots, .. } => roots.clone(),
            _ => BTreeSet::from([need]),
        });
        return Ending::Withheld { roots: roots.collect(), by };
    }
    match fates {
        fates if fates.contains(&Fate::Refused) => Ending::Failed,
        fates if fates.contains(&Fate::Unknown) => Ending::Indeterminate,
        _ => Ending::Succeeded,
    }
}

/// Those that need each component: the same graph turned round, as taking down needs it.
pub(super) fn turned_round(needs: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let needed_by = |component| (0..needs.len()).filter(|&other| needs[other].contains(&component)).collect();
    (0..needs.len()).map(needed_by).collect()
}

#[test]
fn model_says_what_the_rules_say() {
    use Fate::{Done, Refused, Unknown};
    // A diamond with a tail, and one beside it: 0 <- 1, 2 <- 3 <- 4; 5 alone.
    let needs = vec![vec![], vec![0], vec![0], vec![1, 2], vec![3], vec![]];
    let mut fates = vec![vec![Done, Done]; 6];
    fates[1] = vec![Done, Refused];
    fates[2] = vec![Unknown, Done];
    let withheld = |by: &[usize], roots: &[usize]| Ending::Withheld {
        by: by.iter().copied().collect(),
        roots: roots.iter().copied().collect(),
    };
    let wanted = [
        Ending::Succeeded,
        Ending::Failed,
        Ending::Indeterminate,
        withheld(&[1, 2], &[1, 2]),
        withheld(&[3], &[1, 2]),
        Ending::Succeeded,
    ];
    assert_eq!(endings(&needs, &fates), wanted);
    // Taking down: what stays in place keeps what it needs, and nobody else.
    fates[2] = vec![Done, Done];
    let wanted = [
        withheld(&[1], &[1]),
        Ending::Failed,
        Ending::Succeeded,
        Ending::Succeeded,
        Ending::Succeeded,
        Ending::Succeeded,
    ];
    assert_eq!(endings(&turned_round(&needs), &fates), wanted);
}
