//! Takes a plan in, message by message, and lets nothing through that is not whole, unaltered and consistent (D22).
//!
//! Whatever is kept of a message is counted before it is kept: in its encoding, and in what the run will need for it ([`bounds`]).
//!
//! Pure: the stream itself is `session`'s.

mod bounds;
mod start;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use bytes::Bytes;
use prost::Message;
use switchyard_proto::{
    LONGEST_STEP,
    digest::PlanDigest,
    unknown_fields,
    v1::{self, cluster_access, execute_request::Part, plan_step::Route},
};
use switchyard_service::budget::{Exceeded, Share};

use crate::{
    adapter::oam,
    cluster::access::Source,
    core::{
        plan::{Adapter, Direct, Head, Options, Plan, Step, Work},
        target::{AdapterIx, Adapters, ClusterIx, Clusters, MAX_TARGETS, StepIx, Steps},
    },
    report,
};

/// How many unknown fields of a part are named in a refusal.
const MAX_UNKNOWN_NAMED: usize = 20;

/// Why a plan was not taken in.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// A message that may not come now, or a part that contradicts another.
    #[error("{field}: {what}")]
    Invalid { field: String, what: String },
    #[error("the plan is not complete: {0}")]
    Incomplete(String),
    #[error(
        "the plan was altered, or passed on by a client whose protos are older than the planner's (then ask for it with \
         `encoded`): its parts have the digest {found}, its id is {stated}"
    )]
    Digest { stated: String, found: String },
    /// Fields or values that were added to the contract after this executor was built (L0).
    #[error("the plan says what this executor does not know: {}", .0.join("; "))]
    TooNew(Vec<String>),
    #[error("the plan is larger than the executor takes: {0}")]
    TooLarge(String),
    /// Other requests leave no room for the plan.
    #[error("the executor has no room for the plan now: {0}")]
    NoRoom(String),
    /// An adapter's address that nobody could dial (S17).
    #[error("the adapter's address {address} of component {component} is not usable")]
    Address { component: String, address: String },
    /// The caller stopped it before it began.
    #[error("cancelled before the plan was complete; nothing was started")]
    Cancelled,
}

/// A plan that may be run, and how its clusters are reached.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) plan: Plan,
    pub(crate) access: Clusters<Source>,
    /// What the caller calls it; empty if it said nothing.
    pub(crate) start: v1::Start,
    /// The plan's header, for those who ask for it later.
    pub(crate) header: v1::PlanHeader,
    /// What the plan holds of the budget of all requests. To be kept as long as the plan.
    pub(crate) share: Share,
}

/// What has come so far.
pub(crate) struct Intake {
    share: Share,
    /// Whether a part has come.
    has_begun: bool,
    start: v1::Start,
    header: Option<(v1::PlanHeader, PlanDigest)>,
    /// The plan's clusters, by name.
    clusters: HashMap<String, ClusterIx>,
    steps: Steps<Step>,
    positions: HashMap<String, StepIx>,
    access: BTreeMap<String, Source>,
    access_bytes: usize,
    adapters: Addresses,
}

/// Addresses of the adapters.
#[derive(Default)]
struct Addresses {
    addresses: Adapters<String>,
    positions: HashMap<String, AdapterIx>,
}

impl Addresses {
    /// The position of an address, beside so many clusters.
    fn position(&mut self, address: String, clusters: usize) -> Result<AdapterIx, Error> {
        let Self { addresses, positions } = self;
        if let Some(&known) = positions.get(&address) {
            return Ok(known);
        }
        if clusters + addresses.len() >= MAX_TARGETS {
            let what = format!("its clusters and its adapters' addresses are more than {MAX_TARGETS} together");
            return Err(Error::TooLarge(what));
        }
        let position = addresses.push_and_get_key(address.clone());
        positions.insert(address, position);
        Ok(position)
    }
}

fn invalid<T>(field: impl Into<String>, what: impl Into<String>) -> Result<T, Error> {
    Err(Error::Invalid { field: field.into(), what: what.into() })
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kubeconfig(_) => f.write_str("Kubeconfig([redacted])"),
            Self::Context(context) => f.debug_tuple("Context").field(context).finish(),
            Self::Name => f.write_str("Name"),
        }
    }
}

