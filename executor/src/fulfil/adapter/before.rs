//! The look before a call: whether the adapter may touch what is there (D19, L1), and whether there is anything to do (D18).

use std::sync::OnceLock;

use futures::future::join_all;
use serde_json::Value;
use switchyard_proto::v1::Existing;
use tokio::time::Instant;

use super::{ByAdapter, Task, judge::Judged};
use crate::{
    answers::{
        classify::{self, Verdict},
        failure::{Failure, Reason},
    },
    cluster::{
        Change, Cluster,
        discovery::Absence,
        look::{Place, Unseen},
        object::{Bare, DESIGN_LABEL, Found, METADATA_ONLY, Metadata},
        ownership::{self, Owner, owner},
        remove::{self, Examined, Removal},
    },
    core::{plan, schedule::UnitOutcome, target::ClusterIx},
    fulfil::Checked,
};

/// Whose object becomes the design's (L1).
#[derive(Clone)]
pub(super) enum Taken {
    /// It carried no design's mark.
    Unmarked,
    /// It belonged to the design with this id.
    From(String),
}

/// What one cluster holds before the call.
pub(super) enum Before {
    /// The component is no object, or its kind is not served: there is nothing to look at.
    NoObject,
    Absent,
    There {
        uid: String,
        resource_version: String,
        taken: Option<Taken>,
    },
    /// It belongs to the design with this id and is left as it is, which is no failure (L1).
    Shared(String),
    /// The adapter must not be called, or not now.
    Barred(Verdict),
}

impl Before {
    /// Whether there is nothing to do on the cluster.
    pub(super) fn is_idle(&self, removes: bool) -> bool {
        matches!(self, Self::Shared(_)) || (removes && matches!(self, Self::Absent))
    }

    /// The design that the object belongs to, where it is left as it is.
    pub(super) fn shared_with(&self) -> Option<&str> {
        match self {
            Self::Shared(other) => Some(other),
            _ => None,
        }
    }

    /// The cluster's own line in the account, where the adapter was not called for it.
    pub(super) fn account(&self, cluster: ClusterIx, removes: bool) -> Checked {
        let (outcome, change, failure) = match self {
            Self::Shared(_) => (UnitOutcome::Succeeded, Some(Change::Unchanged.into()), None),
            Self::Absent if removes => (UnitOutcome::Succeeded, Some(Change::Absent.into()), None),
            Self::Barred(Verdict::Unknown(failure)) => (UnitOutcome::Indeterminate, None, Some(failure.clone())),
            Self::Barred(Verdict::Refused(failure) | Verdict::Again { failure, .. }) => {
                (UnitOutcome::Failed, None, Some(failure.clone()))
            }
            Self::NoObject | Self::Absent | Self::There { .. } => {
                let text = "not attempted: another cluster kept the adapter from being called";
                (UnitOutcome::Cancelled, None, Some(Failure::new(Reason::Cancelled, text)))
            }
        };
        Checked { cluster, outcome, change, failure, object: None, readiness: None }
    }

    fn there(metadata: Metadata, taken: Option<Taken>) -> Self {
        let Metadata { uid, resource_version, .. } = metadata;
        Self::There { uid, resource_version, taken }
    }
}

/// What the step comes to if the adapter is not to be called at all.
pub(super) fn without_call(task: Task<'_>, before: &[(ClusterIx, Before)]) -> Option<Judged> {
    let barred = before.iter().filter_map(|(_, before)| match before {
        Before::Barred(verdict) => Some(verdict),
        Before::NoObject | Before::Absent | Before::There { .. } | Before::Shared(_) => None,
    });
    let is_final = |verdict: &&Verdict| matches!(verdict, Verdict::Refused(_));
    let Some(lead) = barred.clone().find(is_final).or_else(|| barred.clone().next()) else {
        let nothing_to_do = before.iter().all(|(_, before)| before.is_idle(task.removes));
        let shared = before.iter().all(|(_, before)| before.shared_with().is_some());
        let change = if shared { Change::Unchanged } else { Change::Absent };
        return nothing_to_do.then(|| Judged::done(change.into()));
    };
    let why: Vec<_> = barred.map(|verdict| verdict.failure().message.as_str()).collect();
    let message = format!("the adapter at {} was not called: {}", task.address, why.join("; "));
    Some(Judged::not(lead.clone().with_message(message)))
}

impl ByAdapter {
    /// Looks at what each cluster holds before the adapter is called.
    pub(super) async fn look_before(&self, task: Task<'_>, by: Instant) -> Vec<(ClusterIx, Before)> {
        let looks = task.work.clusters.iter().map(|&at| async move {
            let cluster = self.cluster(at);
            let before = match &task.work.object {
                None => Before::NoObject,
                Some(object) if task.removes => self.before_removal(cluster, object, task, by).await,
                Some(object) => self.before_write(cluster, object, by).await,
            };
            (at, before)
        });
        join_all(looks).await
    }

