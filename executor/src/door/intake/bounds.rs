//! How large the parts of a plan may be, and how much is counted for them in the budget.
//!
//! Texts that results repeat (ids, names) are bounded one by one: a name of a megabyte on which a hundred thousand steps depend would
//! be said a hundred thousand times.

use prost::Message;
use serde::de::IgnoredAny;
use switchyard_proto::v1::{self, execute_request::Part};

use super::{Error, invalid};
use crate::core::{
    plan::{Adapter, Direct, Step, Work},
    target::ClusterIx,
};

/// Largest number of steps.
const MAX_STEPS: usize = 200_000;
/// Largest number of clusters.
const MAX_CLUSTERS: usize = 10_000;
/// Longest id of a step and name of a cluster, in bytes: as long as the longest name in Kubernetes.
const MAX_NAME: usize = 253;
/// Longest text that says what a component, a design or an adapter is, in bytes.
const MAX_TEXT: usize = 1024;
/// Longest URL of a chart, in bytes.
const MAX_URL: usize = 8 * 1024;
/// Largest access to a cluster, in bytes: as large as a Secret, in which kubeconfigs are kept, can be.
const MAX_ACCESS: usize = 1024 * 1024;
/// How much access may come before the header, which says whose access is wanted: number and bytes.
const MAX_EARLY_ACCESS: usize = MAX_CLUSTERS;
const MAX_EARLY_ACCESS_BYTES: usize = 16 * 1024 * 1024;
/// Largest declaration that is looked into, in bytes. What is larger than an adapter takes is not sent (D27).
const MAX_DECLARATION: usize = 4 * 1024 * 1024;

/// What a run needs for a step beside its texts, for one step in one place, and for one edge, in bytes.
const OF_A_STEP: usize = size_of::<Step>() + 256;
const OF_A_UNIT: usize = 256;
const OF_AN_EDGE: usize = 16;

/// What is held for a message from the moment that it came.
pub(super) fn held_for(part: &Part) -> usize {
    let beside = match part {
        Part::Step(step) => match &step.route {
            // The object that a declaration is, is kept beside it.
            Some(v1::plan_step::Route::Adapter(route)) => OF_A_STEP + route.declaration.len(),
            Some(v1::plan_step::Route::Direct(_)) | None => OF_A_STEP,
        },
        // What it is decoded to.
        Part::Encoded(part) => OF_A_STEP + part.bytes.len(),
        Part::Header(_) | Part::Cluster(_) | Part::Cancel(_) | Part::Trailer(_) | Part::Start(_) => OF_A_STEP,
    };
    part.encoded_len() + beside
}

/// What is held for a step's place in the order of the run. `before` are the clusters of the steps that it runs after: units wait
/// for units, cluster by cluster where both steps have the same, else each for all.
pub(super) fn held_for_order<'a>(
    work: &Work,
    depends_on: usize,
    before: impl Iterator<Item = &'a [ClusterIx]>,
) -> usize {
    let own = clusters(work);
    let awaited: usize = before.map(|earlier| if earlier == own { 1 } else { earlier.len() }).sum();
    own.len() * OF_A_UNIT + (depends_on + awaited * own.len()) * OF_AN_EDGE
}

/// Where work is carried out, and looked at.
pub(super) fn clusters(work: &Work) -> &[ClusterIx] {
    match work {
        Work::Direct(Direct { clusters, .. }) | Work::Adapter(Adapter { clusters, .. }) => clusters,
    }
}

pub(super) fn check_header(header: &v1::PlanHeader) -> Result<(), Error> {
    if header.step_count as usize > MAX_STEPS {
        return Err(Error::TooLarge(format!("{} steps, at most {MAX_STEPS} are taken", header.step_count)));
    }
    if header.clusters.len() > MAX_CLUSTERS {
        return Err(Error::TooLarge(format!("{} clusters, at most {MAX_CLUSTERS} are taken", header.clusters.len())));
    }
    for name in &header.clusters {
        check(name, MAX_NAME, "header.clusters")?;
    }
    if let Some(design) = &header.design {
        check(&design.id, MAX_TEXT, "header.design.id")?;
        check(&design.name, MAX_TEXT, "header.design.name")?;
        check(&design.version, MAX_TEXT, "header.design.version")?;
    }
    if let Some(options) = &header.options {
        check(&options.default_namespace, MAX_NAME, "header.options.default_namespace")?;
    }
    check(&header.plan_id, MAX_NAME, "header.plan_id")?;
    check(&header.traceparent, MAX_NAME, "header.traceparent")
}

pub(super) fn check_step(step: &v1::PlanStep, field: &str) -> Result<(), Error> {
    let inside = |name: &str| format!("{field}.{name}");
    check(&step.id, MAX_NAME, &inside("id"))?;
    if let Some(v1::Component { name, kind, api_version, model, model_version, registrant, registrant_kind }) =
        &step.component
    {
        for text in [name, kind, api_version, model, model_version, registrant, registrant_kind] {
            check(text, MAX_TEXT, &inside("component"))?;
        }
    }
    match &step.route {
        Some(v1::plan_step::Route::Adapter(route)) => check(&route.host, MAX_NAME, &inside("adapter.host"))?,
        Some(v1::plan_step::Route::Direct(_)) | None => {}
    }
    match &step.chart {
        Some(v1::Chart { url, version, namespace }) => {
            check(url, MAX_URL, &inside("chart.url"))?;
            check(version, MAX_TEXT, &inside("chart.version"))?;
            check(namespace, MAX_NAME, &inside("chart.namespace"))
        }
        None => Ok(()),
    }
}

/// Answers how many bytes the access takes.
pub(super) fn check_access(access: &v1::ClusterAccess) -> Result<usize, Error> {
    check(&access.name, MAX_NAME, "cluster.name")?;
    let bytes = access.encoded_len();
    if bytes > MAX_ACCESS {
        let what = format!("access to `{}` has {bytes} bytes, at most {MAX_ACCESS} are taken", access.name);
        return Err(Error::TooLarge(what));
    }
    Ok(bytes)
}

pub(super) fn check_early_access(number: usize, bytes: usize) -> Result<(), Error> {
    if number > MAX_EARLY_ACCESS || bytes > MAX_EARLY_ACCESS_BYTES {
        return Err(Error::TooLarge(format!(
            "access to {number} clusters, {bytes} bytes, before the header that selects them; at most {MAX_EARLY_ACCESS} and \
             {MAX_EARLY_ACCESS_BYTES} bytes are taken, so send the header first"
        )));
    }
    Ok(())
}

/// Reads a declaration. One that is too large for any adapter is only proven to be JSON.
pub(super) fn declaration(text: &str) -> serde_json::Result<serde_json::Value> {
    if text.len() < MAX_DECLARATION {
        serde_json::from_str(text)
    } else {
        serde_json::from_str::<IgnoredAny>(text).map(|_| serde_json::Value::Null)
    }
}

fn check(text: &str, most: usize, field: &str) -> Result<(), Error> {
    if text.len() <= most {
        return Ok(());
    }
    invalid(field, format!("the text has {} bytes, at most {most} are taken", text.len()))
}