impl From<Exceeded> for Error {
    fn from(exceeded: Exceeded) -> Self {
        match exceeded {
            Exceeded::Request { .. } => Self::TooLarge(format!("{exceeded} (--max-plan-bytes)")),
            Exceeded::All { .. } => Self::NoRoom(format!("{exceeded} (--max-held-bytes)")),
        }
    }
}

impl Intake {
    /// Nothing yet. What comes is counted in `share`.
    pub(crate) fn new(share: Share) -> Self {
        Self {
            share,
            has_begun: false,
            start: v1::Start::default(),
            header: None,
            clusters: HashMap::new(),
            steps: Steps::new(),
            positions: HashMap::new(),
            access: BTreeMap::new(),
            access_bytes: 0,
            adapters: Addresses::default(),
        }
    }

    /// Takes the next message. Answers the plan once its trailer has come.
    pub(crate) fn take(&mut self, part: Option<Part>) -> Result<Option<Accepted>, Error> {
        if let Some(part) = &part {
            self.share.take(bounds::held_for(part))?;
        }
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        match part {
            None => invalid("part", "a message without a part; send header, step, trailer, cluster or cancel")?,
            Some(Part::Header(header)) => {
                let digest = PlanDigest::new(&header);
                self.header(header, digest)?;
            }
            Some(Part::Step(step)) => self.step(step, None)?,
            Some(Part::Encoded(part)) => return self.encoded(&part),
            Some(Part::Cluster(access)) => self.cluster(access)?,
            Some(Part::Start(_)) if !is_first => invalid("start", "start comes first of all parts, and once")?,
            Some(Part::Start(start)) => {
                start::check(&start)?;
                self.start = start;
            }
            Some(Part::Cancel(_)) => return Err(Error::Cancelled),
            Some(Part::Trailer(trailer)) => return self.trailer(&trailer).map(Some),
        }
        Ok(None)
    }

    /// What the end of the stream means before the trailer.
    pub(crate) fn cut_short(&self) -> Error {
        Error::Incomplete(match &self.header {
            None => "the stream ended before a header".into(),
            Some((header, _)) => {
                format!("the stream ended after {} of {} steps, without a trailer", self.steps.len(), header.step_count)
            }
        })
    }

    /// Takes a part that came as bytes. They are hashed as received, so it does not matter what those who passed them on
    /// know of the contract (L0).
    fn encoded(&mut self, v1::EncodedPart { kind, bytes }: &v1::EncodedPart) -> Result<Option<Accepted>, Error> {
        match known(*kind, "encoded.kind")? {
            v1::PlanPartKind::Unspecified => invalid("encoded.kind", "it says neither header nor step nor trailer"),
            v1::PlanPartKind::Header => {
                let header = decode("switchyard.v1.PlanHeader", "header", bytes)?;
                let digest = PlanDigest::of_encoded_header(bytes).or_else(|_| not_encoded("header"))?;
                self.header(header, digest)?;
                Ok(None)
            }
            v1::PlanPartKind::Step => {
                let field = format!("steps[{}]", self.steps.len());
                let step = decode("switchyard.v1.PlanStep", &field, bytes)?;
                self.step(step, Some(bytes))?;
                Ok(None)
            }
            v1::PlanPartKind::Trailer => {
                self.trailer(&decode("switchyard.v1.PlanTrailer", "trailer", bytes)?).map(Some)
            }
        }
    }

    fn header(&mut self, header: v1::PlanHeader, digest: PlanDigest) -> Result<(), Error> {
        if self.header.is_some() {
            return invalid("header", "a second header; one stream carries one plan");
        }
        if header.clusters.is_empty() {
            return invalid("header.clusters", "no cluster is selected; select at least one");
        }
        bounds::check_header(&header)?;
        let positions = header.clusters.iter().enumerate();
        self.clusters = positions.map(|(position, name)| (name.clone(), ClusterIx::from(position))).collect();
        if self.clusters.len() != header.clusters.len() || self.clusters.contains_key("") {
            return invalid("header.clusters", "cluster names must be unique and not empty");
        }
        if known::<v1::Operation>(header.operation, "header.operation")? == v1::Operation::Unspecified {
            return invalid("header.operation", "a plan says whether it deploys or undeploys");
        }
        if let Some(stray) = self.access.keys().find(|name| !self.clusters.contains_key(*name)) {
            return stray_access(stray);
        }
        self.header = Some((header, digest));
        Ok(())
    }

