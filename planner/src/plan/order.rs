//! What comes before what: declared dependencies (S9, S10, D4) and order that nobody declared (D6).

use std::collections::{HashMap, HashSet};

use super::draft::{Draft, Drafts};
use super::{Code, Warning, Warnings};
use crate::budget::{Budget, Spent};
use crate::design::{Component, Field};
use crate::document::{At, Node};
use crate::graph::{self, Candidate, Cycle, Graph, Names, NearMisses, Resolution};
use crate::manifest;
use crate::problem::{Kind, Problem, Problems, quoted, shortened};

/// The order of a design.
pub(super) struct Edges {
    /// What was declared; it also withholds.
    pub(super) declared: Graph,
    /// What was not; order only. None of it is declared as well.
    pub(super) implicit: Graph,
}

/// More cycles than this are counted and not told: nobody reads them, and a knot of a few hundred components has tens of
/// thousands.
const MOST_CYCLES: usize = 1_000;

/// Finds the order, and reports what is wrong with the declarations.
pub(super) fn edges(
    drafts: &Drafts<'_, '_>,
    problems: &mut Problems,
    warnings: &mut Warnings,
    budget: &Budget,
) -> Result<Edges, Spent> {
    let mut names = Names::with_capacity(drafts.semantic.len() + drafts.drawings.len());
    for (draft, number) in drafts.semantic.iter().zip(0..) {
        let name = if draft.displayed { draft.component.name.as_ref() } else { "" };
        names.add(name, draft.component.position.key(), Some(number));
    }
    for (drawing, set_aside) in drafts.drawings.iter().zip(&drafts.set_aside) {
        names.add(&set_aside.name, drawing.position.as_deref(), None);
    }
    let declared = declared(&drafts.semantic, &names, problems, budget)?;
    let (cycles, more) = declared.cycles(MOST_CYCLES);
    if let Some(last) = cycles.last().map(|cycle| cycle.from) {
        let mut declarations = Declarations { semantic: &drafts.semantic, names: &names, known: HashMap::new() };
        for cycle in cycles {
            budget.check()?;
            problems.add(|| on_cycle(&mut declarations, cycle));
        }
        if more > 0 {
            let message = format!("there are {more} more cycles; take away those that are told first");
            problems.push(drafts.semantic[last as usize].component.problem(
                Kind::DependencyCycle,
                Field::DependsOn,
                message,
            ));
        }
    }
    // Nobody asks for the order of what is refused.
    if !problems.is_empty() {
        return Ok(Edges { implicit: Graph::new(declared.len(), []), declared });
    }
    let candidates = candidates(&drafts.semantic, &declared);
    let kept = graph::accept(&declared, &candidates);
    for (candidate, _) in candidates.iter().zip(&kept).filter(|(_, kept)| !**kept) {
        warnings.add(|| not_kept(&drafts.semantic, *candidate));
    }
    let implicit = candidates.iter().zip(kept).filter(|(_, kept)| *kept).map(|(c, _)| (c.before, c.after));
    Ok(Edges { implicit: Graph::new(declared.len(), implicit), declared })
}

fn declared(
    semantic: &[Draft<'_, '_>],
    names: &Names<'_>,
    problems: &mut Problems,
    budget: &Budget,
) -> Result<Graph, Spent> {
    let mut near = names.near_misses();
    let mut edges = Vec::new();
    let mut looked_at = HashSet::new();
    for (draft, number) in semantic.iter().zip(0..) {
        let component = &draft.component;
        budget.check()?;
        looked_at.clear();
        for dependency in &component.depends_on {
            // An entry that is there twice counts once, also when it is wrong.
            if component.depends_on.len() > 1 && !looked_at.insert(dependency.name.as_ref()) {
                continue;
            }
            let resolution = names.resolve(&dependency.name);
            match resolution {
                Resolution::Edge(before) => {
                    edges.push((before, number));
                    continue;
                }
                Resolution::Satisfied => continue,
                Resolution::Unknown | Resolution::Ambiguous(_) => {}
            }
            problems.add(|| {
                let (kind, message) = match resolution {
                    Resolution::Ambiguous(several) => {
                        (Kind::AmbiguousDependency, ambiguous(&dependency.name, several, semantic))
                    }
                    _ => (Kind::UnknownDependency, unknown(&dependency.name, &mut near)),
                };
                let field = component.position.field(Field::DependsOn).index(dependency.index);
                Problem::new(kind, field, dependency.at, message).of(component.subject())
            });
        }
    }
    Ok(Graph::new(semantic.len(), edges))
}

fn unknown(name: &str, near: &mut NearMisses<'_, '_>) -> String {
    let told = quoted(name);
    match near.find(name) {
        Some(meant) => {
            format!("depends on {told}, which is no component of this design; did you mean {}?", quoted(meant))
        }
        None => format!("depends on {told}, which is no component of this design; name one, or take the entry out"),
    }
}

