//! Refusals of real API servers, as they came: of Kubernetes 1.27, 1.30 and 1.37, one in each line of `refusals.jsonl`.
//!
//! Numbers that differ from run to run (uids, addresses, revisions) are made alike, and long texts have lost their middle.

use serde::Deserialize;
use serde_json::Value;

use super::tests::judge;
use crate::answers::{classify::Verdict, failure::Reason};

#[derive(Deserialize)]
struct Refusal {
    /// What was wrong, in words.
    case: String,
    servers: Vec<String>,
    code: u16,
    expected: String,
    /// A `Status`, or the text that came in its place.
    status: Value,
}

fn refusals() -> Vec<Refusal> {
    let lines = include_str!("refusals.jsonl").lines();
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

impl Refusal {
    fn verdict(&self) -> Verdict {
        let body = match &self.status {
            Value::String(text) => text.clone(),
            status => status.to_string(),
        };
        judge(self.code, &body)
    }
}

#[test]
fn every_refusal_has_its_reason() {
    let refusals = refusals();
    for version in ["1.27", "1.30", "1.37"] {
        let count = refusals.iter().filter(|refusal| refusal.servers.iter().any(|server| server == version)).count();
        assert!(count >= 60, "{count} of {version}");
    }
    let wrong: Vec<_> = refusals
        .iter()
        .filter(|refusal| refusal.verdict().failure().reason.as_str() != refusal.expected)
        .map(|refusal| format!("{} of {:?}: {:?}", refusal.case, refusal.servers, refusal.verdict()))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What is wrong with the design is refused at once, whatever code the server chose, and trying again is not recommended.
#[test]
fn what_the_design_got_wrong_is_never_the_servers_fault() {
    let final_ones = ["INVALID", "IMMUTABLE", "FORBIDDEN", "POLICY_DENIED", "WEBHOOK_DENIED", "TOO_LARGE", "STALE"];
    let of_the_design: Vec<_> =
        refusals().into_iter().filter(|refusal| final_ones.contains(&refusal.expected.as_str())).collect();
    assert!(of_the_design.iter().filter(|refusal| refusal.code == 500).count() > 30, "servers say 500 of designs");
    for refusal in &of_the_design {
        let verdict = refusal.verdict();
        let failure = verdict.failure();
        assert!(matches!(verdict, Verdict::Refused(_)) && !failure.retryable, "{}: {verdict:?}", refusal.case);
        assert!(!matches!(failure.reason, Reason::ServerError | Reason::Internal), "{}: {verdict:?}", refusal.case);
    }
}
