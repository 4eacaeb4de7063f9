//! A plan as the executor works on it: verified, with names turned into positions.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use serde::Deserialize;
use switchyard_proto::v1;

use crate::core::{
    kind,
    schedule::Mode,
    target::{AdapterIx, Adapters, ClusterIx, Clusters, StepIx, Steps, Target},
};

/// A verified plan.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) id: String,
    pub(crate) operation: v1::Operation,
    pub(crate) dry_run: bool,
    pub(crate) design: v1::DesignRef,
    /// Names of the clusters.
    pub(crate) clusters: Clusters<String>,
    /// Addresses of the adapters.
    pub(crate) adapters: Adapters<String>,
    pub(crate) options: Options,
    pub(crate) steps: Steps<Step>,
    /// Of the Plan call; empty when that was not traced.
    pub(crate) traceparent: String,
}

/// How the run is to behave.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// None leaves it to the path.
    pub(crate) step_timeout: Option<Duration>,
    /// None leaves it to the executor.
    pub(crate) max_in_flight: Option<usize>,
    pub(crate) force_conflicts: bool,
    pub(crate) default_namespace: String,
    pub(crate) create_namespaces: bool,
    pub(crate) wait_until_ready: bool,
    pub(crate) delete_foreign: bool,
    pub(crate) upgrade_dependencies: bool,
    pub(crate) remove_dependencies: bool,
    pub(crate) goes_on_without_client: bool,
    pub(crate) existing: v1::Existing,
    pub(crate) report_altered: bool,
    pub(crate) write_always: bool,
    pub(crate) prune: v1::Prune,
    /// None for as many as there are.
    pub(crate) prune_at_most: Option<usize>,
}

/// One step of a verified plan.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) id: String,
    pub(crate) component: v1::Component,
    pub(crate) depends_on: Vec<StepIx>,
    /// Without those that it depends on.
    pub(crate) runs_after: Vec<StepIx>,
    /// What Include Dependencies sees to; none when that was not asked for.
    pub(crate) chart: Option<v1::Chart>,
    pub(crate) work: Work,
}

/// What a step does.
#[derive(Debug)]
pub(crate) enum Work {
    Direct(Direct),
    Adapter(Adapter),
}

/// A component that an adapter is asked for.
#[derive(Debug)]
pub(crate) struct Adapter {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) protocol: v1::AdapterProtocol,
    /// The component in the design's own shape, as JSON.
    pub(crate) declaration: String,
    /// The clusters that the adapter is to act on.
    pub(crate) clusters: Vec<ClusterIx>,
    pub(crate) address: AdapterIx,
    /// The object that the component is, if it is one: what can be looked at and rehearsed.
    pub(crate) object: Option<Direct>,
}

/// An object that the executor applies itself.
#[derive(Debug)]
pub(crate) struct Direct {
    pub(crate) clusters: Vec<ClusterIx>,
    /// The object as JSON, exactly as the plan has it.
    pub(crate) manifest: Bytes,
    pub(crate) head: Head,
    /// The step that defines the kind, if the design brings it along.
    pub(crate) kind_by: Option<StepIx>,
    /// The step that is the namespace, if the design brings it along.
    pub(crate) namespace_by: Option<StepIx>,
    /// The steps that are what the object refers to by name, as far as the design brings them along and an API server refuses the
    /// object without them: the role that it binds, a Pod's account and priority.
    pub(crate) refers_to: Vec<Reference>,
}

/// What an object refers to, and the step that is it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) by: StepIx,
}

/// What an object says of itself.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Head {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) metadata: Metadata,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) namespace: Option<String>,
}

/// As much of a CustomResourceDefinition as tells what it defines.
#[derive(Deserialize)]
struct Definition {
    spec: DefinitionSpec,
}

#[derive(Deserialize)]
struct DefinitionSpec {
    group: String,
    names: DefinitionNames,
}

#[derive(Deserialize)]
struct DefinitionNames {
    kind: String,
}

/// As much of a binding as tells what it binds.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Binding {
    role_ref: RoleRef,
}

#[derive(Deserialize)]
struct RoleRef {
    kind: String,
    name: String,
}

