//! proto <-> domain. What is wrong with a request around its design is found here, all of it at once.

mod problems;
mod registry;
mod structured;

pub use problems::problems;
pub(crate) use problems::sentence;

use std::collections::HashSet;
use std::time::Duration;

use prost::Message;
use switchyard_proto::LONGEST_STEP;
use switchyard_proto::digest::PlanDigest;
use switchyard_proto::v1;

use crate::document::{Doubt, Limits, Node};
use crate::manifest;
use crate::plan::{self, Operation, Payload, Plan, Request, SetAside, Source, Step, Warning};
use crate::problem::{Problem, quoted, shortened};
use crate::registry::{Chart, Form, Protocol};
use crate::route::Route;

/// Something that is wrong with a request apart from its design.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The path of the field in the request.
    pub field: String,
    /// What is wrong and what to do.
    pub message: String,
}

/// Why a request cannot be planned, before any planning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    /// The document is larger than the planner reads.
    TooLarge {
        /// Its size in bytes.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The request is wrong.
    Mistakes(Vec<Mistake>),
    /// The structured design is nothing that could be a document.
    Design(Box<Problem>),
}

/// A request in our own types.
pub struct Intake {
    design: Design,
    operation: Operation,
    dry_run: bool,
    clusters: Vec<String>,
    include_dependencies: bool,
    options: v1::RunOptions,
    limits: Limits,
    /// Whether the parts are wanted as bytes.
    encoded: bool,
    /// The request's registry entries, not yet checked.
    pub registry: Option<Form>,
}

enum Design {
    Text(String),
    Tree(Node<'static>, Vec<Doubt>),
}

impl Intake {
    /// Takes a request in. Defaults are filled in here: the direction, the default namespace, what a client that goes away
    /// means. The step timeout stays absent, as its default depends on the route.
    pub fn new(request: v1::PlanRequest, limits: Limits) -> Result<Self, Unfit> {
        let v1::PlanRequest {
            design,
            operation,
            dry_run,
            clusters,
            include_dependencies,
            registry,
            options,
            encoded,
            ..
        } = request;
        let mut mistakes = Mistakes::default();
        let operation = match v1::Operation::try_from(operation) {
            Ok(v1::Operation::Unspecified | v1::Operation::Deploy) => Operation::Deploy,
            Ok(v1::Operation::Undeploy) => Operation::Undeploy,
            Err(_) => {
                mistakes.add("operation", format!("there is no operation {operation}"));
                Operation::Deploy
            }
        };
        self::clusters(&clusters, &mut mistakes);
        let options = self::options(options.unwrap_or_default(), &mut mistakes);
        let registry = registry.map(|registry| self::registry::form(registry, &mut mistakes));
        let design = match design.and_then(|design| design.source) {
            None => {
                mistakes.add("design", "there is no design; give its text in `document`, or `structured`".into());
                None
            }
            Some(v1::design::Source::Document(text)) if text.len() > limits.bytes => {
                return Err(Unfit::TooLarge { bytes: text.len(), limit: limits.bytes });
            }
            Some(v1::design::Source::Document(text)) => Some(Design::Text(text)),
            Some(v1::design::Source::Structured(structured)) => {
                let (node, doubts) = structured::tree(structured, &limits).map_err(Unfit::Design)?;
                Some(Design::Tree(node, doubts))
            }
        };
        match design {
            Some(design) if mistakes.0.is_empty() => Ok(Self {
                design,
                operation,
                dry_run,
                clusters,
                include_dependencies,
                options,
                limits,
                registry,
                encoded,
            }),
            _ => Err(Unfit::Mistakes(mistakes.0)),
        }
    }

    /// The plan's request, and what of the header it does not hold.
    pub fn request(&mut self) -> Request<'_> {
        let source = match &mut self.design {
            Design::Text(text) => Source::Text(text),
            Design::Tree(node, doubts) => {
                let empty = Node::new(node.at, crate::document::Value::Null);
                Source::Tree(std::mem::replace(node, empty), std::mem::take(doubts))
            }
        };
        Request {
            source,
            operation: self.operation,
            dry_run: self.dry_run,
            clusters: self.clusters.clone(),
            charts: self.include_dependencies
                || (self.operation == Operation::Undeploy && self.options.remove_dependencies),
            default_namespace: self.options.default_namespace.clone(),
            limits: self.limits,
        }
    }

