//! The verdict on a request that has no answer.

use std::time::Duration;

use super::{LOST, ODD, Subject, UNREACHABLE, Verdict, name};
use crate::answers::failure::{Failure, Reason};

/// What stood in the way of an answer, as the types of the errors have it; their texts are for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// Nobody listens at the address.
    Refused,
    /// No address is known for the name.
    NotResolved,
    /// One side does not accept the other's certificate.
    Certificate,
    /// It took too long.
    Timeout,
    /// The connection was there and ended.
    Reset,
    /// The installation does not let requests lead there.
    Denied,
    /// Something else, such as credentials that could not be made.
    #[default]
    Other,
}

impl Obstacle {
    /// Whether a connection in another version of HTTP, or one right after, would meet the same end.
    pub(crate) fn stays(self) -> bool {
        match self {
            Self::Refused | Self::NotResolved | Self::Certificate | Self::Timeout | Self::Denied => true,
            Self::Reset | Self::Other => false,
        }
    }

    /// Whether it will still be there when the cluster has come back.
    fn is_final(self) -> bool {
        match self {
            Self::Certificate | Self::Denied => true,
            Self::Refused | Self::NotResolved | Self::Timeout | Self::Reset | Self::Other => false,
        }
    }
}

/// A request that has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// Nothing was sent, because the run cannot prove that it holds its lock on the cluster.
    Fenced,
    /// No connection was made, so nothing was sent.
    NotSent(Obstacle, String),
    /// The connection broke after the request may have been sent.
    Lost(Obstacle, String),
    /// No complete answer within this time.
    Silent(Duration),
}

/// The verdict on a request without an answer (cases 50, 51).
pub(crate) fn unanswered(subject: &Subject<'_>, what: &Unanswered) -> Verdict {
    let Subject { cluster, .. } = subject;
    let (reason, message, patience, lost) = match what {
        Unanswered::Fenced => return Verdict::Refused(Failure::new(Reason::Cancelled, lock_lost(cluster))),
        Unanswered::NotSent(obstacle, why) if obstacle.is_final() => {
            let text = format!("cluster {cluster} cannot be reached: {why}; nothing was sent");
            return Verdict::Refused(Failure::new(Reason::Unreachable, text));
        }
        Unanswered::NotSent(_, why) => (
            Reason::Unreachable,
            format!("cluster {cluster} cannot be reached: {why}; nothing was sent"),
            UNREACHABLE,
            false,
        ),
        Unanswered::Lost(_, why) => (
            Reason::AnswerLost,
            format!("the answer of cluster {cluster} was lost ({why}); the object may have been applied"),
            LOST,
            true,
        ),
        Unanswered::Silent(limit) => (
            Reason::Timeout,
            format!("no answer from cluster {cluster} in {limit:.1?}; the object may have been applied"),
            LOST,
            true,
        ),
    };
    Verdict::Again { failure: Failure::new(reason, message), after: None, patience, lost }
}

/// Why nothing is written to a cluster whose lock may have gone to another run (case 261).
pub(crate) fn lock_lost(cluster: &str) -> String {
    format!("nothing was written to cluster {cluster}: the run can no longer prove that it holds its lock there")
}

/// The verdict on a read without an answer: nothing can have been changed by it.
pub(crate) fn unread(subject: &Subject<'_>, why: &Unanswered) -> Verdict {
    let (reason, patience) = match why {
        Unanswered::Fenced | Unanswered::NotSent(..) => (Reason::Unreachable, UNREACHABLE),
        Unanswered::Lost(..) | Unanswered::Silent(_) => (Reason::Timeout, ODD),
    };
    let text = format!("cluster {} did not say what {} is: {why}", subject.cluster, name(subject));
    Verdict::Again { failure: Failure::new(reason, text), after: None, patience, lost: false }
}