/// As much of a Pod as tells what has to be there before it.
#[derive(Deserialize)]
struct Pod {
    spec: PodSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    service_account_name: Option<String>,
    priority_class_name: Option<String>,
    runtime_class_name: Option<String>,
}

impl Head {
    pub(crate) fn group(&self) -> &str {
        kind::group(&self.api_version)
    }

    pub(crate) fn is_definition(&self) -> bool {
        kind::is_definition(&self.api_version, &self.kind)
    }

    pub(crate) fn is_secret(&self) -> bool {
        kind::is_secret(&self.api_version, &self.kind)
    }

    pub(crate) fn is_namespace(&self) -> bool {
        kind::is_namespace(&self.api_version, &self.kind)
    }
}

impl Direct {
    /// Kinds and names of what has to be there before an API server takes the object.
    fn needs_by_name(&self) -> Vec<(String, String)> {
        let Head { api_version, kind, .. } = &self.head;
        if self.head.group() == RBAC && kind.ends_with("RoleBinding") {
            let binding = serde_json::from_slice(&self.manifest).ok();
            return binding.map(|Binding { role_ref }| (role_ref.kind, role_ref.name)).into_iter().collect();
        }
        if (api_version.as_str(), kind.as_str()) != ("v1", "Pod") {
            return Vec::new();
        }
        let Ok(Pod { spec }) = serde_json::from_slice(&self.manifest) else { return Vec::new() };
        let account = spec.service_account_name.map(|name| ("ServiceAccount".to_owned(), name));
        let priority = spec.priority_class_name.map(|name| ("PriorityClass".to_owned(), name));
        let runtime = spec.runtime_class_name.map(|name| ("RuntimeClass".to_owned(), name));
        account.into_iter().chain(priority).chain(runtime).collect()
    }

    /// Group and kind that the object defines.
    fn defines(&self) -> Option<(String, String)> {
        if !self.head.is_definition() {
            return None;
        }
        let definition: Definition = serde_json::from_slice(&self.manifest).ok()?;
        Some((definition.spec.group, definition.spec.names.kind))
    }
}

const RBAC: &str = "rbac.authorization.k8s.io";
/// Groups and kinds of what is referred to by name.
const REFERRED_TO: [(&str, &str); 5] = [
    (RBAC, "Role"),
    (RBAC, "ClusterRole"),
    ("", "ServiceAccount"),
    ("scheduling.k8s.io", "PriorityClass"),
    ("node.k8s.io", "RuntimeClass"),
];

/// Time a step may take on one cluster, and through one adapter, unless the plan says otherwise (contract,
/// `RunOptions.step_timeout`). Adapters install whole meshes, which takes minutes.
const ON_CLUSTER: Duration = Duration::from_secs(60);
const THROUGH_ADAPTER: Duration = Duration::from_secs(600);

impl Plan {
    /// Where a step is carried out. A dry run calls no adapter and asks the clusters instead.
    pub(crate) fn targets(&self, step: &Step) -> Vec<Target> {
        match &step.work {
            Work::Adapter(adapter) if self.mode() == Mode::CarryOut => vec![Target::Adapter(adapter.address)],
            Work::Direct(Direct { clusters, .. }) | Work::Adapter(Adapter { clusters, .. }) => {
                clusters.iter().copied().map(Target::Cluster).collect()
            }
        }
    }

    pub(crate) fn mode(&self) -> Mode {
        if self.dry_run { Mode::Rehearse } else { Mode::CarryOut }
    }

    /// The clusters that a unit acts on: its own, or those that its adapter is given.
    pub(crate) fn clusters_of<'a>(&'a self, step: StepIx, target: &'a Target) -> &'a [ClusterIx] {
        match (target, &self.steps[step].work) {
            (Target::Cluster(cluster), _) => std::slice::from_ref(cluster),
            (Target::Adapter(_), Work::Adapter(Adapter { clusters, .. }) | Work::Direct(Direct { clusters, .. })) => {
                clusters
            }
        }
    }

    /// Whether what the step needs is seen to before it. On the way down that comes after the last step that needs it.
    pub(crate) fn is_prepared(&self, step: &Step) -> bool {
        self.operation != v1::Operation::Undeploy && step.chart.is_some()
    }

