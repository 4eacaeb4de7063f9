//! The look after a call: what each cluster holds (D26).

use futures::future::join_all;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Duration, Instant, sleep_until};

use super::{
    ByAdapter, Task,
    before::{Before, Taken},
};
use crate::{
    adapter::{Error, oam},
    answers::{
        classify::Subject,
        failure::{Failure, Reason},
    },
    cluster::{
        Change, Cluster,
        look::Unseen,
        object::{Found, Metadata},
        ownership::{Owner, owner},
        remove::{self, Object},
    },
    core::{plan, schedule::UnitOutcome, target::ClusterIx},
    fulfil::{Checked, ObjectId},
    mask::{Secrets, Unmasked},
    present::{compare, diff::FieldDiff},
};

/// How long an object may take to begin to go after an adapter said that it removed it.
const GOING: Duration = Duration::from_secs(5);
/// How long an object that is being deleted may take, which its finalizers decide.
const GONE: Duration = Duration::from_secs(60);
/// Pause between looks at an object that is going.
const PAUSE: Duration = Duration::from_millis(250);
/// Fields that a message names; the rest is counted.
const TOLD: usize = 5;
/// Longest value in a message, in bytes.
const LONGEST_VALUE: usize = 120;

/// What one cluster holds after the call.
pub(super) struct Look {
    pub(super) at: ClusterIx,
    pub(super) cluster: String,
    pub(super) seen: Seen,
}

pub(super) enum Seen {
    There(Box<There>),
    /// Gone, or never made.
    Absent,
    /// Nobody can tell, and why.
    Unknown(String),
}

/// An object that is there.
pub(super) struct There {
    /// Whose it is, if it is not this design's: the reason, and a word for it.
    pub(super) foreign: Option<(Reason, String)>,
    /// What became of it since the look before the call.
    pub(super) change: Change,
    /// Declared fields that it does not hold as declared, masked.
    pub(super) differs: Vec<FieldDiff>,
    /// Why it is still there, if it is being deleted.
    pub(super) lingers: Option<String>,
    pub(super) object: ObjectId,
}

impl There {
    fn is_as_declared(&self) -> bool {
        self.foreign.is_none() && self.lingers.is_none() && self.differs.is_empty()
    }
}

impl Look {
    pub(super) fn is_absent(&self) -> bool {
        matches!(self.seen, Seen::Absent)
    }

    pub(super) fn is_unknown(&self) -> bool {
        matches!(self.seen, Seen::Unknown(_))
    }

    /// What became of this design's object, if it is there and as declared.
    pub(super) fn as_declared(&self) -> Option<Change> {
        match &self.seen {
            Seen::There(there) if there.is_as_declared() => Some(there.change),
            Seen::There(_) | Seen::Absent | Seen::Unknown(_) => None,
        }
    }

    /// What the cluster holds, in words.
    pub(super) fn tell(&self) -> String {
        let cluster = &self.cluster;
        match &self.seen {
            Seen::There(there) => match (&there.foreign, &there.lingers) {
                (_, Some(lingers)) => format!("cluster {cluster} holds it: {lingers}"),
                (Some((_, what)), None) => format!("cluster {cluster} holds {what}"),
                (None, None) if there.differs.is_empty() => format!("cluster {cluster} holds it"),
                (None, None) => {
                    format!("cluster {cluster} holds it otherwise than declared: {}", fields(&there.differs))
                }
            },
            Seen::Absent => format!("cluster {cluster} does not hold it"),
            Seen::Unknown(why) => format!("what cluster {cluster} holds is not known: {why}"),
        }
    }

