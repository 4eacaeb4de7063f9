//! Drafts in order -> steps.

use super::draft::{Draft, Drafts};
use super::order::Edges;
use super::{Operation, Payload, Step};
use crate::budget::{Budget, Spent};
use crate::design::Component;
use crate::graph::{self, Graph};
use crate::manifest::{self, Marks};
use crate::route::Route;

/// What the answer is to be.
pub(super) struct Answer<'a> {
    pub(super) operation: Operation,
    /// Whether steps name their charts.
    pub(super) charts: bool,
    /// The clusters that every step names.
    pub(super) clusters: &'a [String],
}

/// What a text in a list takes beside its bytes.
const TEXT: usize = size_of::<String>() + 16;

/// Builds the steps. In an undeploy every edge is turned round: what is to be removed first is what a step depends on (S20).
pub(super) fn build<'t>(
    drafts: Drafts<'t, '_>,
    edges: Edges,
    marks: &'t Marks,
    answer: Answer<'_>,
    budget: &Budget,
) -> Result<Vec<Step>, Spent> {
    let Answer { operation, charts, clusters } = answer;
    // Each step gets a list of its own, once it is a message.
    let clusters: usize = clusters.iter().map(|cluster| TEXT + cluster.len()).sum();
    budget.spend(clusters.saturating_mul(drafts.semantic.len()))?;
    let Edges { declared, implicit } = match operation {
        Operation::Deploy => edges,
        Operation::Undeploy => Edges { declared: edges.declared.reversed(), implicit: edges.implicit.reversed() },
    };
    let all = Graph::new(declared.len(), declared.edges().chain(implicit.edges()));
    let waves = all.waves();
    drop(all);
    let ids: Vec<_> = drafts.semantic.iter().map(|draft| draft.component.id.clone()).collect();
    let named = |numbers: &[u32]| numbers.iter().map(|&number| ids[number as usize].to_string()).collect::<Vec<_>>();
    let mut drafts: Vec<Option<Draft<'_, '_>>> = drafts.semantic.into_iter().map(Some).collect();
    let order = graph::order(&waves);
    let steps = order.into_iter().map(|number| {
        let index = number as usize;
        let draft = drafts[index].take().expect("an order holds every number once");
        let (before, earlier) = (declared.before(number), implicit.before(number));
        budget.spend(before.iter().chain(earlier).map(|&number| TEXT + ids[number as usize].len()).sum())?;
        let (depends_on, runs_after) = (named(before), named(earlier));
        step(draft, depends_on, runs_after, waves[index], marks, charts, budget)
    });
    steps.collect()
}

fn step<'t>(
    draft: Draft<'t, '_>,
    depends_on: Vec<String>,
    runs_after: Vec<String>,
    wave: u32,
    marks: &'t Marks,
    charts: bool,
    budget: &Budget,
) -> Result<Step, Spent> {
    let Draft { component, name: object_name, namespace, route, registrant, chart, .. } = draft;
    let registrant = registrant.expect("a component without a registrant is refused before");
    let Component { id, name, kind, api_version, model, model_version, .. } = &component;
    let [id, name, kind, api_version, model, model_version] =
        [id, name, kind, api_version, model, model_version].map(ToString::to_string);
    let payload = match route {
        Route::Direct => manifest::object(component, object_name, namespace, marks, budget)?,
        Route::Adapter { .. } => manifest::declaration(component, object_name, namespace, marks, budget)?,
    };
    Ok(Step {
        id,
        name,
        kind,
        api_version,
        model,
        model_version,
        registrant: registrant.name.clone(),
        registrant_kind: registrant.kind.clone(),
        depends_on,
        runs_after,
        wave,
        route,
        payload: Payload(payload),
        chart: chart.filter(|chart| charts && !chart.url.is_empty()).cloned(),
    })
}
