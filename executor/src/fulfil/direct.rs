//! The direct path: applies a step's object to one cluster (S18).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use switchyard_proto::v1::ObjectRef;
use tokio::sync::OnceCell;

use super::{Attempt, Done, Fulfil, Order};
use crate::{
    cluster::{
        Cluster,
        apply::{self, Patch},
        definition,
        discovery::{self, Resource},
    },
    mask::OfDesign,
    plan::{self, Plan, Step, Work},
    verdict::{self, Failure, Reason, Subject, Verdict},
};

/// A namespace by lane and name, and whether it was created.
type Created = BTreeMap<(u16, String), Arc<OnceCell<()>>>;

/// Applies the direct steps of one plan.
pub(crate) struct Direct {
    plan: Arc<Plan>,
    /// By lane.
    clusters: Vec<Arc<Cluster>>,
    /// Namespaces that were created because they were missing (D14): once each.
    created: Mutex<Created>,
    secrets: OfDesign,
}

impl Direct {
    pub(crate) fn new(plan: Arc<Plan>, clusters: Vec<Arc<Cluster>>) -> Self {
        let secrets = plan.steps.iter().filter_map(Step::direct).filter(|direct| direct.head.is_secret());
        let secrets = OfDesign::new(secrets.map(|direct| direct.manifest.clone()).collect());
        Self { plan, clusters, created: Mutex::default(), secrets }
    }

    async fn apply(&self, direct: &plan::Direct, order: &Order) -> Attempt {
        let cluster = &self.clusters[order.lane.0 as usize];
        let head = &direct.head;
        let options = &self.plan.options;
        let mut subject = Subject {
            cluster: &cluster.name,
            api_version: &head.api_version,
            kind: &head.kind,
            namespace: head.metadata.namespace.as_deref().unwrap_or(&options.default_namespace),
            name: &head.metadata.name,
            kind_in_design: direct.kind_in_design,
            namespace_in_design: direct.namespace_in_design,
        };
        let mut attempt = Attempt { result: Err(Verdict::Refused(internal())), sent: 0, warnings: Vec::new() };
        let resource = match self.resource(cluster, &subject, order).await {
            Ok(resource) => resource,
            Err(verdict) => return Attempt { result: Err(verdict), ..attempt },
        };
        if !resource.namespaced {
            if subject.namespace != options.default_namespace {
                attempt.warnings.push(format!("{} is cluster-scoped, so its namespace was left out", head.kind));
            }
            subject.namespace = "";
        }
        let patch = Patch {
            subject: subject.clone(),
            resource: &resource,
            manifest: direct.manifest.clone(),
            force: options.force_conflicts,
            attempt: order.attempt,
            lost_since: order.lost_since,
            secrets: &self.secrets,
        };
        let outcome = apply::apply(cluster, &patch, order.answer_by).await;
        attempt.sent = 1;
        attempt.warnings.extend(outcome.warnings);
        attempt.result = match outcome.result {
            Err(Verdict::Refused(failure))
                if failure.reason == Reason::NamespaceNotFound && options.create_namespaces =>
            {
                Err(self.create_namespace(cluster, &subject, order, failure).await)
            }
            Err(verdict) => Err(verdict),
            Ok(applied) => {
                let object = ObjectRef {
                    api_version: head.api_version.clone(),
                    kind: head.kind.clone(),
                    namespace: applied.namespace,
                    name: head.metadata.name.clone(),
                    uid: applied.uid,
                    resource_version: applied.resource_version,
                };
                let done = Done { change: applied.change, object };
                if head.is_definition() {
                    order.progress.written();
                    let deadline = order.deadline;
                    definition::served(cluster, &head.api_version, &head.metadata.name, deadline)
                        .await
                        .map(|()| done)
                        .map_err(Verdict::Refused)
                } else {
                    Ok(done)
                }
            }
        };
        attempt
    }

    async fn resource(&self, cluster: &Cluster, subject: &Subject<'_>, order: &Order) -> Result<Resource, Verdict> {
        // On the first attempt whatever is known will do, if it holds the kind; a retry asks anew.
        let since = tokio::time::Instant::now();
        cluster.find(subject.api_version, subject.kind, since, order.answer_by).await.map_err(|error| match error {
            discovery::Error::Unknown { near } => verdict::kind_unknown(subject, near.as_deref()),
            discovery::Error::Failed(why) => verdict::discovery_failed(subject, &why),
        })
    }

    /// Creates the object's namespace, once however many objects miss it, and asks for another attempt.
    async fn create_namespace(
        &self,
        cluster: &Cluster,
        subject: &Subject<'_>,
        order: &Order,
        missing: Failure,
    ) -> Verdict {
        let key = (order.lane.0, subject.namespace.to_owned());
        let cell = self.created.lock().expect("nothing panics while it holds the lock").entry(key).or_default().clone();
        let create = || async {
            let namespace = Subject {
                api_version: "v1",
                kind: "Namespace",
                namespace: "",
                name: subject.namespace,
                ..subject.clone()
            };
            let manifest = serde_json::json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": subject.namespace }
            });
            let resource = Resource { plural: "namespaces".into(), namespaced: false };
            let patch = Patch {
                subject: namespace,
                resource: &resource,
                manifest: Bytes::from(manifest.to_string()),
                force: false,
                attempt: 1,
                lost_since: None,
                secrets: &self.secrets,
            };
            apply::apply(cluster, &patch, order.answer_by).await.result.map(|_| ())
        };
        match cell.get_or_try_init(create).await {
            Ok(()) => verdict::namespace_created(missing),
            Err(Verdict::Refused(failure)) => Verdict::Refused(Failure {
                message: format!("{}; creating it failed: {}", missing.message, failure.message),
                ..failure
            }),
            Err(verdict) => verdict,
        }
    }
}

impl Fulfil for Direct {
    async fn attempt(self: Arc<Self>, order: Order) -> Attempt {
        match &self.plan.clone().steps[order.step.0 as usize].work {
            Work::Direct(direct) => self.apply(direct, &order).await,
            // Such plans are refused before they start.
            Work::Adapter { .. } => {
                Attempt { result: Err(Verdict::Refused(internal())), sent: 0, warnings: Vec::new() }
            }
        }
    }
}

fn internal() -> Failure {
    Failure::new(Reason::Internal, "the step could not be carried out because of an internal error")
}
