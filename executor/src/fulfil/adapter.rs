//! The adapter path: looks at the clusters, asks the adapter, and looks again (S15, S20, D26).
//!
//! The first look keeps an adapter away from what is not the design's, and from clusters where nothing is to be removed. The
//! second one tells what came of the call. Both read one object on each cluster and never write. What the adapter said and what
//! was seen make the verdict together; the table that does so is in `judge`, and it is pure.

mod before;
mod judge;
mod look;

use std::{borrow::Cow, sync::Arc};

use futures::future::join_all;
use switchyard_proto::v1::{self, Operation};
use tokio::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

use self::judge::Judged;
use super::{Attempt, Checked, Done, ObjectId, Order, Ready, Site};
use crate::{
    adapter::{Adapters, Call, Error, oam},
    answers::classify::{self, Subject},
    cluster::{
        Cluster,
        contents::Everywhere,
        definition,
        look::Place,
        readiness::{self, Awaited},
    },
    core::{
        plan::{self, Plan},
        schedule::UnitOutcome,
        target::{ClusterIx, Clusters},
    },
    mask::{OfDesign, Secrets},
};

/// Part of a step's time that is kept for the looks at the clusters, and the most that it may be.
const LOOK_SHARE: u32 = 10;
const LONGEST_LOOK: Duration = Duration::from_secs(10);

/// Carries out the adapter steps of one plan.
pub(crate) struct ByAdapter {
    pub(crate) plan: Arc<Plan>,
    pub(crate) run_id: String,
    pub(crate) sites: Arc<Clusters<Site>>,
    pub(crate) adapters: Arc<Adapters>,
    pub(crate) secrets: Arc<OfDesign>,
    /// What controllers put into every namespace.
    pub(crate) everywhere: Arc<Everywhere>,
}

/// One component, and what one attempt at it needs to know.
#[derive(Clone, Copy)]
struct Task<'a> {
    work: &'a plan::Adapter,
    order: &'a Order,
    /// `host:port` of the adapter.
    address: &'a str,
    removes: bool,
}

impl ByAdapter {
    pub(crate) async fn carry_out(&self, work: &plan::Adapter, order: &Order) -> Attempt {
        let adapter = self.adapters.at(&work.host, work.port);
        let removes = self.plan.operation == Operation::Undeploy;
        let task = Task { work, order, address: adapter.address(), removes };
        let left = order.deadline.saturating_duration_since(Instant::now());
        let deadline = order.deadline - (left / LOOK_SHARE).min(LONGEST_LOOK);
        let mut turn = match adapter.turn(deadline, &order.stop).await {
            Ok(turn) => turn,
            Err(error) => return self.attempt(task, judge::not_called(&error), 0, Vec::new()),
        };
        let note = turn.note.take();
        // While it is our turn no other call from here comes between the look and the call.
        let before = self.look_before(task, deadline.min(Instant::now() + LONGEST_LOOK)).await;
        if let Some(judged) = before::without_call(task, &before) {
            let checked = before.iter().map(|(at, before)| before.account(*at, removes)).collect();
            let mut attempt = self.attempt(task, judged, 0, checked);
            if let Ok(done) = &mut attempt.result {
                done.shared_with = before.iter().find_map(|(_, before)| before.shared_with()).map(Into::into);
            }
            return attempt;
        }
        let (idle, called): (Vec<_>, Vec<_>) = before.iter().partition(|(_, before)| before.is_idle(removes));
        let kubeconfigs: Vec<_> = called.iter().map(|(at, _)| self.sites[*at].for_adapters.clone()).collect();
        let declaration = self.declaration(work, deadline).await;
        let call = Call {
            protocol: work.protocol,
            removes,
            declaration: &declaration,
            kubeconfigs: &kubeconfigs,
            run_id: &self.run_id,
            step_id: &self.plan.steps[order.step].id,
            deadline,
            hindrance: &|| self.hindrance(work, &order.stop),
        };
        let said = turn.call(&call).await;
        if let Err(error) = &said
            && !error.may_have_acted()
        {
            return self.attempt(task, judge::not_called(error), 0, Vec::new());
        }
        let looks = self.look_after(task, &said, &called).await;
        let mut judged = judge::judge(task, &said, &looks);
        judged.warnings.extend(note);
        let otherwise =
            if matches!(said, Err(Error::Failed { .. })) { UnitOutcome::Failed } else { UnitOutcome::Indeterminate };
        let mut checked: Vec<_> = looks.iter().map(|look| look.account(removes, otherwise)).collect();
        checked.extend(idle.iter().map(|(at, before)| before.account(*at, removes)));
        let mut attempt = self.attempt(task, judged, 1, checked);
        if !removes && attempt.result.is_ok() {
            attempt.warnings.extend(looks.iter().filter_map(|look| look.taken(&before)));
            if self.plan.options.wait_until_ready {
                order.progress.written();
                join_all(attempt.checked.iter_mut().map(|checked| self.until_ready(work, checked, order))).await;
            }
        }
        attempt
    }

