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
    pub(crate) dry_run: bool,
}

/// The verdict in the light of what the design brings along. Nothing is waited for that will not come; and in a dry run, what
/// fails only because nothing was created before it cannot be told (D20).
pub(crate) fn in_light_of(provided: Provided<'_>, verdict: Verdict, subject: &Subject<'_>) -> Verdict {
    let (Verdict::Refused(failure) | Verdict::Again { failure, .. } | Verdict::Unknown(failure)) = &verdict;
    let Subject { cluster, kind, namespace, .. } = subject;
    let (provider, what) = match failure.reason {
        Reason::KindUnknown => (provided.kind, format!("kind {kind} is defined by")),
        Reason::NamespaceNotFound => (provided.namespace, format!("namespace {namespace} is created by")),
        // The API server's words name the one that it misses.
        Reason::NotFound => match provided.referred.iter().find(|it| it.is_missed(&failure.message)) {
            Some(Referred { kind, name, by }) => (Some(*by), format!("{kind} {name} is created by")),
            None => (None, String::new()),
        },
        // A webhook with side effects says so instead of deciding (case 83).
        _ if provided.dry_run && failure.message.contains("does not support dry run") => {
            return cannot_tell(failure, &failure.message);
        }
        _ => return verdict,
    };
    let failure = failure.clone();
    match provider {
        Some(Provider { component, state: ProviderState::Failed }) => {
            let how = if provided.dry_run { "would fail itself" } else { "failed" };
            refused(failure, format!("{what} component {component}, which {how} on cluster {cluster}"))
        }
        Some(Provider { component, .. }) if provided.dry_run => {
            cannot_tell(&failure, &format!("{what} component {component}"))
        }
        Some(Provider { component, state: ProviderState::Missing }) => {
            refused(failure, format!("{what} component {component}, which did not succeed on cluster {cluster}"))
        }
        Some(Provider { state: ProviderState::Sound, .. }) => verdict,
        None if provided.dry_run && failure.reason == Reason::NamespaceNotFound && provided.creates_namespaces => {
            cannot_tell(&failure, &format!("namespace {namespace} would be created first"))
        }
        None if provided.dry_run && provided.chart => {
            cannot_tell(&failure, &format!("{}; the chart that it needs would be installed first", failure.message))
        }
        None if provided.dry_run && provided.adapter && failure.reason != Reason::NotFound => {
            cannot_tell(&failure, &format!("{}; its adapter may see to that", failure.message))
        }
        None if provided.dry_run => Verdict::Refused(failure),
        None => verdict,
    }
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
        let told = |state, dry_run| {
            let kind = Some(Provider { component: "definition", state });
            in_light_of(Provided { kind, dry_run, ..Provided::default() }, unknown(), &subject())
        };
        let adapter = Provided { adapter: true, dry_run: true, ..Provided::default() };
        assert!(matches!(in_light_of(adapter, unknown(), &subject()), Verdict::Unknown(_)));
        let nobody = Provided { dry_run: true, ..Provided::default() };
        assert_refused(&in_light_of(nobody, unknown(), &subject()), Reason::KindUnknown);
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
