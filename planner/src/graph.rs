//! Names -> edges, cycles, order. Pure, iterative, linear in components and dependencies.
//!
//! Components are numbers here, in document order. An edge says "before": what a component depends on comes before it.

mod implicit;
mod names;

pub use implicit::{Candidate, accept};
pub(crate) use names::Slips;
pub use names::{Names, NearMisses, Resolution};

/// For every component, those that come before it: sorted, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    /// What comes before component `n` is `before[starts[n]..starts[n + 1]]`.
    starts: Vec<usize>,
    before: Vec<u32>,
}

/// A cycle of declared dependencies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cycle {
    /// The components on it, each depending on the next and the last on the first. Of a long cycle only the first few
    /// and the last few.
    pub shown: Vec<u32>,
    /// How many are on it that `shown` leaves out, after the first [`Cycle::HEAD`].
    pub left_out: usize,
    /// The component whose declaration closes the cycle.
    pub from: u32,
    /// The component which that declaration names.
    pub to: u32,
}

impl Cycle {
    /// How many components of a long cycle are shown before the gap.
    pub const HEAD: usize = 8;
    const TAIL: usize = 4;
}

impl Graph {
    /// A graph of `size` components in which for every pair the first comes before the second.
    pub fn new(size: usize, edges: impl IntoIterator<Item = (u32, u32)>) -> Self {
        let edges: Vec<(u32, u32)> = edges.into_iter().collect();
        // How many come before each, then where those of each start, then, with each put in its place, where they end.
        let mut ends = vec![0; size];
        for &(_, second) in &edges {
            ends[second as usize] += 1;
        }
        let mut start = 0;
        for end in &mut ends {
            start += std::mem::replace(end, start);
        }
        let mut before = vec![0; edges.len()];
        for (first, second) in edges {
            let end = &mut ends[second as usize];
            before[*end] = first;
            *end += 1;
        }
        // Each list by itself is sorted and moved down over the places of those that were there twice.
        let mut starts = Vec::with_capacity(size + 1);
        let (mut start, mut kept) = (0, 0);
        for end in ends {
            starts.push(kept);
            before[start..end].sort_unstable();
            for index in start..end {
                if index == start || before[index] != before[index - 1] {
                    before[kept] = before[index];
                    kept += 1;
                }
            }
            start = end;
        }
        starts.push(kept);
        before.truncate(kept);
        Self { starts, before }
    }

    /// How many components there are.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What comes before a component.
    pub fn before(&self, component: u32) -> &[u32] {
        let component = component as usize;
        &self.before[self.starts[component]..self.starts[component + 1]]
    }

    /// Every pair of which the first comes before the second.
    pub fn edges(&self) -> impl Iterator<Item = (u32, u32)> {
        (0..self.len() as u32).flat_map(|second| self.before(second).iter().map(move |&first| (first, second)))
    }

    /// The same components with every edge turned round.
    #[must_use]
    pub fn reversed(&self) -> Self {
        Self::new(self.len(), self.edges().map(|(first, second)| (second, first)))
    }

    /// Cycles that together hold every mistake: with their closing declarations taken away, no cycle is left. Of more than
    /// `most` only the number is answered beside the first ones.
    ///
    /// A depth-first walk in document order; each edge back to a component on the walk's own path closes one cycle.
    pub fn cycles(&self, most: usize) -> (Vec<Cycle>, usize) {
        #[derive(Clone, Copy, PartialEq)]
        enum Seen {
            Never,
            OnPath(usize),
            Done,
        }
        let mut seen = vec![Seen::Never; self.len()];
        let mut cycles = Vec::new();
        let mut more = 0;
        // The path: a component and how many of its dependencies have been looked at.
        let mut path: Vec<(u32, usize)> = Vec::new();
        for start in 0..self.len() as u32 {
            if seen[start as usize] != Seen::Never {
                continue;
            }
            seen[start as usize] = Seen::OnPath(0);
            path.push((start, 0));
            while let Some((component, looked)) = path.last_mut() {
                let from = *component;
                let Some(&to) = self.before(from).get(*looked) else {
                    seen[from as usize] = Seen::Done;
                    path.pop();
                    continue;
                };
                *looked += 1;
                match seen[to as usize] {
                    Seen::Never => {
                        seen[to as usize] = Seen::OnPath(path.len());
                        path.push((to, 0));
                    }
                    Seen::OnPath(_) if cycles.len() == most => more += 1,
                    Seen::OnPath(depth) => cycles.push(cycle(&path[depth..], from, to)),
                    Seen::Done => {}
                }
            }
        }
        (cycles, more)
    }

