//! What the Lease of a design says between runs (L2): which kinds the design ever had in the cluster, and how its last run ended.
//!
//! It stands in annotations, so that any executor, and people, can read it.

use std::{collections::BTreeSet, fmt, time::SystemTime};

use serde::{Deserialize, Serialize};
use switchyard_proto::v1;

/// Every kind that the design ever had in the cluster.
pub(super) const KINDS: &str = "switchyard.dev/kinds";
/// The last run, or the one that goes on.
pub(super) const LAST_RUN: &str = "switchyard.dev/last-run";
/// The run before that one.
pub(super) const RUN_BEFORE: &str = "switchyard.dev/run-before";

/// Bytes of kinds that are written down. An object has room for 256 KiB of annotations.
const MOST_KINDS: usize = 128 * 1024;
/// The verdict of a run that has not ended.
const GOING_ON: &str = "GOING_ON";

/// Kinds, each by apiVersion and kind. Written `v1/ConfigMap,apps/v1/Deployment`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kinds(BTreeSet<(String, String)>);

impl<'a> FromIterator<(&'a str, &'a str)> for Kinds {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(kinds: I) -> Self {
        Self(kinds.into_iter().map(|(api_version, kind)| (api_version.to_owned(), kind.to_owned())).collect())
    }
}

impl Kinds {
    #[cfg(test)]
    pub(crate) fn insert(&mut self, api_version: &str, kind: &str) {
        self.0.insert((api_version.into(), kind.into()));
    }

    /// Each as apiVersion and kind.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(api_version, kind)| (api_version.as_str(), kind.as_str()))
    }

    pub(super) fn holds(&self, others: &Self) -> bool {
        others.0.is_subset(&self.0)
    }

    pub(crate) fn and(&self, others: &Self) -> Self {
        Self(self.0.union(&others.0).cloned().collect())
    }

    pub(super) fn parse(text: &str) -> Self {
        let kinds = text.split(',').filter_map(|kind| kind.trim().rsplit_once('/'));
        Self(kinds.map(|(api_version, kind)| (api_version.into(), kind.into())).collect())
    }
}

impl fmt::Display for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut written = 0;
        for (api_version, kind) in self.iter() {
            let comma = if written == 0 { "" } else { "," };
            written += comma.len() + api_version.len() + 1 + kind.len();
            if written > MOST_KINDS {
                break;
            }
            write!(f, "{comma}{api_version}/{kind}")?;
        }
        Ok(())
    }
}

/// A run, as the Lease tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct LastRun {
    pub(crate) run: String,
    pub(crate) plan: String,
    pub(crate) design_version: String,
    /// `DEPLOY` or `UNDEPLOY`.
    pub(crate) operation: String,
    /// As the contract has it, without prefix; `GOING_ON` while it has not ended.
    pub(crate) verdict: String,
    /// By the executor's clock (RFC 3339).
    pub(crate) start: String,
    /// Empty while it has not ended.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) end: String,
    pub(crate) executor: String,
}

impl LastRun {
    /// A run that begins now.
    pub(crate) fn begin(
        run: &str,
        plan: &str,
        design_version: &str,
        operation: v1::Operation,
        executor: String,
    ) -> Self {
        Self {
            run: run.into(),
            plan: plan.into(),
            design_version: design_version.into(),
            operation: operation.as_str_name().trim_start_matches("OPERATION_").into(),
            verdict: GOING_ON.into(),
            start: now(),
            end: String::new(),
            executor,
        }
    }

    /// The same run, which ends now.
    pub(crate) fn ended(&self, verdict: v1::Verdict) -> Self {
        let verdict = verdict.as_str_name().trim_start_matches("VERDICT_").into();
        Self { verdict, end: now(), ..self.clone() }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.verdict != GOING_ON
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

impl fmt::Display for LastRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read_as_they_were_written_and_only_added_to() {
        let mut kinds = Kinds::parse("v1/ConfigMap,apps/v1/Deployment");
        assert_eq!(kinds.to_string(), "apps/v1/Deployment,v1/ConfigMap");
        let known = kinds.clone();
        kinds.insert("a.example/v1", "Gadget");
        assert!(kinds.holds(&known) && !known.holds(&kinds));
        assert_eq!(known.and(&kinds), kinds);
        assert_eq!(Kinds::parse(&kinds.to_string()), kinds);
        assert_eq!(Kinds::parse(""), Kinds::default());
        let mut many = Kinds::default();
        (0..10_000).for_each(|number| many.insert("a.example/v1", &format!("Kind{number:020}")));
        let written = many.to_string();
        assert!(written.len() <= MOST_KINDS && !written.ends_with(','));
        assert!(Kinds::parse(&written).iter().all(|(_, kind)| kind.len() == 24));
    }

    #[test]
    fn a_run_that_has_not_ended_says_so() {
        let going_on = LastRun::begin("r", "p", "1", v1::Operation::Undeploy, "e".into());
        assert_eq!((going_on.operation.as_str(), going_on.has_ended()), ("UNDEPLOY", false));
        let ended = going_on.ended(v1::Verdict::Partial);
        assert_eq!((ended.verdict.as_str(), ended.has_ended()), ("PARTIAL", true));
        for run in [going_on, ended] {
            assert_eq!(LastRun::parse(&run.to_string()), Some(run));
        }
        // What others have written there is no reason to say anything.
        assert_eq!(LastRun::parse("soon"), None);
        assert!(LastRun::parse("{}").unwrap().has_ended());
    }
}
