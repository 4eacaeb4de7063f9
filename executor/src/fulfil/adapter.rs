//! The adapter path: asks the adapter, then looks at the clusters (S15, S20, D26).
//!
//! The look reads one object's metadata on each cluster and never writes. What the adapter said and what was seen make the
//! verdict together; the table that does so is `decide`, and it is pure.

use std::sync::{Arc, OnceLock};

use futures::future::join_all;
use switchyard_proto::v1::{self, ObjectRef, Operation};
use tokio::time::{Duration, Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{Attempt, Checked, Done, Order, Ready};
use crate::{
    adapter::{Adapters, Call, Error},
    cluster::{
        Change, Cluster, Seen, definition,
        readiness::{self, Awaited},
    },
    mask::{OfDesign, Secrets, Unmasked},
    plan::{self, Plan},
    schedule::{Patience, UnitOutcome},
    verdict::{self, Failure, Reason, Subject, Verdict},
};

/// Part of a step's time that is kept for the look at the clusters, and the most that it may be.
const LOOK_SHARE: u32 = 10;
const LONGEST_LOOK: Duration = Duration::from_secs(10);
/// How long an object may take to go after an adapter said that it removed it.
const GOING: Duration = Duration::from_secs(5);
/// Pause between looks at an object that is going.
const PAUSE: Duration = Duration::from_millis(250);
/// An adapter that has no room has it when its calls end, which may take minutes.
const BUSY: Patience = Patience { budget: Duration::from_secs(300), tries: 1000 };

/// Carries out the adapter steps of one plan.
pub(crate) struct ByAdapter {
    pub(crate) plan: Arc<Plan>,
    pub(crate) run_id: String,
    /// By lane.
    pub(crate) clusters: Vec<Arc<Cluster>>,
    /// By lane; complete, and with nothing but the one cluster's access in them.
    pub(crate) kubeconfigs: Vec<String>,
    pub(crate) adapters: Arc<Adapters>,
    pub(crate) secrets: Arc<OfDesign>,
}

impl ByAdapter {
    pub(crate) async fn carry_out(&self, work: &plan::Adapter, order: &Order) -> Attempt {
        let removes = self.plan.operation == Operation::Undeploy;
        let adapter = self.adapters.at(&work.host, work.port);
        let left = order.deadline.saturating_duration_since(Instant::now());
        let kubeconfigs: Vec<_> = work.clusters.iter().map(|lane| self.kubeconfigs[lane.0 as usize].clone()).collect();
        let call = Call {
            protocol: work.protocol,
            removes,
            declaration: &work.declaration,
            kubeconfigs: &kubeconfigs,
            run_id: &self.run_id,
            step_id: &self.plan.steps[order.step.0 as usize].id,
            deadline: order.deadline - (left / LOOK_SHARE).min(LONGEST_LOOK),
            stop: &order.stop,
            hindrance: &|| self.lock_lost(work),
            note: OnceLock::new(),
        };
        let said = adapter.call(&call).await;
        let acted = !matches!(
            said,
            Err(Error::Unreachable { .. }
                | Error::TooLarge { .. }
                | Error::Busy { .. }
                | Error::Stopped { .. }
                | Error::Declaration(_))
        );
        if !removes && said.is_ok() {
            self.await_definition(work, &order.stop, order.deadline).await;
        }
        // Only an adapter that says it removed something is given the time that going takes.
        let until = if removes && said.is_ok() { order.deadline.min(Instant::now() + GOING) } else { Instant::now() };
        let looks = work.clusters.iter().filter(|_| acted).map(|&lane| async move {
            let cluster = &self.clusters[lane.0 as usize];
            Look { lane, cluster: cluster.name.clone(), seen: self.look(cluster, work, until, order.deadline).await }
        });
        let looks = join_all(looks).await;
        let (result, mut warnings) = decide(removes, adapter.address(), &said, &looks);
        warnings.extend(call.note.into_inner());
        let mut checked: Vec<_> = looks.iter().map(|look| look.account(removes, &self.plan.design.id)).collect();
        if self.plan.options.wait_until_ready && !removes && result.is_ok() {
            order.progress.written();
            join_all(checked.iter_mut().map(|checked| self.until_ready(work, checked, order))).await;
        }
        Attempt {
            result: result.map(|change| self.done(work, change)),
            sent: u32::from(acted),
            took: None,
            warnings,
            checked,
        }
    }

    /// Why the adapter must not write to the clusters any more, if one of them may be another run's by now (case 261).
    fn lock_lost(&self, work: &plan::Adapter) -> Option<String> {
        let mut clusters = work.clusters.iter().map(|lane| &self.clusters[lane.0 as usize]);
        clusters.find(|cluster| !cluster.may_be_written()).map(|cluster| verdict::lock_lost(&cluster.name))
    }

    /// What follows a definition could not be written before it is served (D16). Whether it is, the look tells.
    async fn await_definition(&self, work: &plan::Adapter, stop: &CancellationToken, by: Instant) {
        let Some(head) = work.object.as_ref().map(|object| &object.head).filter(|head| head.is_definition()) else {
            return;
        };
        let by = by.min(Instant::now() + LONGEST_LOOK);
        let waits = work.clusters.iter().map(|lane| {
            let cluster = &self.clusters[lane.0 as usize];
            definition::served(cluster, &head.api_version, &head.metadata.name, stop, by)
        });
        join_all(waits).await;
    }

    /// Waits until the object is ready on the cluster where it was seen, as it does for what it writes itself (D16).
    async fn until_ready(&self, work: &plan::Adapter, checked: &mut Checked, order: &Order) {
        let cluster = &self.clusters[checked.lane.0 as usize];
        let (Some(object), UnitOutcome::Succeeded) = (&work.object, checked.outcome) else { return };
        let subject = self.subject(cluster, object);
        let since = Instant::now();
        let Ok(resource) = cluster.find(subject.api_version, subject.kind, since, order.deadline).await else { return };
        let awaited = Awaited { subject, resource: &resource, design_id: &self.plan.design.id, written: None };
        let report = readiness::until_ready(cluster, awaited, &order.stop, order.deadline).await;
        checked.readiness = Some(Ready::masked(report, &Secrets::around(&object.manifest, &self.secrets)));
    }

    fn subject<'a>(&'a self, cluster: &'a Cluster, object: &'a plan::Direct) -> Subject<'a> {
        let head = &object.head;
        Subject {
            cluster: &cluster.name,
            api_version: &head.api_version,
            kind: &head.kind,
            namespace: head.metadata.namespace.as_deref().unwrap_or(&self.plan.options.default_namespace),
            name: &head.metadata.name,
            kind_in_design: false,
            namespace_in_design: false,
        }
    }

    async fn look(&self, cluster: &Cluster, work: &plan::Adapter, until: Instant, by: Instant) -> Seen {
        let Some(object) = &work.object else {
            return Seen::Unknown("the component is not a Kubernetes object".into());
        };
        let subject = self.subject(cluster, object);
        loop {
            let seen = cluster.look(&subject, &self.plan.design.id, by).await;
            let next = Instant::now() + PAUSE;
            if !matches!(seen, Seen::There { .. }) || next > until {
                return seen;
            }
            sleep_until(next).await;
        }
    }

    fn done(&self, work: &plan::Adapter, change: Option<v1::Change>) -> Done {
        let object = work.object.as_ref().map(|object| ObjectRef {
            api_version: object.head.api_version.clone(),
            kind: object.head.kind.clone(),
            namespace: object.head.metadata.namespace.clone().unwrap_or_default(),
            name: object.head.metadata.name.clone(),
            ..Default::default()
        });
        Done { change: change.unwrap_or_default(), object, diff: Vec::new(), readiness: None, shared_with: None }
    }
}

