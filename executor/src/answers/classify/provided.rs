//! The verdict in the light of what the design itself brings along.

use super::{Subject, Verdict};
use crate::answers::failure::{Failure, Reason};

/// A component of the design that makes this one possible: it defines its kind, is its namespace, or is referred to by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Provider<'a> {
    pub(crate) component: &'a str,
    pub(crate) state: ProviderState,
}

/// How far a provider has come on the cluster in question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProviderState {
    /// It succeeded, or may yet.
    Sound,
    /// It failed, or would.
    Failed,
    /// It ended without success and without a failure of its own: withheld, cancelled, or nobody knows.
    Missing,
}

/// Something that a component refers to by name, and the component that is it.
#[derive(Clone, Debug)]
pub(crate) struct Referred<'a> {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) by: Provider<'a>,
}

impl Referred<'_> {
    /// Whether the API server's words miss this very one.
    fn is_missed(&self, message: &str) -> bool {
        let Self { kind, name, .. } = self;
        match kind.as_str() {
            "ServiceAccount" => message.contains(&format!("serviceaccount \"{name}\"")),
            "RuntimeClass" => message.contains(&format!("RuntimeClass \"{name}\"")),
            "PriorityClass" => message.contains(&format!("PriorityClass with name {name} ")),
            _ => message.contains(name.as_str()),
        }
    }
}

/// What the design itself brings along for a component.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Provided<'a> {
    pub(crate) kind: Option<Provider<'a>>,
    pub(crate) namespace: Option<Provider<'a>>,
    /// What it refers to by name.
    pub(crate) referred: &'a [Referred<'a>],
    /// Whether a chart is installed before the component, which may bring its kind or its namespace.
    pub(crate) chart: bool,
    /// Whether an adapter is asked for it, which may bring its kind or its namespace along, or be the only one that knows them.
    pub(crate) adapter: bool,
    /// Whether the run creates a missing namespace by itself.
    pub(crate) creates_namespaces: bool,
}

/// The verdict in the light of what the design brings along: nothing is waited for that will not come.
pub(crate) fn in_light_of(provided: Provided<'_>, verdict: Verdict, subject: &Subject<'_>) -> Verdict {
    let Some(Missed { by: Some(Provider { component, state }), what }) = missed(&provided, &verdict, subject) else {
        return verdict;
    };
    let how = match state {
        ProviderState::Sound => return verdict,
        ProviderState::Failed => "failed",
        ProviderState::Missing => "did not succeed",
    };
    let message = format!("{what} component {component}, which {how} on cluster {}", subject.cluster);
    refused(verdict.failure().clone(), message)
}

/// The same in a dry run: what fails only because nothing was created before it cannot be told (D20).
pub(crate) fn in_light_of_rehearsal(provided: Provided<'_>, verdict: Verdict, subject: &Subject<'_>) -> Verdict {
    let failure = verdict.failure().clone();
    let Some(Missed { by, what }) = missed(&provided, &verdict, subject) else {
        // A webhook with side effects says so instead of deciding (case 83).
        let undecided = failure.message.contains("does not support dry run");
        return if undecided { cannot_tell(&failure, &failure.message) } else { verdict };
    };
    match by {
        Some(Provider { component, state: ProviderState::Failed }) => {
            let message =
                format!("{what} component {component}, which would fail itself on cluster {}", subject.cluster);
            refused(failure, message)
        }
        Some(Provider { component, .. }) => cannot_tell(&failure, &format!("{what} component {component}")),
        None if failure.reason == Reason::NamespaceNotFound && provided.creates_namespaces => {
            cannot_tell(&failure, &format!("namespace {} would be created first", subject.namespace))
        }
        None if provided.chart => {
            cannot_tell(&failure, &format!("{}; the chart that it needs would be installed first", failure.message))
        }
        None if provided.adapter && failure.reason != Reason::NotFound => {
            cannot_tell(&failure, &format!("{}; its adapter may see to that", failure.message))
        }
        None => Verdict::Refused(failure),
    }
}

/// What an object lacks on a cluster.
struct Missed<'a> {
    /// The component that brings it along, if one does.
    by: Option<Provider<'a>>,
    /// What it is, as the first words of a sentence that ends with the component; empty without one.
    what: String,
}

/// What a verdict says to be missing, if it says that of something which a design can bring along.
fn missed<'a>(provided: &Provided<'a>, verdict: &Verdict, subject: &Subject<'_>) -> Option<Missed<'a>> {
    let failure = verdict.failure();
    let Subject { kind, namespace, .. } = subject;
    Some(match failure.reason {
        Reason::KindUnknown => Missed { by: provided.kind, what: format!("kind {kind} is defined by") },
        Reason::NamespaceNotFound => {
            Missed { by: provided.namespace, what: format!("namespace {namespace} is created by") }
        }
        // The API server's words name the one that it misses.
        Reason::NotFound => match provided.referred.iter().find(|it| it.is_missed(&failure.message)) {
            Some(Referred { kind, name, by }) => Missed { by: Some(*by), what: format!("{kind} {name} is created by") },
            None => Missed { by: None, what: String::new() },
        },
        _ => return None,
    })
}

fn refused(failure: Failure, message: String) -> Verdict {
    Verdict::Refused(Failure { message, ..failure })
}

fn cannot_tell(failure: &Failure, because: &str) -> Verdict {
    Verdict::Unknown(Failure { message: format!("cannot tell in a dry run: {because}"), ..failure.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::classify::{
        kind_unknown,
        tests::{assert_again, assert_refused, subject},
    };

    #[test]
    fn nothing_is_waited_for_that_will_not_come() {
        let unknown = || kind_unknown(&Subject { kind_in_design: true, ..subject() }, None, None);
        let told = |state, rehearses| {
            let kind = Some(Provider { component: "definition", state });
            let provided = Provided { kind, ..Provided::default() };
            let light = if rehearses { in_light_of_rehearsal } else { in_light_of };
            light(provided, unknown(), &subject())
        };
        let adapter = Provided { adapter: true, ..Provided::default() };
        assert!(matches!(in_light_of_rehearsal(adapter, unknown(), &subject()), Verdict::Unknown(_)));
        assert_refused(&in_light_of_rehearsal(Provided::default(), unknown(), &subject()), Reason::KindUnknown);
        assert_again(&told(ProviderState::Sound, false), Reason::KindUnknown, false);
        for state in [ProviderState::Failed, ProviderState::Missing] {
            let verdict = told(state, false);
            assert_refused(&verdict, Reason::KindUnknown);
            assert!(matches!(verdict, Verdict::Refused(failure) if failure.message.contains("component definition")));
        }
        assert!(matches!(told(ProviderState::Sound, true), Verdict::Unknown(_)));
        assert!(matches!(told(ProviderState::Missing, true), Verdict::Unknown(_)));
        assert_refused(&told(ProviderState::Failed, true), Reason::KindUnknown);
    }
}