    /// Manifests of the Secrets in the design.
    pub(crate) fn secrets(&self) -> Vec<Bytes> {
        let secrets = self.steps.iter().filter_map(Step::object).filter(|object| object.head.is_secret());
        secrets.map(|object| object.manifest.clone()).collect()
    }

    /// How long a step may take on one cluster.
    pub(crate) fn time_on_cluster(&self) -> Duration {
        self.options.step_timeout.unwrap_or(ON_CLUSTER)
    }

    /// How long a step may take through an adapter.
    pub(crate) fn time_through_adapter(&self) -> Duration {
        self.options.step_timeout.unwrap_or(THROUGH_ADAPTER)
    }

    /// Kinds of the objects that the plan has on a cluster, whoever writes them.
    pub(crate) fn kinds_on(&self, cluster: ClusterIx) -> impl Iterator<Item = (&str, &str)> {
        let objects = self.steps.iter().filter_map(Step::object);
        let there = objects.filter(move |object| object.clusters.contains(&cluster));
        there.map(|object| (object.head.api_version.as_str(), object.head.kind.as_str()))
    }

    /// What tells its design apart.
    pub(crate) fn design_key(&self) -> &str {
        design_key(&self.design, &self.id)
    }

    /// What a target is, in words.
    pub(crate) fn describe(&self, target: Target) -> String {
        match target {
            Target::Cluster(cluster) => format!("cluster {}", self.clusters[cluster]),
            Target::Adapter(adapter) => format!("the adapter at {}", self.adapters[adapter]),
        }
    }

    /// Marks the objects whose kind, namespace, role, account or priority the design brings along itself.
    pub(crate) fn mark_what_the_design_brings(&mut self) {
        let objects = || {
            let steps = self.steps.iter_enumerated();
            steps.filter_map(|(ix, step)| step.object().map(|object| (ix, object)))
        };
        let kinds: BTreeMap<_, _> = objects().filter_map(|(ix, direct)| Some((direct.defines()?, ix))).collect();
        let namespaces: BTreeMap<_, _> = objects()
            .filter(|(_, direct)| direct.head.is_namespace())
            .map(|(ix, direct)| (direct.head.metadata.name.clone(), ix))
            .collect();
        // One of that name in another namespace is taken for the one that is meant: it costs a look too many at most.
        let by_name: BTreeMap<_, _> = objects()
            .filter(|(_, direct)| REFERRED_TO.contains(&(direct.head.group(), direct.head.kind.as_str())))
            .map(|(ix, direct)| ((direct.head.kind.clone(), direct.head.metadata.name.clone()), ix))
            .collect();
        for step in &mut self.steps {
            let (Work::Direct(direct) | Work::Adapter(Adapter { object: Some(direct), .. })) = &mut step.work else {
                continue;
            };
            if !by_name.is_empty() {
                let needed = direct.needs_by_name().into_iter();
                let found =
                    needed.filter_map(|it| by_name.get(&it).map(|&by| Reference { kind: it.0, name: it.1, by }));
                direct.refers_to = found.collect();
            }
            let head = &direct.head;
            direct.kind_by = kinds.get(&(head.group().to_owned(), head.kind.clone())).copied();
            let namespace = head.metadata.namespace.as_ref().unwrap_or(&self.options.default_namespace);
            direct.namespace_by = namespaces.get(namespace).copied();
        }
    }
}

/// What tells designs apart. Drafts may have no id.
pub(crate) fn design_key<'a>(design: &'a v1::DesignRef, plan_id: &'a str) -> &'a str {
    [&design.id, &design.name].into_iter().find(|it| !it.is_empty()).map_or(plan_id, String::as_str)
}

impl Step {
    /// The object that the component is, whoever writes it.
    pub(crate) fn object(&self) -> Option<&Direct> {
        match &self.work {
            Work::Direct(direct) => Some(direct),
            Work::Adapter(adapter) => adapter.object.as_ref(),
        }
    }

    /// Steps that come before this one, for whatever reason; once each.
    pub(crate) fn before(&self) -> impl Iterator<Item = StepIx> {
        self.depends_on.iter().chain(&self.runs_after).copied()
    }

    pub(crate) fn route(&self) -> v1::Route {
        match self.work {
            Work::Direct(_) => v1::Route::Direct,
            Work::Adapter(_) => v1::Route::Adapter,
        }
    }
}