    async fn before_write(&self, cluster: &Cluster, object: &plan::Direct, by: Instant) -> Before {
        let subject = self.subject(cluster, object);
        let existing = self.plan.options.existing;
        let metadata = match cluster.look::<Bare>(&subject, METADATA_ONLY, by).await {
            Ok(Found::NotThere) => return Before::Absent,
            Ok(Found::There(Bare { metadata })) => metadata,
            // The adapter may bring the kind along, or be the only one that knows it.
            Err(Unseen::NotServed) => return Before::NoObject,
            Err(Unseen::Unreadable(verdict)) => return Before::Barred(verdict),
        };
        // Whatever is written to it goes with it (case 42).
        if metadata.deletion_timestamp.is_some() {
            return Before::Barred(classify::being_deleted(&subject));
        }
        let taken = match owner(&metadata, &self.plan.design.id) {
            Owner::Ours => None,
            Owner::Nobody if existing == Existing::RefuseUnmarked => {
                return Before::Barred(classify::unmarked(&subject));
            }
            Owner::Nobody => Some(Taken::Unmarked),
            Owner::Design(other) if existing == Existing::TakeOver => Some(Taken::From(other.to_owned())),
            Owner::Design(other) => return self.shared(cluster, object, other, by).await,
        };
        Before::there(metadata, taken)
    }

    /// What becomes of an object of another design: what many designs bring along is left as it is, if it is as asked.
    async fn shared(&self, cluster: &Cluster, object: &plan::Direct, other: &str, by: Instant) -> Before {
        let subject = self.subject(cluster, object);
        let refused = |differs: &[&str]| {
            let conflict = Failure::new(Reason::OwnedByDesign, "");
            Before::Barred(classify::owned_by_design(&subject, other, differs, conflict))
        };
        let may =
            object.head.is_namespace() || object.head.is_definition() || self.plan.options.existing == Existing::Share;
        if !may {
            return refused(&[]);
        }
        match cluster.look::<Value>(&subject, "application/json", by).await {
            Ok(Found::There(found)) => {
                let differs = self.differs(object, &ownership::without_marks(found));
                let differs: Vec<_> =
                    differs.iter().map(|field| field.path.as_str()).filter(|path| !is_mark(path)).collect();
                if differs.is_empty() { Before::Shared(other.to_owned()) } else { refused(&differs) }
            }
            Ok(Found::NotThere) => Before::Absent,
            Err(Unseen::NotServed) => Before::NoObject,
            Err(Unseen::Unreadable(verdict)) => Before::Barred(verdict),
        }
    }

    async fn before_removal(&self, cluster: &Cluster, object: &plan::Direct, task: Task<'_>, by: Instant) -> Before {
        let subject = self.subject(cluster, object);
        match cluster.locate(&subject, by).await {
            Ok(place) => self.examine(cluster, place, object, task, by).await,
            Err(Unseen::Unreadable(verdict)) => Before::Barred(verdict),
            Err(Unseen::NotServed) => match cluster.absence(subject.api_version, subject.kind, by).await {
                // Without its definition, which the design brings along, there is no object (D18). Any other kind may be
                // known to the adapter alone.
                Ok(Absence::Proven) if object.kind_by.is_some() => Before::Absent,
                Ok(Absence::Proven) => Before::NoObject,
                Ok(Absence::Elsewhere(api_version, resource)) => {
                    self.examine(cluster, Place::new(&subject, &api_version, resource), object, task, by).await
                }
                Err(why) => Before::Barred(classify::discovery_failed(&subject, &why)),
            },
        }
    }

    async fn examine(
        &self,
        cluster: &Cluster,
        place: Place<'_>,
        object: &plan::Direct,
        task: Task<'_>,
        by: Instant,
    ) -> Before {
        let first_seen = OnceLock::new();
        let removal = Removal {
            subject: place.subject,
            resource: &place.resource,
            design_id: &self.plan.design.id,
            leaves_shared: self.plan.options.existing == Existing::Share,
            manifest: &object.manifest,
            delete_foreign: self.plan.options.delete_foreign,
            everywhere: &self.everywhere,
            attempt: task.order.attempt,
            lost_before: false,
            first_seen: &first_seen,
            stop: &task.order.stop,
        };
        match remove::examine(cluster, &removal, by).await {
            Ok(Examined::NotThere) => Before::Absent,
            Ok(Examined::Removable(object)) => Before::there(object.metadata, None),
            Ok(Examined::Shared { with, .. }) => Before::Shared(with.into()),
            Err(verdict) => Before::Barred(verdict),
        }
    }
}

/// The mark of the design itself differs, whatever else is equal.
fn is_mark(path: &str) -> bool {
    path.contains(DESIGN_LABEL)
}