    /// Takes a step, and the bytes that it came as if it did not come as a message.
    fn step(&mut self, step: v1::PlanStep, encoded: Option<&[u8]>) -> Result<(), Error> {
        let Some((header, digest)) = &mut self.header else {
            return invalid("step", "a step before the header; the header comes first");
        };
        if self.steps.len() == header.step_count as usize {
            return invalid("step", format!("more steps than the {} that the header counts", header.step_count));
        }
        let field = format!("steps[{}]", self.steps.len());
        bounds::check_step(&step, &field)?;
        match encoded {
            Some(bytes) => digest.encoded_step(bytes),
            None => _ = digest.step(&step),
        }
        let position = self.steps.next_key();
        if step.id.is_empty() || self.positions.insert(step.id.clone(), position).is_some() {
            return invalid(
                format!("{field}.id"),
                format!("step ids must be unique and not empty, `{}` is not", step.id),
            );
        }
        let edges = |ids: &[String], name: &str| {
            let ids: BTreeSet<&String> = ids.iter().collect();
            let mut edges = Vec::with_capacity(ids.len());
            for id in ids {
                // Only what came earlier is known, so an edge that is found cannot be part of a cycle.
                match self.positions.get(id) {
                    Some(&earlier) if earlier < position => edges.push(earlier),
                    _ => {
                        let what =
                            format!("`{id}` is not the id of an earlier step; steps come after what they wait for");
                        return invalid(format!("{field}.{name}"), what);
                    }
                }
            }
            Ok(edges)
        };
        let depends_on = edges(&step.depends_on, "depends_on")?;
        let mut runs_after = edges(&step.runs_after, "runs_after")?;
        // What is declared holds more.
        let declared: BTreeSet<_> = depends_on.iter().collect();
        runs_after.retain(|ix| !declared.contains(ix));
        let work = match step.route {
            None => return invalid(format!("{field}.route"), "the step has neither a direct nor an adapter route"),
            Some(Route::Direct(route)) => Work::Direct(direct(&self.clusters, route, &field)?),
            Some(Route::Adapter(route)) => {
                Work::Adapter(adapter(header.dry_run, &self.clusters, &mut self.adapters, route, &field)?)
            }
        };
        let before = |ix: &StepIx| bounds::clusters(&self.steps[*ix].work);
        self.share.take(bounds::held_for_order(&work, depends_on.len(), runs_after.iter().map(before)))?;
        self.steps.push(Step {
            id: step.id,
            component: step.component.unwrap_or_default(),
            depends_on,
            runs_after,
            chart: step.chart.filter(|_| header.include_dependencies),
            work,
        });
        Ok(())
    }

    fn cluster(&mut self, access: v1::ClusterAccess) -> Result<(), Error> {
        let bytes = bounds::check_access(&access)?;
        self.access_bytes += bytes;
        let comes_before_header = self.header.is_none();
        if comes_before_header {
            bounds::check_early_access(self.access.len() + 1, self.access_bytes)?;
        } else if !self.clusters.contains_key(&access.name) {
            return stray_access(&access.name);
        }
        let source = match access.source {
            None => {
                return invalid("cluster", format!("access to `{}` has neither kubeconfig nor context", access.name));
            }
            Some(cluster_access::Source::Kubeconfig(text)) => Source::Kubeconfig(text),
            Some(cluster_access::Source::Context(context)) => Source::Context(context),
        };
        if access.name.is_empty() {
            return invalid("cluster.name", "access without the name of a cluster");
        }
        if let Some(name) = self.access.insert(access.name.clone(), source).map(|_| access.name) {
            return invalid("cluster.name", format!("a second access to `{name}`"));
        }
        Ok(())
    }