fn ambiguous(name: &str, several: &[u32], semantic: &[Draft<'_, '_>]) -> String {
    const MOST: usize = 5;
    let ids = several.iter().take(MOST).map(|&number| semantic[number as usize].component.id.as_ref());
    let more = several.len().saturating_sub(MOST);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!(
        "depends on {}, and {} components have that name: {}{more}; give the one that is meant a name of its own",
        quoted(name),
        several.len(),
        ids.collect::<Vec<_>>().join(", ")
    )
}

/// The problem of a cycle, told from the component of it whose name comes first, so that a cycle reads the same wherever
/// in the document it starts. Long cycles are told from where they were found.
fn on_cycle<'d>(declarations: &mut Declarations<'d, '_, '_>, cycle: Cycle) -> Problem {
    let Cycle { mut shown, left_out, from, to } = cycle;
    let semantic = declarations.semantic;
    let component = |number: u32| &semantic[number as usize].component;
    let (mut from, mut to) = (from, to);
    if left_out == 0 {
        let first = (0..shown.len()).min_by_key(|&index| component(shown[index]).name.as_ref()).unwrap_or_default();
        shown.rotate_left(first);
        from = shown[0];
        to = *shown.get(1).unwrap_or(&from);
    }
    let mut told: Vec<String> = shown.iter().map(|&number| shortened(&component(number).name)).collect();
    if left_out > 0 {
        told.insert(Cycle::HEAD, format!("… ({left_out} more)"));
    }
    told.push(shortened(&component(shown[0]).name));
    let message = if shown.len() == 1 {
        format!("depends on itself: {}; take the entry out", told.join(" → "))
    } else {
        format!("its dependencies form a cycle: {}; take one of them out", told.join(" → "))
    };
    let (field, at) = declarations.find(from, to);
    Problem::new(Kind::DependencyCycle, field, at, message).of(component(from).subject())
}

/// Finds where components declare to depend on others. Each list is gone through once, however many cycles lead over it.
struct Declarations<'d, 't, 'r> {
    semantic: &'d [Draft<'t, 'r>],
    names: &'d Names<'d>,
    known: HashMap<u32, HashMap<u32, (usize, At)>>,
}

impl Declarations<'_, '_, '_> {
    /// Where a component declares to depend on another.
    fn find(&mut self, from: u32, on: u32) -> (String, At) {
        let component = &self.semantic[from as usize].component;
        let path = component.position.field(Field::DependsOn);
        let known = self.known.entry(from).or_insert_with(|| {
            // From the back, so that of several entries the first stays.
            let entries = component.depends_on.iter().rev().filter_map(|entry| match self.names.resolve(&entry.name) {
                Resolution::Edge(on) => Some((on, (entry.index, entry.at))),
                _ => None,
            });
            entries.collect()
        });
        match known.get(&on) {
            Some(&(index, at)) => (path.index(index).into(), at),
            None => (path.into(), component.at),
        }
    }
}

/// Who defines the kind or the namespace of whom, as far as nobody declared it.
fn candidates(semantic: &[Draft<'_, '_>], declared: &Graph) -> Vec<Candidate> {
    // Of several that define the same (two definitions of one group and kind) the first decides.
    let mut kinds: HashMap<(&str, &str), u32> = HashMap::new();
    let mut namespaces: HashMap<&str, u32> = HashMap::new();
    for (draft, number) in semantic.iter().zip(0..) {
        let Component { kind, api_version, configuration, .. } = &draft.component;
        match (manifest::group(api_version), kind.as_ref()) {
            ("apiextensions.k8s.io", "CustomResourceDefinition") => {
                let text = |keys: &[&str]| configuration.get("spec")?.get(keys).and_then(Node::as_str);
                if let (Some(group), Some(kind)) = (text(&["group"]), text(&["names", "kind"])) {
                    kinds.entry((group, kind)).or_insert(number);
                }
            }
            ("", "Namespace") => {
                namespaces.entry(draft.name.as_ref()).or_insert(number);
            }
            _ => {}
        }
    }
    if kinds.is_empty() && namespaces.is_empty() {
        return Vec::new();
    }
    let mut candidates = Vec::new();
    for (draft, after) in semantic.iter().zip(0..) {
        let Component { kind, api_version, .. } = &draft.component;
        let of_kind = kinds.get(&(manifest::group(api_version), kind.as_ref()));
        let of_namespace = draft.namespace.as_deref().and_then(|namespace| namespaces.get(namespace));
        for &before in of_kind.into_iter().chain(of_namespace) {
            if before != after && declared.before(after).binary_search(&before).is_err() {
                candidates.push(Candidate { before, after });
            }
        }
    }
    candidates
}

fn not_kept(semantic: &[Draft<'_, '_>], Candidate { before, after }: Candidate) -> Warning {
    let (definer, user) = (&semantic[before as usize].component, &semantic[after as usize].component);
    let message = format!(
        "{} {}, which this component needs, is declared to come after it; the declared order is kept and this component \
         will most likely fail",
        shortened(&definer.kind),
        quoted(&definer.name)
    );
    Warning {
        at: user.at,
        place: None,
        component: user.id.to_string(),
        field: user.position.path().into(),
        code: Code::OrderNotKept,
        message,
    }
}
