//! One page of the list of runs: those that a caller asks for, as many as one message holds.

use std::sync::Arc;

use prost::Message;
use switchyard_proto::v1;

use super::Run;
use crate::journal::fit::{MAX_EVENT, MAX_LISTED, fitting};

/// Most runs of one page.
const MOST: usize = 1000;
/// Clusters that are named for each run of a page that would not fit into a message otherwise.
const FEW: usize = 10;

/// What is wrong with a request for a page, and in which field.
pub(crate) type Mistake = (&'static str, &'static str);

/// The page that `request` asks for, of `runs`, newest first.
pub(crate) fn page(runs: &[Arc<Run>], request: &v1::ListRunsRequest) -> Result<v1::ListRunsResponse, Mistake> {
    let verdict = v1::Verdict::try_from(request.verdict).map_err(|_| ("verdict", "there is no such verdict"))?;
    let before = match request.page_token.as_str() {
        "" => u64::MAX,
        token => token.parse().map_err(|_| ("page_token", "it is not one that ListRuns gave"))?,
    };
    let size = if request.page_size == 0 { MOST } else { MOST.min(request.page_size as usize) };
    let mut wanted = runs.iter().filter(|run| run.number < before && fits(run, request, verdict));
    let listed: Vec<_> = wanted.by_ref().take(size).collect();
    let mut response = told(&listed, MAX_LISTED);
    if response.encoded_len() > MAX_EVENT {
        response = told(&listed, FEW);
    }
    let kept = fitting(&response.runs, MAX_EVENT);
    let are_all = kept == listed.len() && wanted.next().is_none();
    response.runs.truncate(kept);
    if let Some(last) = kept.checked_sub(1).filter(|_| !are_all) {
        response.next_page_token = listed[last].number.to_string();
    }
    Ok(response)
}

fn told(runs: &[&Arc<Run>], clusters: usize) -> v1::ListRunsResponse {
    let runs = runs.iter().map(|run| run.info(clusters)).collect();
    v1::ListRunsResponse { runs, next_page_token: String::new() }
}

fn fits(run: &Run, request: &v1::ListRunsRequest, verdict: v1::Verdict) -> bool {
    let v1::ListRunsRequest { design_id, cluster, labels, going_on, .. } = request;
    let ended = *run.ended();
    (design_id.is_empty() || run.design.id == *design_id)
        && (cluster.is_empty() || run.clusters.contains(cluster))
        && labels.iter().all(|(key, value)| run.labels.get(key) == Some(value))
        && going_on.is_none_or(|going_on| going_on == ended.is_none())
        && (verdict == v1::Verdict::Unspecified || ended.is_some_and(|(_, _, its)| its == verdict))
}
