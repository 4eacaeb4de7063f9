//! The verdict on a request that has no answer.

use std::time::Duration;

use super::{LOST, ODD, Subject, UNREACHABLE, Verdict, name};
use crate::failure::{Failure, Reason};

/// A request that has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// Nothing was sent, because the run cannot prove that it holds its lock on the cluster.
    Fenced,
    /// No connection was made, so nothing was sent.
    NotSent(String),
    /// The connection broke after the request may have been sent.
    Lost(String),
    /// No complete answer within this time.
    Silent(Duration),
}

/// The verdict on a request without an answer (cases 50, 51).
pub(crate) fn unanswered(subject: &Subject<'_>, what: &Unanswered) -> Verdict {
    let Subject { cluster, .. } = subject;
    let (reason, message, patience, lost) = match what {
        Unanswered::Fenced => return Verdict::Refused(Failure::new(Reason::Cancelled, lock_lost(cluster))),
        Unanswered::NotSent(why) => (
            Reason::Unreachable,
            format!("cluster {cluster} cannot be reached: {why}; nothing was sent"),
            UNREACHABLE,
            false,
        ),
        Unanswered::Lost(why) => (
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
        Unanswered::Fenced | Unanswered::NotSent(_) => (Reason::Unreachable, UNREACHABLE),
        Unanswered::Lost(_) | Unanswered::Silent(_) => (Reason::Timeout, ODD),
    };
    let text = format!("cluster {} did not say what {} is: {why}", subject.cluster, name(subject));
    Verdict::Again { failure: Failure::new(reason, text), after: None, patience, lost: false }
}
