//! Design + registry -> [`Plan`]: puts everything together and collects every problem (S10).
//!
//! Pure: no I/O, no clock, no randomness. The same request gives the same plan (D7).

mod draft;
mod order;
mod steps;
mod warnings;

use std::fmt;

use self::warnings::Warnings;
use crate::budget::{Budget, Spent};
use crate::design::{self, Design};
use crate::document::{self, At, Doubt, Limits, Node, Place, Text, Value};
use crate::manifest::Marks;
use crate::problem::{self, Kind, Problem, Problems};
use crate::registry::{Chart, Layers};
use crate::route::{Route, Unusable};

/// Direction of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Operation {
    /// Bring the design up.
    #[default]
    Deploy,
    /// Take it down.
    Undeploy,
}

/// Where the design comes from.
pub enum Source<'t> {
    /// JSON or YAML text. Problems come with line and column.
    Text(&'t str),
    /// A tree that was never text.
    Tree(Node<'t>, Vec<Doubt>),
}

/// What is to be planned.
pub struct Request<'t> {
    /// The design.
    pub source: Source<'t>,
    /// The direction.
    pub operation: Operation,
    /// Whether the run only asks what would happen.
    pub dry_run: bool,
    /// The selected clusters.
    pub clusters: Vec<String>,
    /// Whether steps name what must be installed, or removed, with them.
    pub charts: bool,
    /// The namespace of components that name none.
    pub default_namespace: String,
    /// How large a document may be.
    pub limits: Limits,
}

/// An ordered plan. It is only ever constructed valid: every id is unique, every edge leads to an earlier step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The direction.
    pub operation: Operation,
    /// Whether the run only asks.
    pub dry_run: bool,
    /// The design's id, given or derived.
    pub design_id: String,
    /// Its name; may be empty.
    pub design_name: String,
    /// Its version; may be empty.
    pub design_version: String,
    /// The selected clusters.
    pub clusters: Vec<String>,
    /// Components that only draw (S5).
    pub set_aside: Vec<SetAside>,
    /// What was changed or noticed, in document order.
    pub warnings: Vec<Warning>,
    /// The steps, each after those it depends on.
    pub steps: Vec<Step>,
}

/// A component that only draws.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// The component's id.
    pub id: String,
    /// Its name; may be empty.
    pub name: String,
    /// Its kind.
    pub kind: String,
}

/// Something that was changed or noticed, and not refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Where; orders warnings.
    pub at: At,
    /// Line and column, for text, if it has a place there.
    pub place: Option<Place>,
    /// The component's id; empty when it is about the design.
    pub component: String,
    /// The path in the document.
    pub field: String,
    /// What sort of thing it is.
    pub code: Code,
    /// A sentence a person can act on.
    pub message: String,
}

/// The sort of a warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// Two names would do.
    NameChosen,
    /// No name can be a Kubernetes name.
    NameNotValid,
    /// Fields that the server owns were dropped.
    ServerFieldDropped,
    /// `generateName` was dropped.
    GenerateNameDropped,
    /// A value that will most likely be refused, or that is not used.
    ValueSuspicious,
    /// A registrant's address cannot be dialled, and the run is dry.
    AddressUnusable,
    /// Components of a shape that is not looked at.
    ComponentsIgnored,
    /// An order that nobody declared contradicts one that was declared.
    OrderNotKept,
    /// Components want one chart in different namespaces.
    ChartNamespaces,
    /// The registry names no URL for a model's chart.
    ChartMissing,
    /// An option is set that does nothing here.
    OptionWithoutEffect,
    /// A component is a copy of another in everything, and the two are one step.
    IdenticalCopy,
    /// There are more warnings than are told.
    MoreWarnings,
}

impl Code {
    /// Every code, in the order of the enum.
    pub const ALL: [Self; 13] = [
        Self::NameChosen,
        Self::NameNotValid,
        Self::ServerFieldDropped,
        Self::GenerateNameDropped,
        Self::ValueSuspicious,
        Self::AddressUnusable,
        Self::ComponentsIgnored,
        Self::OrderNotKept,
        Self::ChartNamespaces,
        Self::ChartMissing,
        Self::OptionWithoutEffect,
        Self::IdenticalCopy,
        Self::MoreWarnings,
    ];

    /// The code as it appears in plans.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NameChosen => "NAME_CHOSEN",
            Self::NameNotValid => "NAME_NOT_VALID",
            Self::ServerFieldDropped => "SERVER_FIELD_DROPPED",
            Self::GenerateNameDropped => "GENERATE_NAME_DROPPED",
            Self::ValueSuspicious => "VALUE_SUSPICIOUS",
            Self::AddressUnusable => "ADDRESS_UNUSABLE",
            Self::ComponentsIgnored => "COMPONENTS_IGNORED",
            Self::OrderNotKept => "ORDER_NOT_KEPT",
            Self::ChartNamespaces => "CHART_NAMESPACES",
            Self::ChartMissing => "CHART_MISSING",
            Self::OptionWithoutEffect => "OPTION_WITHOUT_EFFECT",
            Self::IdenticalCopy => "IDENTICAL_COPY",
            Self::MoreWarnings => "MORE_WARNINGS",
        }
    }
}