    fn trailer(&mut self, trailer: &v1::PlanTrailer) -> Result<Accepted, Error> {
        let Some((header, digest)) = self.header.take() else {
            return Err(Error::Incomplete("the trailer came before a header".into()));
        };
        if self.steps.len() != header.step_count as usize || trailer.step_count != header.step_count {
            return Err(Error::Incomplete(format!(
                "{} steps came, the header counts {} and the trailer {}",
                self.steps.len(),
                header.step_count,
                trailer.step_count
            )));
        }
        let found = digest.plan_id();
        for stated in [&header.plan_id, &trailer.plan_id] {
            if *stated != found {
                return Err(Error::Digest { stated: stated.clone(), found });
            }
        }
        let kept = report::header(&header);
        self.share.take(kept.encoded_len())?;
        let access = header.clusters.iter().map(|name| self.access.remove(name).unwrap_or(Source::Name)).collect();
        let operation = header.operation();
        let mut plan = Plan {
            id: header.plan_id,
            operation,
            dry_run: header.dry_run,
            design: header.design.unwrap_or_default(),
            clusters: header.clusters.into(),
            adapters: std::mem::take(&mut self.adapters.addresses),
            options: options(header.options.unwrap_or_default())?,
            steps: std::mem::take(&mut self.steps),
            traceparent: header.traceparent,
        };
        plan.mark_what_the_design_brings();
        let start = std::mem::take(&mut self.start);
        Ok(Accepted { plan, access, start, header: kept, share: self.share.hand_over() })
    }
}

/// Decodes a part that came as bytes, and refuses by name what this program does not know in it.
fn decode<M: Message + Default>(message: &str, field: &str, bytes: &[u8]) -> Result<M, Error> {
    let decoded = M::decode(bytes).or_else(|_| not_encoded(field))?;
    // What is not known was not kept, so the message is shorter than the bytes. Only then is it worth a closer look.
    if decoded.encoded_len() < bytes.len() {
        let unknown = unknown_fields(message, bytes).or_else(|_| not_encoded(field))?;
        if !unknown.is_empty() {
            let named = unknown.into_iter().take(MAX_UNKNOWN_NAMED).map(|what| format!("{field}: {what}"));
            return Err(Error::TooNew(named.collect()));
        }
    }
    Ok(decoded)
}

fn not_encoded<T>(field: &str) -> Result<T, Error> {
    invalid("encoded.bytes", format!("the bytes of {field} are no such message"))
}

/// Reads an enum, and refuses a value that was added to the contract after this program was built.
fn known<E: TryFrom<i32>>(value: i32, field: &str) -> Result<E, Error> {
    E::try_from(value).map_err(|_| Error::TooNew(vec![format!("{field}: value {value}")]))
}

fn stray_access<T>(name: &str) -> Result<T, Error> {
    invalid("cluster.name", format!("access to `{name}`, which the plan does not select"))
}

fn named(clusters: &HashMap<String, ClusterIx>, names: &[String], field: &str) -> Result<Vec<ClusterIx>, Error> {
    let mut found = BTreeSet::new();
    for name in names {
        match clusters.get(name) {
            Some(cluster) => found.insert(*cluster),
            None => return invalid(format!("{field}.clusters"), format!("`{name}` is not one of the plan's clusters")),
        };
    }
    if found.is_empty() {
        return invalid(format!("{field}.clusters"), "the step names no cluster");
    }
    Ok(found.into_iter().collect())
}

fn adapter(
    dry_run: bool,
    all_clusters: &HashMap<String, ClusterIx>,
    adapters: &mut Addresses,
    route: v1::AdapterRoute,
    field: &str,
) -> Result<Adapter, Error> {
    let field = format!("{field}.adapter");
    let protocol = known(route.protocol, &format!("{field}.protocol"))?;
    let clusters = named(all_clusters, &route.clusters, &field)?;
    let declared = bounds::declaration(&route.declaration)
        .or_else(|_| invalid(format!("{field}.declaration"), "the declaration is not JSON"))?;
    let address = crate::adapter::address(&route.host, route.port);
    // An address that cannot be used stops a real run; a dry run calls no adapter (D21).
    let usable = !route.host.is_empty() && !route.host.contains(|c: char| c.is_whitespace() || "/@?#\\%".contains(c));
    let port = u16::try_from(route.port).ok().filter(|port| *port > 0);
    let port = match port {
        Some(port) if usable => port,
        _ if dry_run => 0,
        _ => return Err(Error::Address { component: oam::identity(&declared).0.to_owned(), address }),
    };
    Ok(Adapter {
        host: route.host,
        port,
        protocol,
        address: adapters.position(address, all_clusters.len())?,
        object: object(declared, &clusters),
        clusters,
        declaration: route.declaration,
    })
}