    /// Options that were set and do nothing (case 353).
    fn without_effect(&self) -> impl Iterator<Item = v1::Warning> {
        let v1::RunOptions { upgrade_dependencies, remove_dependencies, .. } = self.options;
        let deploys_without = self.operation == Operation::Deploy && !self.include_dependencies;
        let set = [("upgrade_dependencies", upgrade_dependencies), ("remove_dependencies", remove_dependencies)];
        set.into_iter().filter(move |(_, set)| *set && deploys_without).map(|(option, _)| v1::Warning {
            component_id: String::new(),
            field: format!("options.{option}"),
            code: plan::Code::OptionWithoutEffect.as_str().into(),
            message: format!("{option} does nothing here: include_dependencies is not set"),
            at: Vec::new(),
        })
    }

    /// The parts of the answer.
    pub fn parts(self, plan: Plan, traceparent: String) -> Parts {
        let Plan { operation, dry_run, design_id, design_name, design_version, clusters, set_aside, warnings, steps } =
            plan;
        let operation = match operation {
            Operation::Deploy => v1::Operation::Deploy,
            Operation::Undeploy => v1::Operation::Undeploy,
        };
        let steps: Vec<_> = steps.into_iter().map(|step| self::step(step, &clusters)).collect();
        let mut warnings: Vec<_> = warnings.into_iter().map(self::warning).collect();
        warnings.extend(self.without_effect());
        let mut header = v1::PlanHeader {
            plan_id: String::new(),
            operation: operation.into(),
            dry_run,
            design: Some(v1::DesignRef { id: design_id, name: design_name, version: design_version }),
            clusters,
            include_dependencies: self.include_dependencies,
            options: Some(self.options),
            step_count: u32::try_from(steps.len()).expect("a document cannot hold that many components"),
            set_aside: set_aside.into_iter().map(self::set_aside).collect(),
            warnings,
            traceparent: String::new(),
        };
        let mut digest = PlanDigest::new(&header);
        let mut largest = (header.encoded_len(), "the header, which names clusters, drawings and warnings");
        for step in &steps {
            let bytes = digest.step(step);
            if bytes > largest.0 {
                largest = (bytes, step.component.as_ref().map_or("", |component| &component.name));
            }
        }
        let largest = Largest { bytes: largest.0, name: shortened(largest.1) };
        header.plan_id = digest.plan_id();
        header.traceparent = traceparent;
        Parts { header, steps, largest, encoded: self.encoded }
    }
}

/// A plan in the contract's types.
#[derive(Debug, Clone, PartialEq)]
pub struct Parts {
    /// The first part.
    pub header: v1::PlanHeader,
    /// The steps.
    pub steps: Vec<v1::PlanStep>,
    /// The largest part.
    pub largest: Largest,
    /// Whether the parts are sent as bytes.
    pub encoded: bool,
}

/// The largest part of a plan: whoever cannot take it can take none of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Largest {
    /// How many bytes it has.
    pub bytes: usize,
    /// The name of its component, or which other part it is.
    pub name: String,
}

/// The parts in the order in which they are sent.
impl IntoIterator for Parts {
    type Item = v1::PlanResponse;
    type IntoIter = Box<dyn Iterator<Item = v1::PlanResponse> + Send>;

    fn into_iter(self) -> Self::IntoIter {
        use v1::plan_response::Part;
        let Self { header, steps, encoded, .. } = self;
        let trailer = v1::PlanTrailer { plan_id: header.plan_id.clone(), step_count: header.step_count };
        let parts = std::iter::once(Part::Header(header))
            .chain(steps.into_iter().map(Part::Step))
            .chain(std::iter::once(Part::Trailer(trailer)));
        let sent = move |part| if encoded { self::encoded(part) } else { part };
        Box::new(parts.map(move |part| v1::PlanResponse { part: Some(sent(part)) }))
    }
}

/// The part of a plan as bytes.
fn encoded(part: v1::plan_response::Part) -> v1::plan_response::Part {
    use v1::{PlanPartKind as Kind, plan_response::Part};
    let (kind, bytes) = match &part {
        Part::Header(header) => (Kind::Header, header.encode_to_vec()),
        Part::Step(step) => (Kind::Step, step.encode_to_vec()),
        Part::Trailer(trailer) => (Kind::Trailer, trailer.encode_to_vec()),
        Part::Encoded(_) | Part::Problem(_) => return part,
    };
    Part::Encoded(v1::EncodedPart { kind: kind.into(), bytes })
}

/// What is wrong with a request, in the order of its fields.
#[derive(Debug, Default)]
struct Mistakes(Vec<Mistake>);

impl Mistakes {
    /// More than these are not told: nobody reads them, and no status carries them.
    const MOST: usize = 1_000;

    fn add(&mut self, field: impl Into<String>, message: String) {
        if self.0.len() == Self::MOST {
            return;
        }
        self.0.push(Mistake { field: field.into(), message });
    }
}