/// One component's work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The component's id, given or derived.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Its apiVersion; may be empty on the adapter path.
    pub api_version: String,
    /// Its model.
    pub model: String,
    /// The model's version.
    pub model_version: String,
    /// Who stands behind the model, by name.
    pub registrant: String,
    /// That registrant's kind.
    pub registrant_kind: String,
    /// Ids of steps that must have succeeded before.
    pub depends_on: Vec<String>,
    /// Ids of steps that must have ended before.
    pub runs_after: Vec<String>,
    /// The longest chain that leads here.
    pub wave: u32,
    /// Who carries it out.
    pub route: Route,
    /// The object, or the declaration for an adapter.
    pub payload: Payload,
    /// What must be installed with it.
    pub chart: Option<Chart>,
}

/// A Kubernetes object or an adapter's declaration as JSON. It may hold secrets, so that printing it by mistake says only how
/// long it is (D25).
#[derive(Clone, PartialEq, Eq)]
pub struct Payload(pub String);

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The design is wrong. Addresses that are not usable either are told with it.
    #[error("the design has {} problem(s)", .problems.len())]
    Design {
        /// Every problem, in document order, but for those that nobody could read any more.
        problems: Vec<Problem>,
        /// How many more there are.
        left_out: usize,
        /// Every address that is not usable.
        addresses: Vec<BadAddress>,
    },
    /// The design is right, and registrants of its models have addresses that cannot be dialled (S17).
    #[error("{} registrant address(es) cannot be used", .0.len())]
    Addresses(Vec<BadAddress>),
    /// Planning takes more than it may, or was stopped.
    #[error(transparent)]
    Spent(#[from] Spent),
}

/// A registrant's address that cannot be dialled, and a model that needs it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BadAddress {
    /// The model.
    pub model: String,
    /// The registrant, its address, and what is wrong with it.
    pub unusable: Unusable,
}

/// Plans a design, with a budget of its own.
pub fn plan(request: Request<'_>, registries: Layers<'_>) -> Result<Plan, Refusal> {
    let bytes = match &request.source {
        Source::Text(text) => text.len(),
        Source::Tree(..) => request.limits.bytes,
    };
    plan_within(request, registries, &Budget::of_document(bytes))
}

/// Plans a design within a budget.
///
/// # Errors
///
/// When the design is wrong, when an address cannot be used, or when the budget is spent, whatever else is to be said.
pub fn plan_within(request: Request<'_>, registries: Layers<'_>, budget: &Budget) -> Result<Plan, Refusal> {
    let Request { source, operation, dry_run, clusters, charts, default_namespace, limits } = request;
    let wishes = Wishes { operation, dry_run, clusters, charts, default_namespace, limits };
    match source {
        Source::Tree(node, doubts) => {
            let read = Read { node: Some(node), problems: Vec::new(), doubts, text: None };
            planned(read, wishes, registries, budget)
        }
        Source::Text(source) => {
            let text = Text::new(source);
            let read = Read::of(text, &limits, budget);
            let Some(inner) = read.node.as_ref().and_then(wrapped) else {
                return planned(read, wishes, registries, budget);
            };
            budget.spend(3 * inner.len())?;
            drop(read);
            // Lines and columns are those of the design's own text, which is what its author sees.
            planned(Read::of(Text::new(&inner), &limits, budget), wishes, registries, budget)
        }
    }
}

/// A document as it was read.
struct Read<'t> {
    node: Option<Node<'t>>,
    problems: Vec<Problem>,
    doubts: Vec<Doubt>,
    text: Option<Text<'t>>,
}

impl<'t> Read<'t> {
    fn of(text: Text<'t>, limits: &Limits, budget: &Budget) -> Self {
        let (node, problems, doubt) = document::read_within(text, limits, budget);
        Self { node, problems, doubts: doubt.into_iter().collect(), text: Some(text) }
    }
}

struct Wishes {
    operation: Operation,
    dry_run: bool,
    clusters: Vec<String>,
    charts: bool,
    default_namespace: String,
    limits: Limits,
}

/// The text of a design inside what Meshery wraps around it: a deploy request, a stored design, an upsert.
fn wrapped(node: &Node<'_>) -> Option<String> {
    let map = node.as_map()?;
    if map.get("components").is_some() || map.get("services").is_some() {
        return None;
    }
    let keys = [
        ["patternFile"].as_slice(),
        &["pattern_file"],
        &["patternData", "patternFile"],
        &["pattern_data", "pattern_file"],
    ];
    keys.iter().find_map(|keys| node.get(keys)?.as_str()).filter(|text| !text.is_empty()).map(str::to_owned)
}

