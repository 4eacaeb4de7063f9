//! Names -> components (S9, D4).

use std::collections::HashMap;

/// Who carries a name. Nearly always one component, so that one needs no list.
#[derive(Debug)]
enum Carrier {
    Drawing,
    One(u32),
    Several(Vec<u32>),
}

/// What a name in a `dependsOn` means.
#[derive(Debug, PartialEq, Eq)]
pub enum Resolution<'n> {
    /// One component.
    Edge(u32),
    /// A drawing: satisfied, and no edge.
    Satisfied,
    /// Several components.
    Ambiguous(&'n [u32]),
    /// Nothing.
    Unknown,
}

/// The names of a design.
#[derive(Debug, Default)]
pub struct Names<'n> {
    keys: HashMap<&'n str, Carrier>,
    names: HashMap<&'n str, Carrier>,
    in_order: Vec<&'n str>,
}

/// How many letters may be compared in search of what was meant, over all names of a design. Beyond it only what differs
/// in case and blanks is found, so that a design full of mistakes is refused as fast as any other.
const MOST_COMPARED: usize = 1_000_000;

impl<'n> Names<'n> {
    /// No names yet, and room for those of so many components.
    pub fn with_capacity(components: usize) -> Self {
        Self {
            keys: HashMap::new(),
            names: HashMap::with_capacity(components),
            in_order: Vec::with_capacity(components),
        }
    }

    /// Adds a component: its name, for legacy files the key that dependencies mean first, and its number; a drawing has
    /// none.
    pub fn add(&mut self, name: &'n str, key: Option<&'n str>, semantic: Option<u32>) {
        let mut put = |map: &mut HashMap<&'n str, Carrier>, name: &'n str| {
            if name.is_empty() {
                return;
            }
            let carrier = map.entry(name).or_insert_with(|| {
                self.in_order.push(name);
                Carrier::Drawing
            });
            let Some(component) = semantic else { return };
            match carrier {
                Carrier::Drawing => *carrier = Carrier::One(component),
                Carrier::One(first) => *carrier = Carrier::Several(vec![*first, component]),
                Carrier::Several(several) => several.push(component),
            }
        };
        if let Some(key) = key {
            put(&mut self.keys, key);
        }
        put(&mut self.names, name);
    }

    /// What `name` means.
    pub fn resolve(&self, name: &str) -> Resolution<'_> {
        match self.keys.get(name).or_else(|| self.names.get(name)) {
            None => Resolution::Unknown,
            Some(Carrier::Drawing) => Resolution::Satisfied,
            Some(Carrier::One(component)) => Resolution::Edge(*component),
            Some(Carrier::Several(several)) => Resolution::Ambiguous(several),
        }
    }

    /// Starts a search for names that were meant.
    pub fn near_misses(&self) -> NearMisses<'_, 'n> {
        NearMisses { names: self, search: None }
    }
}

/// Finds the name that was most likely meant.
pub struct NearMisses<'a, 'n> {
    names: &'a Names<'n>,
    search: Option<Slips<'n>>,
}

impl<'n> NearMisses<'_, 'n> {
    /// A name that differs from `wrong` only in case and blanks around it, else one that is a slip of the finger away.
    pub fn find(&mut self, wrong: &str) -> Option<&'n str> {
        self.search.get_or_insert_with(|| Slips::new(self.names.in_order.clone())).find(wrong)
    }
}

/// A search among names for the one that somebody mistyped.
pub(crate) struct Slips<'n> {
    names: Vec<&'n str>,
    folded: HashMap<String, &'n str>,
    /// How much has been compared so far, over all questions.
    compared: usize,
}

impl<'n> Slips<'n> {
    /// A search among these names.
    pub(crate) fn new(names: Vec<&'n str>) -> Self {
        // From the back, so that of several the first stays.
        let folded = names.iter().rev().map(|name| (fold(name), *name)).collect();
        Self { names, folded, compared: 0 }
    }

    /// A name that differs from `wrong` only in case and blanks around it, else one that is a slip of the finger away.
    pub(crate) fn find(&mut self, wrong: &str) -> Option<&'n str> {
        if let Some(name) = self.folded.get(&fold(wrong)) {
            return Some(name);
        }
        nearest(wrong, self.names.iter().copied(), &mut self.compared)
    }
}

fn fold(name: &str) -> String {
    name.trim().to_lowercase()
}

/// The candidate that is a slip of the finger away from `wrong`: the first of the nearest, none when all are far.
fn nearest<'c>(wrong: &str, candidates: impl IntoIterator<Item = &'c str>, compared: &mut usize) -> Option<&'c str> {
    // A name nobody types by hand has no slips, and comparing costs the product of the lengths.
    const LONGEST: usize = 100;
    if wrong.len() > LONGEST {
        return None;
    }
    let reach = (wrong.chars().count() / 4).max(1);
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        // Looking at a name costs something too, also when its length alone rules it out.
        *compared += 1;
        if *compared > MOST_COMPARED {
            break;
        }
        if candidate.len() > LONGEST || candidate.len().abs_diff(wrong.len()) > reach * 4 {
            continue;
        }
        *compared += candidate.len();
        let distance = strsim::osa_distance(wrong, candidate);
        // A name of one or two letters is no more like another than any two are.
        if distance <= reach && distance < candidate.chars().count() && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_semantic_component_wins_over_drawings_of_its_name() {
        let mut names = Names::default();
        names.add("note", None, None);
        names.add("db", None, None);
        names.add("db", None, Some(0));
        names.add("cache", None, Some(1));
        names.add("cache", None, Some(2));
        assert_eq!(names.resolve("note"), Resolution::Satisfied);
        assert_eq!(names.resolve("db"), Resolution::Edge(0));
        assert_eq!(names.resolve("cache"), Resolution::Ambiguous(&[1, 2]));
        assert_eq!(names.resolve("DB"), Resolution::Unknown);
        assert_eq!(names.resolve(""), Resolution::Unknown);
    }

    #[test]
    fn in_legacy_files_a_key_wins_over_a_name() {
        let mut names = Names::default();
        names.add("web", Some("a"), Some(0));
        names.add("a", Some("b"), Some(1));
        assert_eq!(names.resolve("a"), Resolution::Edge(0));
        assert_eq!(names.resolve("web"), Resolution::Edge(0));
        assert_eq!(names.resolve("b"), Resolution::Edge(1));
    }

    #[test]
    fn what_was_meant_is_found() {
        let mut names = Names::default();
        for (index, name) in ["frontend", "db", "web-1"].into_iter().enumerate() {
            names.add(name, None, Some(index as u32));
        }
        let mut near = names.near_misses();
        assert_eq!(near.find("DB"), Some("db"));
        assert_eq!(near.find(" db "), Some("db"));
        assert_eq!(near.find("fronted"), Some("frontend"));
        assert_eq!(near.find("web-2"), Some("web-1"));
        assert_eq!(near.find("x"), None);
        assert_eq!(near.find("something-else"), None);
    }
}