/// The most clusters of one plan.
pub(crate) const MOST_CLUSTERS: usize = 10_000;
/// The longest name of a cluster in bytes.
const MOST_NAME: usize = 253;

fn clusters(clusters: &[String], mistakes: &mut Mistakes) {
    if clusters.is_empty() {
        mistakes.add("clusters", "no cluster is selected; select at least one".into());
    }
    if clusters.len() > MOST_CLUSTERS {
        let message = format!("{} clusters are selected and the limit is {MOST_CLUSTERS}", clusters.len());
        return mistakes.add("clusters", message);
    }
    let mut seen = HashSet::new();
    for (index, cluster) in clusters.iter().enumerate() {
        if cluster.len() > MOST_NAME {
            let message = format!("the name of a cluster has {} bytes and the limit is {MOST_NAME}", cluster.len());
            mistakes.add(format!("clusters[{index}]"), message);
        } else if cluster.trim().is_empty() {
            mistakes.add(format!("clusters[{index}]"), "a cluster has no name".into());
        } else if !seen.insert(cluster) {
            mistakes.add(format!("clusters[{index}]"), format!("cluster {} is selected twice", quoted(cluster)));
        }
    }
}

fn options(mut options: v1::RunOptions, mistakes: &mut Mistakes) -> v1::RunOptions {
    if options.default_namespace.is_empty() {
        options.default_namespace = "default".into();
    } else if !manifest::is_label(&options.default_namespace) {
        let message =
            format!("{} can be no namespace: lower-case letters, digits and `-`", quoted(&options.default_namespace));
        mistakes.add("options.default_namespace", message);
    }
    match v1::OnDisconnect::try_from(options.on_disconnect) {
        Ok(v1::OnDisconnect::Unspecified) => options.set_on_disconnect(v1::OnDisconnect::Stop),
        Ok(_) => {}
        Err(_) => mistakes.add("options.on_disconnect", format!("there is no value {}", options.on_disconnect)),
    }
    match v1::Existing::try_from(options.existing) {
        Ok(v1::Existing::Unspecified) => options.set_existing(v1::Existing::Refuse),
        Ok(_) => {}
        Err(_) => mistakes.add("options.existing", format!("there is no value {}", options.existing)),
    }
    match v1::Prune::try_from(options.prune) {
        Ok(v1::Prune::Unspecified) => options.set_prune(v1::Prune::Report),
        Ok(_) => {}
        Err(_) => mistakes.add("options.prune", format!("there is no value {}", options.prune)),
    }
    let fits = |timeout| Duration::try_from(timeout).is_ok_and(|time| !time.is_zero() && time <= LONGEST_STEP);
    if options.step_timeout.is_some_and(|timeout| !fits(timeout)) {
        let message = "the time must be more than nothing and at most 7 days; leave it out for the default";
        mistakes.add("options.step_timeout", message.into());
    }
    options
}

fn step(step: Step, clusters: &[String]) -> v1::PlanStep {
    let Step {
        id,
        name,
        kind,
        api_version,
        model,
        model_version,
        registrant,
        registrant_kind,
        depends_on,
        runs_after,
        wave,
        route,
        payload: Payload(payload),
        chart,
    } = step;
    let clusters = clusters.to_vec();
    let route = match route {
        Route::Direct => v1::plan_step::Route::Direct(v1::DirectRoute { clusters, manifest: payload }),
        Route::Adapter { host, port, protocol } => v1::plan_step::Route::Adapter(v1::AdapterRoute {
            host,
            port: port.into(),
            clusters,
            declaration: payload,
            protocol: match protocol {
                Protocol::Auto => v1::AdapterProtocol::Auto,
                Protocol::Provision => v1::AdapterProtocol::Provision,
                Protocol::ProcessOam => v1::AdapterProtocol::ProcessOam,
            }
            .into(),
        }),
    };
    let component = v1::Component { name, kind, api_version, model, model_version, registrant, registrant_kind };
    let chart = chart.map(|Chart { url, version, namespace }| v1::Chart { url, version, namespace });
    v1::PlanStep { id, component: Some(component), depends_on, runs_after, wave, route: Some(route), chart }
}

fn set_aside(SetAside { id, name, kind }: SetAside) -> v1::SetAside {
    v1::SetAside { component_id: id, name, kind }
}

fn warning(Warning { place, component, field, code, message, .. }: Warning) -> v1::Warning {
    let at = place.into_iter().map(problems::position).collect();
    v1::Warning { component_id: component, field, code: code.as_str().into(), message, at }
}