fn planned(read: Read<'_>, wishes: Wishes, registries: Layers<'_>, budget: &Budget) -> Result<Plan, Refusal> {
    let Read { node, problems, doubts, text } = read;
    budget.check()?;
    let mut problems = Problems::from(problems);
    let design = node.and_then(|node| design::read(node, text.as_ref(), &wishes.limits, budget, &mut problems));
    budget.check()?;
    let refused = |problems: Problems, addresses| {
        let (mut problems, left_out) = problems.into_parts();
        problem::settle(&mut problems, text.as_ref());
        Err(Refusal::Design { problems, left_out, addresses })
    };
    let Some(design) = design else { return refused(problems, Vec::new()) };

    let mut warnings = Warnings::default();
    for Doubt { at, field, message } in doubts {
        let code = Code::ValueSuspicious;
        warnings.add(|| Warning { at, place: None, component: String::new(), field, code, message });
    }
    let Design { id, name, version, components, ignored } = design;
    for (field, text) in [("name", &name), ("version", &version)] {
        if text.len() > MOST_TEXT {
            let message = format!("the design's {field} has {} bytes and the limit is {MOST_TEXT}", text.len());
            problems.push(Problem::new(Kind::LimitExceeded, field, At::START, message));
        }
    }
    let marks = marks(&id, &name, &version, &mut warnings);
    if let Some(design::Ignored { field, count }) = ignored {
        let message = format!("the design has components in two shapes; the {count} under `{field}` are not looked at");
        warnings.add(|| Warning::of_design(field, Code::ComponentsIgnored, message));
    }
    let mut drafts = draft::Drafts::default();
    drafts.take(components, registries, &wishes.default_namespace, &mut problems, &mut warnings, budget)?;
    let edges = order::edges(&drafts, &mut problems, &mut warnings, budget)?;
    let addresses = drafts.bad_addresses();
    if !problems.is_empty() {
        return refused(problems, addresses);
    }
    if !addresses.is_empty() && !wishes.dry_run {
        return Err(Refusal::Addresses(addresses));
    }
    drafts.warn_of_addresses(&mut warnings);
    if wishes.charts {
        drafts.warn_of_charts(&wishes.default_namespace, &mut warnings);
    }
    let set_aside = std::mem::take(&mut drafts.set_aside);
    let answer = steps::Answer { operation: wishes.operation, charts: wishes.charts, clusters: &wishes.clusters };
    let steps = steps::build(drafts, edges, &marks, answer, budget)?;
    Ok(Plan {
        operation: wishes.operation,
        dry_run: wishes.dry_run,
        design_id: marks.design,
        design_name: name.into_owned(),
        design_version: marks.version,
        clusters: wishes.clusters,
        set_aside,
        warnings: warnings.told(text.as_ref()),
        steps,
    })
}

/// The marks of a design. Its id must do as a label, and there must be one: objects are found again by it.
fn marks(id: &str, name: &str, version: &str, warnings: &mut Warnings) -> Marks {
    let inner = |b: u8| b.is_ascii_alphanumeric();
    let is_label = !id.is_empty()
        && id.len() <= 63
        && id.bytes().all(|b| inner(b) || matches!(b, b'-' | b'_' | b'.'))
        && id.bytes().next().is_some_and(inner)
        && id.bytes().last().is_some_and(inner);
    let design = if is_label {
        id.to_string()
    } else {
        let from = if id.is_empty() { name } else { id };
        let derived = design::derived_id(from, "");
        let message = match (id.is_empty(), name.is_empty()) {
            (false, _) => format!("the design's id cannot be a label; its objects are marked with {derived}"),
            (true, false) => {
                format!("the design has no id; its objects are marked with {derived}, which comes from its name")
            }
            (true, true) => format!(
                "the design has neither id nor name; its objects are marked with {derived}, as are those of every \
                 design like it. Give it an id"
            ),
        };
        warnings.add(|| Warning::of_design("id", Code::ValueSuspicious, message));
        derived
    };
    Marks { design, version: version.to_owned() }
}

/// The longest name and version of a design in bytes. The version stands on every object; the longest that people give
/// names have a few hundred.
const MOST_TEXT: usize = 1_024;

impl Warning {
    fn of_design(field: &str, code: Code, message: String) -> Self {
        Self { at: At::START, place: None, component: String::new(), field: field.into(), code, message }
    }
}

/// Whether a value is a map, or nothing that could be one yet.
fn is_map_or_nothing(node: Option<&Node<'_>>) -> bool {
    node.is_none_or(|node| matches!(node.value, Value::Map(_) | Value::Null))
}