/// What was seen on one cluster.
struct Look {
    lane: crate::schedule::Lane,
    cluster: String,
    seen: Seen,
}

impl Look {
    /// What the cluster holds, in words.
    fn tell(&self) -> String {
        let cluster = &self.cluster;
        match &self.seen {
            Seen::There { ours: true, .. } => format!("cluster {cluster} holds it"),
            Seen::There { ours: false, .. } => format!("cluster {cluster} holds one without the design's mark"),
            Seen::Absent => format!("cluster {cluster} does not hold it"),
            Seen::Unknown(why) => format!("what cluster {cluster} holds is not known: {why}"),
        }
    }

    /// The cluster's own line in the account.
    fn account(&self, removes: bool, design_id: &str) -> Checked {
        let (outcome, change, why) = match (&self.seen, removes) {
            (Seen::There { ours: true, since, .. }, false) => (UnitOutcome::Succeeded, changed(*since), None),
            (Seen::There { ours: false, .. }, false) => {
                let why = format!("{}, {design_id}", self.tell());
                (UnitOutcome::Indeterminate, None, Some((Reason::NotOurs, why)))
            }
            (Seen::Absent, false) => (UnitOutcome::Failed, None, Some((Reason::NotFound, self.tell()))),
            (Seen::There { .. }, true) => (UnitOutcome::Failed, None, Some((Reason::AdapterFailed, self.tell()))),
            (Seen::Absent, true) => (UnitOutcome::Succeeded, Some(v1::Change::Removed), None),
            (Seen::Unknown(_), _) => (UnitOutcome::Indeterminate, None, Some((Reason::KindUnknown, self.tell()))),
        };
        let object = match &self.seen {
            Seen::There { object, .. } => Some(object.clone()),
            Seen::Absent | Seen::Unknown(_) => None,
        };
        let failure = why.map(|(reason, why)| Failure::new(reason, why));
        Checked { lane: self.lane, outcome, change, failure, object, readiness: None }
    }
}