    /// The cluster's own line in the account. `otherwise` is the outcome where the object is not as declared.
    pub(super) fn account(&self, removes: bool, otherwise: UnitOutcome) -> Checked {
        let because = |reason| Some(Failure::new(reason, self.tell()));
        let (outcome, change, failure) = match (&self.seen, removes) {
            (Seen::There(there), true) => {
                let reason = if there.lingers.is_some() { Reason::FinalizersPending } else { Reason::AdapterFailed };
                (UnitOutcome::Failed, None, because(reason))
            }
            (Seen::Absent, true) => (UnitOutcome::Succeeded, Some(Change::Removed.into()), None),
            (Seen::There(there), false) if there.is_as_declared() => {
                (UnitOutcome::Succeeded, Some(there.change.into()), None)
            }
            (Seen::There(there), false) => match (&there.foreign, &there.lingers) {
                (_, Some(_)) => (UnitOutcome::Indeterminate, None, because(Reason::BeingDeleted)),
                (Some((reason, _)), None) => (UnitOutcome::Indeterminate, None, because(*reason)),
                (None, None) => (otherwise, None, because(Reason::AdapterFailed)),
            },
            (Seen::Absent, false) => (UnitOutcome::Failed, None, because(Reason::NotFound)),
            (Seen::Unknown(_), _) => (UnitOutcome::Indeterminate, None, because(Reason::KindUnknown)),
        };
        let object = match &self.seen {
            Seen::There(there) => Some(there.object.clone()),
            Seen::Absent | Seen::Unknown(_) => None,
        };
        Checked { cluster: self.at, outcome, change, failure, object, readiness: None }
    }

    /// What to know of an object that was there before and has become the design's (L1).
    pub(super) fn taken(&self, before: &[(ClusterIx, Before)]) -> Option<String> {
        self.as_declared()?;
        let (_, before) = before.iter().find(|(at, _)| *at == self.at)?;
        let Before::There { taken: Some(taken), .. } = before else { return None };
        let cluster = &self.cluster;
        Some(match taken {
            Taken::Unmarked => {
                format!("cluster {cluster} held it before without any design's mark; it goes when the design goes")
            }
            Taken::From(other) => format!("on cluster {cluster} it belonged to design {other} and was taken over"),
        })
    }
}

/// The fields that differ, in words.
fn fields(differs: &[FieldDiff]) -> String {
    let value = |value: &str| match value {
        "" => "absent".to_owned(),
        value => switchyard_service::status::capped(value, LONGEST_VALUE),
    };
    let told = differs.iter().take(TOLD).map(|FieldDiff { path, before, after }| {
        format!("{path} is {}, declared as {}", value(&before.text), value(&after.text))
    });
    let mut text = told.collect::<Vec<_>>().join(", ");
    if differs.len() > TOLD {
        text.push_str(&format!(", and {} more", differs.len() - TOLD));
    }
    text
}

impl ByAdapter {
    /// Looks at what each cluster holds that the adapter was called for.
    pub(super) async fn look_after(
        &self,
        task: Task<'_>,
        said: &Result<Unmasked, Error>,
        called: &[&(ClusterIx, Before)],
    ) -> Vec<Look> {
        if !task.removes && said.is_ok() {
            self.await_definition(task.work, &task.order.stop, task.order.deadline).await;
        }
        let looks = called.iter().map(|(at, before)| async move {
            let cluster = self.cluster(*at);
            let seen = match &task.work.object {
                None => Seen::Unknown("the component is not a Kubernetes object".into()),
                Some(object) if task.removes => self.going(cluster, object, task, before, said.is_ok()).await,
                Some(object) => self.written(cluster, object, before, task.order.deadline).await,
            };
            Look { at: *at, cluster: cluster.name.clone(), seen }
        });
        join_all(looks).await
    }

