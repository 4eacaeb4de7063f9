//! What becomes of an object that is there already and is not, or not only, of the design (D13, L1).
//!
//! The straight path asks nothing: whether somebody else has a claim the API server says itself, by a conflict over fields.
//! Only then is the object read.

use switchyard_proto::v1::Existing;

use super::{Direct, Task};
use crate::{
    answers::{
        classify::{self, Verdict},
        failure::Failure,
    },
    cluster::{
        apply::{self, Applied, Marks, Patch},
        object::{self, Bare, Found, METADATA_ONLY, Metadata},
        ownership::{Conflict, Owner, owner},
    },
    core::kind,
};

/// Fields that are named when an object of another design is not as asked.
const NAMED: usize = 5;

/// What a conflict over fields comes to, if it is no failure.
pub(super) enum Settled {
    /// The request is repeated with force.
    Force {
        /// The design that the object is taken from, if it has one.
        from: Option<String>,
    },
    /// The object stays as it is: another design has it, and it is as asked.
    Shared { applied: Applied, with: Box<str> },
}

impl Direct {
    /// Decides what a conflict over fields comes to. `force_conflicts` takes fields from other managers, and only
    /// EXISTING_TAKE_OVER takes an object from another design.
    pub(super) async fn settle(&self, task: &Task<'_>, failure: Failure) -> Result<Settled, Verdict> {
        let Some(conflict) = Conflict::of(&failure.causes) else { return Err(Verdict::Refused(failure)) };
        let forces = self.plan.options.force_conflicts || self.is_of_an_adapter(task.order);
        let takes_over = self.plan.options.existing == Existing::TakeOver;
        let other = match conflict.over_the_mark || !conflict.designs.is_empty() {
            true => self.other_design(task, &conflict, &failure).await?,
            false => None,
        };
        match other {
            None if forces || (takes_over && !conflict.others) => Ok(Settled::Force { from: None }),
            Some(_) if takes_over && (forces || !conflict.others) => Ok(Settled::Force { from: other }),
            None => Err(Verdict::Refused(failure)),
            // It would take fields from others as well, which was not asked for.
            Some(_) if takes_over => Err(Verdict::Refused(failure)),
            Some(other) if self.shares(task) => self.share(task, other, failure).await,
            Some(other) => Err(classify::owned_by_design(&task.subject, &other, &[], failure)),
        }
    }

    /// The other design that the object belongs to. Where it carries no mark at all, a design that owns fields counts.
    async fn other_design(
        &self,
        task: &Task<'_>,
        conflict: &Conflict<'_>,
        failure: &Failure,
    ) -> Result<Option<String>, Verdict> {
        let Some(metadata) = read(task).await? else {
            return Err(classify::gone_meanwhile(failure.clone()));
        };
        if metadata.deletion_timestamp.is_some() {
            return Err(classify::being_deleted(&task.subject));
        }
        Ok(match owner(&metadata, &self.plan.design.id) {
            Owner::Ours => None,
            Owner::Design(other) => Some(other.to_owned()),
            Owner::Nobody => conflict.designs.first().map(|&design| design.to_owned()),
        })
    }

    /// Whether an object of another design that is as asked will do: always for what many designs bring along.
    fn shares(&self, task: &Task<'_>) -> bool {
        let subject = &task.subject;
        kind::is_namespace(subject.api_version, subject.kind)
            || kind::is_definition(subject.api_version, subject.kind)
            || self.plan.options.existing == Existing::Share
    }

    /// Has the API server say whether the object is as asked, marks aside: what it would change is what is not.
    async fn share(&self, task: &Task<'_>, other: String, conflict: Failure) -> Result<Settled, Verdict> {
        let patch = Patch { force: true, ..self.patch(task) };
        let rehearsed = apply::rehearse(task.cluster, &patch, Marks::Aside, task.order.answer_by).await.result;
        let rehearsed = match rehearsed {
            Ok(rehearsed) => rehearsed,
            Err(Verdict::Refused(_)) => return Err(classify::owned_by_design(&task.subject, &other, &[], conflict)),
            Err(verdict) => return Err(verdict),
        };
        if rehearsed.diff.is_empty() {
            return Ok(Settled::Shared { applied: rehearsed.applied, with: other.into() });
        }
        let differs: Vec<_> = rehearsed.diff.iter().take(NAMED).map(|field| field.path.as_str()).collect();
        Err(classify::owned_by_design(&task.subject, &other, &differs, conflict))
    }

    /// Refuses an object that is there and carries no design's mark, if such are not to be adopted. It is read before the write,
    /// unless a list by the mark has shown it (L3).
    pub(super) async fn refuse_unmarked(&self, task: &Task<'_>) -> Result<(), Verdict> {
        if self.plan.options.existing != Existing::RefuseUnmarked || task.listed.is_some() {
            return Ok(());
        }
        match Box::pin(read(task)).await? {
            Some(metadata) if owner(&metadata, &self.plan.design.id) == Owner::Nobody => {
                Err(classify::unmarked(&task.subject))
            }
            _ => Ok(()),
        }
    }

    /// Whether the object that was just changed had been there without a design's mark. Asked only where others have written it
    /// too, and answered by the state right before the write, which API servers keep for some minutes; not known is no.
    pub(super) async fn was_adopted(&self, task: &Task<'_>, applied: &Applied) -> bool {
        let before = apply::before(task.cluster, &task.subject, &task.resource, applied, task.order.answer_by).await;
        before.is_some_and(|before| owner(&before, &self.plan.design.id) == Owner::Nobody)
    }
}

/// What is said of an object that was there before and carried no design's mark.
pub(super) const ADOPTED: &str =
    "it was there before and carried no design's mark; it belongs to the design now, and goes when the design goes";

/// What is said of an object that another design had.
pub(super) fn taken_over(design: &str) -> String {
    format!("it belonged to design {design} and was taken over")
}

async fn read(task: &Task<'_>) -> Result<Option<Metadata>, Verdict> {
    let Task { cluster, order, subject, resource, .. } = task;
    match object::read::<Bare>(cluster, subject, resource, METADATA_ONLY, order.answer_by).await? {
        Found::There(Bare { metadata }) => Ok(Some(metadata)),
        Found::NotThere => Ok(None),
    }
}