fn changed(since: Option<bool>) -> Option<v1::Change> {
    since.map(|since| v1::Change::from(if since { Change::Configured } else { Change::Unchanged }))
}

/// The verdict on an adapter's work, from its word and from what was seen (D26).
fn decide(
    removes: bool,
    address: &str,
    said: &Result<Unmasked, Error>,
    looks: &[Look],
) -> (Result<Option<v1::Change>, Verdict>, Vec<String>) {
    let holds = || looks.iter().map(Look::tell).collect::<Vec<_>>().join("; ");
    let unknown = |reason, text: String| Verdict::Unknown(Failure::new(reason, text));
    let refused = |reason, text: String| Verdict::Refused(Failure::new(reason, text));
    let is_gone = |look: &Look| matches!(look.seen, Seen::Absent);
    let is_ours = |look: &Look| matches!(look.seen, Seen::There { ours: true, .. });
    let cannot_tell = |look: &Look| matches!(look.seen, Seen::Unknown(_));
    let (result, warnings) = match said {
        Ok(_)
            if looks.iter().any(cannot_tell)
                && looks
                    .iter()
                    .all(|look| cannot_tell(look) || if removes { is_gone(look) } else { is_ours(look) }) =>
        {
            let warning =
                format!("the adapter at {address} said OK, which could not be checked everywhere: {}", holds());
            (Ok(Some(v1::Change::Acknowledged)), vec![warning])
        }
        Ok(_) if removes && looks.iter().all(is_gone) => (Ok(Some(v1::Change::Removed)), Vec::new()),
        Ok(_) if removes => {
            let text = format!("the adapter at {address} said that it removed the component, but {}", holds());
            (Err(refused(Reason::AdapterFailed, text)), Vec::new())
        }
        Ok(_) if looks.iter().all(is_ours) => {
            let since = looks.iter().map(|look| match look.seen {
                Seen::There { since, .. } => since,
                Seen::Absent | Seen::Unknown(_) => None,
            });
            let since = since.reduce(|all, one| Some(all? || one?)).flatten();
            (Ok(changed(since)), Vec::new())
        }
        Ok(_) => {
            let text = format!("the adapter at {address} said OK, but {}", holds());
            (Err(unknown(Reason::AdapterFailed, text)), Vec::new())
        }
        Err(error @ Error::Unreachable { .. }) => {
            (Err(refused(Reason::AdapterUnreachable, error.to_string())), Vec::new())
        }
        Err(error @ Error::TooLarge { .. }) => (Err(refused(Reason::TooLarge, error.to_string())), Vec::new()),
        Err(error @ Error::Declaration(_)) => (Err(refused(Reason::ManifestInvalid, error.to_string())), Vec::new()),
        Err(error @ Error::Stopped { .. }) => (Err(refused(Reason::Cancelled, error.to_string())), Vec::new()),
        Err(error @ Error::Busy { .. }) => {
            let failure = Failure::new(Reason::Throttled, error.to_string());
            (Err(Verdict::Again { failure, after: None, patience: BUSY, lost: false }), Vec::new())
        }
        Err(error @ Error::Failed { .. }) => {
            (Err(refused(Reason::AdapterFailed, format!("{error}; {}", holds()))), Vec::new())
        }
        Err(error @ Error::Lost { .. }) => {
            // Only what was written since the run began can be this call's work.
            let is_new = |look: &Look| matches!(look.seen, Seen::There { ours: true, since: Some(true), .. });
            let proven = if removes { looks.iter().all(is_gone) } else { looks.iter().all(is_new) };
            if proven {
                let change = if removes { Change::Removed } else { Change::Configured };
                (Ok(Some(change.into())), vec![format!("{error}; {}", holds())])
            } else {
                (Err(unknown(Reason::AdapterTimeout, format!("{error}; {}", holds()))), Vec::new())
            }
        }
    };
    (result, warnings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Lane;

    fn looks(seen: Vec<Seen>) -> Vec<Look> {
        let name = |ix: usize| ["east", "west"][ix].to_owned();
        seen.into_iter().enumerate().map(|(ix, seen)| Look { lane: Lane(ix as u16), cluster: name(ix), seen }).collect()
    }

    fn there(ours: bool, since: Option<bool>) -> Seen {
        Seen::There { ours, since, object: ObjectRef::default() }
    }

    fn unknown() -> Seen {
        Seen::Unknown("no such kind".into())
    }

    fn judge(removes: bool, said: Result<Unmasked, Error>, seen: Vec<Seen>) -> Result<Option<v1::Change>, Verdict> {
        decide(removes, "mesh:1", &said, &looks(seen)).0
    }

    fn failed() -> Result<Unmasked, Error> {
        Err(Error::Failed { address: "mesh:1".into(), code: tonic::Code::Unknown, why: String::new() })
    }

    fn lost() -> Result<Unmasked, Error> {
        Err(Error::Lost { address: "mesh:1".into(), why: String::new() })
    }

    fn ok() -> Result<Unmasked, Error> {
        Ok(Unmasked::default())
    }

    #[test]
    fn ok_counts_only_with_the_object_there_and_marked() {
        let new = || there(true, Some(true));
        assert_eq!(judge(false, ok(), vec![new(), new()]), Ok(Some(v1::Change::Configured)));
        assert_eq!(judge(false, ok(), vec![there(true, Some(false))]), Ok(Some(v1::Change::Unchanged)));
        assert_eq!(judge(false, ok(), vec![there(true, None)]), Ok(None));
        assert!(matches!(judge(false, ok(), vec![new(), Seen::Absent]), Err(Verdict::Unknown(_))));
        assert!(matches!(judge(false, ok(), vec![there(false, Some(true))]), Err(Verdict::Unknown(_))));
    }

    #[test]
    fn ok_that_nobody_can_check_is_acknowledged() {
        assert_eq!(judge(false, ok(), vec![unknown(), unknown()]), Ok(Some(v1::Change::Acknowledged)));
        assert_eq!(judge(true, ok(), vec![unknown()]), Ok(Some(v1::Change::Acknowledged)));
        assert!(matches!(judge(false, ok(), vec![unknown(), Seen::Absent]), Err(Verdict::Unknown(_))));
        assert!(matches!(judge(false, ok(), vec![unknown(), there(false, None)]), Err(Verdict::Unknown(_))));
    }

    #[test]
    fn failure_stays_a_failure_and_says_what_each_cluster_holds() {
        let Err(Verdict::Refused(failure)) = judge(false, failed(), vec![there(true, Some(true)), Seen::Absent]) else {
            panic!("refused")
        };
        assert!(
            failure.message.contains("cluster east holds it; cluster west does not hold it"),
            "{}",
            failure.message
        );
    }

    #[test]
    fn lost_call_is_decided_by_the_look_alone() {
        assert_eq!(judge(false, lost(), vec![there(true, Some(true))]), Ok(Some(v1::Change::Configured)));
        for seen in [there(true, Some(false)), there(true, None), there(false, Some(true)), Seen::Absent, unknown()] {
            assert!(matches!(judge(false, lost(), vec![seen]), Err(Verdict::Unknown(_))));
        }
        assert_eq!(judge(true, lost(), vec![Seen::Absent]), Ok(Some(v1::Change::Removed)));
        assert!(matches!(judge(true, lost(), vec![there(true, None)]), Err(Verdict::Unknown(_))));
    }

    #[test]
    fn removal_that_left_something_failed() {
        assert_eq!(judge(true, ok(), vec![Seen::Absent, Seen::Absent]), Ok(Some(v1::Change::Removed)));
        assert!(matches!(judge(true, ok(), vec![Seen::Absent, there(true, None)]), Err(Verdict::Refused(_))));
    }
}