    /// Looks whether the object has gone. Where the adapter says that it removed it, it is given the time that going takes.
    async fn going(
        &self,
        cluster: &Cluster,
        object: &plan::Direct,
        task: Task<'_>,
        before: &Before,
        said_ok: bool,
    ) -> Seen {
        let subject = self.subject(cluster, object);
        let (began, deadline) = (Instant::now(), task.order.deadline);
        loop {
            let look = cluster.look_in_any_version::<Object>(&subject, remove::accept(&subject), deadline).await;
            let object = match look {
                Ok(Some(Found::There(object))) if !is_another(&object.metadata, before) => object,
                // It is gone; another one may be in its place (D18).
                Ok(Some(Found::There(_) | Found::NotThere)) => return Seen::Absent,
                // The kind went with its definition, and the object with it.
                Ok(None) if matches!(before, Before::There { .. }) => return Seen::Absent,
                Ok(None) => return unknown(&subject, Unseen::NotServed),
                Err(verdict) => return unknown(&subject, Unseen::Unreadable(verdict)),
            };
            let is_deleted = object.metadata.deletion_timestamp.is_some();
            let limit = if is_deleted {
                GONE
            } else if said_ok {
                GOING
            } else {
                Duration::ZERO
            };
            let next = Instant::now() + PAUSE;
            if next > (began + limit).min(deadline) || task.order.stop.is_cancelled() {
                let lingers = is_deleted.then(|| remove::lingering(cluster, &object));
                return self.there(&subject, object.metadata, before, Vec::new(), lingers);
            }
            if is_deleted {
                task.order.progress.written();
            }
            sleep_until(next).await;
        }
    }

    /// Looks whether the object is there as it was declared.
    async fn written(&self, cluster: &Cluster, object: &plan::Direct, before: &Before, by: Instant) -> Seen {
        let subject = self.subject(cluster, object);
        let found: Value = match cluster.look(&subject, "application/json", by).await {
            Ok(Found::There(found)) => found,
            Ok(Found::NotThere) => return Seen::Absent,
            Err(unseen) => return unknown(&subject, unseen),
        };
        match Metadata::deserialize(&found["metadata"]) {
            Ok(metadata) => {
                let lingers = metadata.deletion_timestamp.as_ref().map(|since| format!("being deleted since {since}"));
                self.there(&subject, metadata, before, self.differs(object, &found), lingers)
            }
            Err(_) => Seen::Unknown("what was answered is not an object".into()),
        }
    }

    /// Declared fields that are not as declared, masked.
    pub(super) fn differs(&self, object: &plan::Direct, found: &Value) -> Vec<FieldDiff> {
        let Ok(declared) = serde_json::from_slice::<Value>(&object.manifest) else { return Vec::new() };
        let differs = compare::differences(&declared, found);
        let as_spec = || oam::as_spec(&declared).is_some_and(|object| compare::differences(&object, found).is_empty());
        if differs.is_empty() || as_spec() {
            return Vec::new();
        }
        let secrets = Secrets::around(&object.manifest, &self.secrets).and(Secrets::of_value(found));
        compare::tell(&differs, |text| secrets.mask(text))
    }

    fn there(
        &self,
        subject: &Subject<'_>,
        metadata: Metadata,
        before: &Before,
        differs: Vec<FieldDiff>,
        lingers: Option<String>,
    ) -> Seen {
        let change = match before {
            Before::There { uid, resource_version, .. } if *uid == metadata.uid => {
                if *resource_version == metadata.resource_version { Change::Unchanged } else { Change::Configured }
            }
            Before::NoObject | Before::Absent | Before::There { .. } | Before::Shared(_) | Before::Barred(_) => {
                Change::Created
            }
        };
        let foreign = match owner(&metadata, &self.plan.design.id) {
            Owner::Ours => None,
            Owner::Nobody => Some((Reason::NotOurs, "one without the design's mark".to_owned())),
            Owner::Design(other) => Some((Reason::OwnedByDesign, format!("one of design {other}"))),
        };
        let object = ObjectId {
            api_version: subject.api_version.into(),
            kind: subject.kind.into(),
            namespace: metadata.namespace,
            name: metadata.name,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
        };
        Seen::There(Box::new(There { foreign, change, differs, lingers, object }))
    }
}

fn is_another(metadata: &Metadata, before: &Before) -> bool {
    matches!(before, Before::There { uid, .. } if *uid != metadata.uid)
}

fn unknown(subject: &Subject<'_>, unseen: Unseen) -> Seen {
    Seen::Unknown(match unseen {
        Unseen::NotServed => format!("kind {} of {} is not served", subject.kind, subject.api_version),
        Unseen::Unreadable(verdict) => verdict.failure().message.clone(),
    })
}