    fn attempt(&self, task: Task<'_>, judged: Judged, sent: u32, checked: Vec<Checked>) -> Attempt {
        let Judged { result, warnings } = judged;
        Attempt { result: result.map(|change| done(task.work, change)), sent, took: None, warnings, checked }
    }

    /// Why the adapter must not be called any more: the run is stopped, or one of the clusters may be another run's by now
    /// (case 261).
    fn hindrance(&self, work: &plan::Adapter, stop: &CancellationToken) -> Option<String> {
        if stop.is_cancelled() {
            return Some("the run was stopped before".into());
        }
        let mut clusters = work.clusters.iter().map(|at| self.cluster(*at));
        clusters.find(|cluster| !cluster.may_be_written()).map(|cluster| classify::lock_lost(&cluster.name))
    }

    /// The component as the adapter gets it: without a namespace if a cluster says that its kind has none, as on the direct
    /// path (D10). The kind is known since the look before the call.
    async fn declaration<'a>(&self, work: &'a plan::Adapter, by: Instant) -> Cow<'a, str> {
        let declaration = Cow::Borrowed(work.declaration.as_str());
        let Some(object) = work.object.as_ref().filter(|object| object.head.metadata.namespace.is_some()) else {
            return declaration;
        };
        for &at in &work.clusters {
            let cluster = self.cluster(at);
            let place = cluster.locate(&self.subject(cluster, object), by).await;
            if place.is_ok_and(|place| !place.resource.namespaced) {
                return oam::without_namespace(&declaration).map_or(declaration, Cow::Owned);
            }
        }
        declaration
    }

    /// What follows a definition could not be written before it is served (D16). Whether it is, the look tells.
    async fn await_definition(&self, work: &plan::Adapter, stop: &CancellationToken, by: Instant) {
        let Some(head) = work.object.as_ref().map(|object| &object.head).filter(|head| head.is_definition()) else {
            return;
        };
        let by = by.min(Instant::now() + LONGEST_LOOK);
        let waits = work.clusters.iter().map(|&at| {
            let cluster = self.cluster(at);
            definition::served(cluster, &head.api_version, &head.metadata.name, stop, by)
        });
        join_all(waits).await;
    }

    /// Waits until the object is ready on the cluster where it was seen, as it does for what it writes itself (D16).
    async fn until_ready(&self, work: &plan::Adapter, checked: &mut Checked, order: &Order) {
        let cluster = self.cluster(checked.cluster);
        let (Some(object), UnitOutcome::Succeeded) = (&work.object, checked.outcome) else { return };
        let Ok(place) = cluster.locate(&self.subject(cluster, object), order.deadline).await else { return };
        let Place { subject, resource } = &place;
        let design_id = &self.plan.design.id;
        let masked = |report| Ready::masked(report, &Secrets::around(&object.manifest, &self.secrets));
        let tell = |report| order.progress.waiting(masked(report));
        let awaited = Awaited { subject: subject.clone(), resource, design_id, written: None, tell: &tell };
        let report = readiness::until_ready(cluster, awaited, &order.stop, order.deadline).await;
        checked.readiness = Some(masked(report));
    }

    fn cluster(&self, at: ClusterIx) -> &Cluster {
        &self.sites[at].cluster
    }

    fn subject<'a>(&'a self, cluster: &'a Cluster, object: &'a plan::Direct) -> Subject<'a> {
        let head = &object.head;
        Subject {
            cluster: &cluster.name,
            api_version: &head.api_version,
            kind: &head.kind,
            namespace: head.metadata.namespace.as_deref().unwrap_or(&self.plan.options.default_namespace),
            name: &head.metadata.name,
            kind_in_design: object.kind_by.is_some(),
            namespace_in_design: object.namespace_by.is_some(),
        }
    }
}

fn done(work: &plan::Adapter, change: v1::Change) -> Done {
    let object = work.object.as_ref().map(|object| ObjectId {
        api_version: object.head.api_version.clone(),
        kind: object.head.kind.clone(),
        namespace: object.head.metadata.namespace.clone().unwrap_or_default(),
        name: object.head.metadata.name.clone(),
        ..Default::default()
    });
    Done::new(change, object)
}
