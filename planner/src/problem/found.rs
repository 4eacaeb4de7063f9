//! Problems as they are found, bounded.

use super::Problem;

/// Problems as they are found. Beyond what anybody could read they are counted and not kept, so that a document of nothing
/// but mistakes costs no more than another.
#[derive(Debug, Default)]
pub struct Problems {
    kept: Vec<Problem>,
    bytes: usize,
    left_out: usize,
}

impl Problems {
    /// How much the problems that are kept may take in bytes: more than ten thousand of the usual length.
    const MOST: usize = 8 << 20;

    /// Adds a problem, which is made only if it is to be kept: its path alone can be as long as a hundred keys.
    pub fn add(&mut self, problem: impl FnOnce() -> Problem) {
        if self.bytes > Self::MOST {
            self.left_out += 1;
            return;
        }
        self.push(problem());
    }

    /// Adds a problem.
    pub fn push(&mut self, problem: Problem) {
        if self.bytes > Self::MOST {
            self.left_out += 1;
            return;
        }
        let subject = problem.component.as_ref().map_or(0, |subject| subject.id.len() + subject.name.len());
        self.bytes += size_of::<Problem>() + problem.field.len() + problem.message.len() + subject;
        self.kept.push(problem);
    }

    /// How many there are, those included that are only counted.
    pub fn count(&self) -> usize {
        self.kept.len() + self.left_out
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Those that are kept, in the order in which they were found.
    pub fn kept(&self) -> &[Problem] {
        &self.kept
    }

    /// The last one, to say more about it.
    pub fn last_mut(&mut self) -> Option<&mut Problem> {
        self.kept.last_mut().filter(|_| self.left_out == 0)
    }

    /// Those that are kept, and how many more there are.
    pub fn into_parts(self) -> (Vec<Problem>, usize) {
        (self.kept, self.left_out)
    }
}

impl From<Vec<Problem>> for Problems {
    fn from(kept: Vec<Problem>) -> Self {
        let mut problems = Self::default();
        kept.into_iter().for_each(|problem| problems.push(problem));
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Kind;
    use crate::text::At;

    #[test]
    fn what_nobody_could_read_is_counted() {
        let mut problems = Problems::default();
        for _ in 0..100 {
            problems.add(|| Problem::new(Kind::WrongType, "x".repeat(1 << 20), At::START, ""));
        }
        assert_eq!(problems.count(), 100);
        let (kept, left_out) = problems.into_parts();
        assert_eq!((kept.len(), left_out), (8, 92));
    }
}
