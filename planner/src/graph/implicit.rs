//! Order that nobody declared: after the component that defines one's kind or one's namespace (D6).
//!
//! Such an edge is dropped when it would contradict a declared order, alone or together with others of its sort. Edges
//! that lie on no cycle of the whole are found in one linear pass (Tarjan); only those that do are tried one by one, and
//! only within their knot.

use super::Graph;

/// An order that nobody declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate {
    /// The component that defines something.
    pub before: u32,
    /// The component that needs it.
    pub after: u32,
}

/// How many edges are looked at while trying candidates one by one. Knots are a handful of components in real designs; a
/// hostile one of 100,000 would take hours. What is not tried is dropped: this order never withholds anything.
const MOST_LOOKED_AT: usize = 5_000_000;

/// Says of each candidate whether it is kept. `declared` has no cycle; together with what is kept it still has none.
pub fn accept(declared: &Graph, candidates: &[Candidate]) -> Vec<bool> {
    if candidates.is_empty() {
        return Vec::new();
    }
    let edges = declared.edges().chain(candidates.iter().map(|c| (c.before, c.after)));
    let knots = knots(&Graph::new(declared.len(), edges));
    let mut kept = vec![false; candidates.len()];
    let mut trial = Trial {
        declared,
        knots: &knots,
        added: vec![Vec::new(); if has_knot(&knots, candidates) { declared.len() } else { 0 }],
        seen: vec![0; declared.len()],
        round: 0,
        looked_at: 0,
    };
    for (index, &candidate) in candidates.iter().enumerate() {
        kept[index] = knots[candidate.before as usize] != knots[candidate.after as usize] || trial.keeps(candidate);
    }
    kept
}

fn has_knot(knots: &[u32], candidates: &[Candidate]) -> bool {
    candidates.iter().any(|c| knots[c.before as usize] == knots[c.after as usize])
}

struct Trial<'g> {
    declared: &'g Graph,
    knots: &'g [u32],
    added: Vec<Vec<u32>>,
    seen: Vec<u32>,
    round: u32,
    looked_at: usize,
}

impl Trial<'_> {
    /// Whether the candidate closes no cycle; if so, it is there for the next ones.
    fn keeps(&mut self, Candidate { before, after }: Candidate) -> bool {
        if before == after || self.looked_at > MOST_LOOKED_AT || self.comes_before(after, before) {
            return false;
        }
        self.added[after as usize].push(before);
        true
    }

    /// Whether `first` must come before `second` already.
    fn comes_before(&mut self, first: u32, second: u32) -> bool {
        self.round += 1;
        let knot = self.knots[second as usize];
        let mut todo = vec![second];
        while let Some(component) = todo.pop() {
            if component == first {
                return true;
            }
            for &earlier in self.declared.before(component).iter().chain(&self.added[component as usize]) {
                self.looked_at += 1;
                // A cycle never leaves its knot.
                if self.knots[earlier as usize] == knot && self.seen[earlier as usize] != self.round {
                    self.seen[earlier as usize] = self.round;
                    todo.push(earlier);
                }
            }
        }
        false
    }
}

/// Gives every component the number of its strongly connected part, by Tarjan's walk with a stack of our own.
fn knots(graph: &Graph) -> Vec<u32> {
    const NONE: u32 = u32::MAX;
    let size = graph.len();
    let (mut number, mut low, mut knot) = (vec![NONE; size], vec![0; size], vec![NONE; size]);
    let (mut open, mut path): (Vec<u32>, Vec<(u32, usize)>) = (Vec::new(), Vec::new());
    let (mut numbers, mut knots) = (0, 0);
    for start in 0..size as u32 {
        if number[start as usize] != NONE {
            continue;
        }
        path.push((start, 0));
        while let Some((component, looked)) = path.last_mut() {
            let here = *component as usize;
            if *looked == 0 {
                number[here] = numbers;
                low[here] = numbers;
                numbers += 1;
                open.push(*component);
            }
            if let Some(&next) = graph.before(*component).get(*looked) {
                *looked += 1;
                let next_index = next as usize;
                if number[next_index] == NONE {
                    path.push((next, 0));
                } else if knot[next_index] == NONE {
                    low[here] = low[here].min(number[next_index]);
                }
                // The walk comes back here with `looked` above 0, or never, when there is nothing left to look at.
                continue;
            }
            path.pop();
            if let Some(&(parent, _)) = path.last() {
                low[parent as usize] = low[parent as usize].min(low[here]);
            }
            if low[here] == number[here] {
                while let Some(member) = open.pop() {
                    knot[member as usize] = knots;
                    if member as usize == here {
                        break;
                    }
                }
                knots += 1;
            }
        }
    }
    knot
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(size: usize, declared: &[(u32, u32)], candidates: &[(u32, u32)]) -> Vec<bool> {
        let candidates: Vec<_> = candidates.iter().map(|&(before, after)| Candidate { before, after }).collect();
        accept(&Graph::new(size, declared.iter().copied()), &candidates)
    }

    #[test]
    fn what_contradicts_a_declared_order_is_dropped() {
        // Declared: 1, then 2, then 0. Nobody declared that 0 comes before 1, nor before 3.
        assert_eq!(kept(4, &[(1, 2), (2, 0)], &[(0, 1), (0, 3)]), [false, true]);
    }

    #[test]
    fn of_two_that_contradict_only_together_the_first_stays() {
        // Two namespaces 0 and 1 with 2 in 0 and 3 in 1; declared: 3 before 0 and 2 before 1.
        assert_eq!(kept(4, &[(3, 0), (2, 1)], &[(0, 2), (1, 3)]), [true, false]);
    }

    #[test]
    fn a_hostile_knot_costs_bounded_time() {
        let size = 40_000;
        let declared: Vec<_> = (1..size).map(|i| (i - 1, i)).collect();
        let candidates: Vec<_> = (1..size).map(|i| (i, 0)).collect();
        let start = std::time::Instant::now();
        assert!(kept(size as usize, &declared, &candidates).into_iter().all(|kept| !kept));
        assert!(start.elapsed() < std::time::Duration::from_secs(20));
    }
}