    /// For every component the length of the longest chain that leads to it. Only for graphs without a cycle.
    pub fn waves(&self) -> Vec<u32> {
        let after = self.reversed();
        let mut waiting: Vec<usize> = self.starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let mut waves = vec![0; self.len()];
        let mut ready: Vec<u32> = (0..self.len() as u32).filter(|&c| waiting[c as usize] == 0).collect();
        let mut next = 0;
        while let Some(&component) = ready.get(next) {
            next += 1;
            for &follower in after.before(component) {
                let index = follower as usize;
                waves[index] = waves[index].max(waves[component as usize] + 1);
                waiting[index] -= 1;
                if waiting[index] == 0 {
                    ready.push(follower);
                }
            }
        }
        debug_assert_eq!(ready.len(), self.len(), "a graph with a cycle has no waves");
        waves
    }
}

/// All components in an order that keeps every edge: by wave, then as in the document.
pub fn order(waves: &[u32]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..waves.len() as u32).collect();
    order.sort_by_key(|&component| waves[component as usize]);
    order
}

fn cycle(path: &[(u32, usize)], from: u32, to: u32) -> Cycle {
    let components = |part: &[(u32, usize)]| part.iter().map(|&(component, _)| component).collect::<Vec<_>>();
    let left_out = path.len().saturating_sub(Cycle::HEAD + Cycle::TAIL);
    let shown = if left_out == 0 {
        components(path)
    } else {
        [components(&path[..Cycle::HEAD]), components(&path[path.len() - Cycle::TAIL..])].concat()
    };
    Cycle { shown, left_out, from, to }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mistake_has_its_cycle() {
        // 0 -> 1 -> 2 -> 0, 2 -> 1, 3 -> 3; "a -> b" reads "a depends on b".
        let graph = Graph::new(4, [(1, 0), (2, 1), (0, 2), (1, 2), (3, 3)]);
        let (cycles, more) = graph.cycles(9);
        let cycles: Vec<_> = cycles.into_iter().map(|c| (c.shown, c.from, c.to)).collect();
        assert_eq!((cycles, more), (vec![(vec![0, 1, 2], 2, 0), (vec![1, 2], 2, 1), (vec![3], 3, 3)], 0));
        assert_eq!(graph.cycles(1).1, 2);
    }

    #[test]
    fn a_long_cycle_is_shown_in_part() {
        let graph = Graph::new(100, (0..100).map(|i| ((i + 1) % 100, i)));
        let (cycles, _) = graph.cycles(9);
        assert_eq!(cycles.len(), 1);
        assert_eq!(cycles[0].shown, [0, 1, 2, 3, 4, 5, 6, 7, 96, 97, 98, 99]);
        assert_eq!(cycles[0].left_out, 88);
    }

    #[test]
    fn waves_are_longest_paths() {
        let graph = Graph::new(4, [(0, 1), (1, 2), (0, 2), (0, 3)]);
        assert_eq!(graph.waves(), [0, 1, 2, 1]);
        assert_eq!(order(&graph.waves()), [0, 1, 3, 2]);
    }

    #[test]
    fn a_chain_of_100_000_fits_a_small_stack() {
        let walk = || {
            let size = 100_000;
            let graph = Graph::new(size, (1..size as u32).map(|i| (i - 1, i)));
            assert!(graph.cycles(9).0.is_empty());
            assert_eq!(graph.waves().last(), Some(&99_999));
            let candidates: Vec<_> = (0..1000).map(|i| Candidate { before: i, after: i + 50_000 }).collect();
            assert!(accept(&graph, &candidates).into_iter().all(|accepted| accepted));
        };
        let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(walk).expect("a thread");
        thread.join().expect("no overflow");
    }
}