/// The object that a declared component is, if it is one (D10 as far as it concerns names).
fn object(mut declared: serde_json::Value, clusters: &[ClusterIx]) -> Option<Direct> {
    let (name, kind, api_version) = oam::identity(&declared);
    let [name, kind, api_version] = [name, kind, api_version].map(str::to_owned);
    if kind.is_empty() || api_version.is_empty() || name.is_empty() {
        return None;
    }
    // Taken and not copied: it can be large.
    let configuration = declared.get_mut("configuration").and_then(serde_json::Value::as_object_mut);
    let mut object = configuration.map(std::mem::take).unwrap_or_default();
    object.remove("namespace");
    object.insert("apiVersion".into(), api_version.into());
    object.insert("kind".into(), kind.into());
    let metadata = object.entry("metadata").or_insert_with(|| serde_json::json!({}));
    metadata.as_object_mut()?.insert("name".into(), name.into());
    let manifest = serde_json::Value::from(object).to_string();
    let head = serde_json::from_str(&manifest).ok()?;
    Some(Direct {
        clusters: clusters.to_vec(),
        manifest: Bytes::from(manifest),
        head,
        kind_by: None,
        namespace_by: None,
        refers_to: Vec::new(),
    })
}

fn direct(clusters: &HashMap<String, ClusterIx>, route: v1::DirectRoute, field: &str) -> Result<Direct, Error> {
    let field = format!("{field}.direct");
    let clusters = named(clusters, &route.clusters, &field)?;
    // serde's text can quote values, so only the place is passed on.
    let head: Head = serde_json::from_str(&route.manifest).or_else(|error| {
        let place = format!("line {}, column {}", error.line(), error.column());
        invalid(
            format!("{field}.manifest"),
            format!("not a Kubernetes object with apiVersion, kind and name ({place})"),
        )
    })?;
    for (value, what) in
        [(&head.api_version, "apiVersion"), (&head.kind, "kind"), (&head.metadata.name, "metadata.name")]
    {
        if value.is_empty() {
            return invalid(format!("{field}.manifest"), format!("{what} is empty"));
        }
    }
    Ok(Direct {
        clusters,
        manifest: Bytes::from(route.manifest),
        head,
        kind_by: None,
        namespace_by: None,
        refers_to: Vec::new(),
    })
}

fn options(options: v1::RunOptions) -> Result<Options, Error> {
    let on_disconnect: v1::OnDisconnect = known(options.on_disconnect, "header.options.on_disconnect")?;
    let step_timeout = match options.step_timeout {
        None => None,
        Some(duration) => match Duration::try_from(duration) {
            // A clock has an end, too.
            Ok(duration) if !duration.is_zero() && duration <= LONGEST_STEP => Some(duration),
            _ => return invalid("header.options.step_timeout", "a step needs a positive time of at most 7 days"),
        },
    };
    let existing = match v1::Existing::try_from(options.existing) {
        Ok(v1::Existing::Unspecified) => v1::Existing::Refuse,
        Ok(existing) => existing,
        // Whoever asks for what is not known here must not get something else.
        Err(_) => return invalid("header.options.existing", format!("there is no value {}", options.existing)),
    };
    let prune = match known::<v1::Prune>(options.prune, "header.options.prune")? {
        v1::Prune::Unspecified => v1::Prune::Report,
        prune => prune,
    };
    Ok(Options {
        prune,
        prune_at_most: (options.prune_at_most > 0).then_some(options.prune_at_most as usize),
        existing,
        report_altered: options.report_altered,
        write_always: options.write_always,
        step_timeout,
        max_in_flight: (options.max_in_flight > 0).then_some(options.max_in_flight as usize),
        force_conflicts: options.force_conflicts,
        default_namespace: if options.default_namespace.is_empty() {
            "default".into()
        } else {
            options.default_namespace
        },
        create_namespaces: options.create_namespaces,
        wait_until_ready: options.wait_until_ready,
        delete_foreign: options.delete_foreign,
        upgrade_dependencies: options.upgrade_dependencies,
        remove_dependencies: options.remove_dependencies,
        goes_on_without_client: on_disconnect == v1::OnDisconnect::Continue,
    })
}

#[cfg(test)]
mod tests;
