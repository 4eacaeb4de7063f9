//! Removing one object from one cluster, to the proof that it is gone (D18, D19).
//!
//! The marks are looked at first, the DELETE names the uid that was looked at, and only the API server's own word that the
//! object is not there (or that another one is) ends the wait. Finalizers are never touched.

use std::sync::OnceLock;

use http::{Method, Request, StatusCode, header};
use kube::client::Body;
use serde::Deserialize;
use tokio::time::{Duration, Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{
    Change, Cluster, Storing,
    contents::{self, Everywhere, Foreign, Own},
    discovery::{Absence, Resource},
    object::{self, Condition, Found, METADATA_ONLY, Metadata},
    ownership::{Owner, owner},
    warnings,
};
use crate::{
    answers::{
        classify::{self, Subject, Verdict},
        failure::{Failure, Reason},
    },
    core::kind,
    mask::Secrets,
};

/// Namespaces that every cluster needs (D19).
const PROTECTED: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

/// Pauses between looks at an object that is on its way out.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What is removed.
pub(crate) struct Removal<'a> {
    pub(crate) subject: Subject<'a>,
    pub(crate) resource: &'a Resource,
    /// The design whose mark the object must carry.
    pub(crate) design_id: &'a str,
    /// Leaves an object of another design where it is, which is no failure then (L1). Definitions and namespaces are always.
    pub(crate) leaves_shared: bool,
    /// The object as the design has it, as JSON: what must not be said of it.
    pub(crate) manifest: &'a [u8],
    /// Removes definitions and namespaces although they hold objects outside the design.
    pub(crate) delete_foreign: bool,
    /// What controllers put into every namespace, which is nobody's loss.
    pub(crate) everywhere: &'a Everywhere,
    /// From 1.
    pub(crate) attempt: u32,
    /// Whether an earlier attempt may have deleted it.
    pub(crate) lost_before: bool,
    /// The uid of the object that is removed, over all attempts: what is made anew under its name is not touched.
    pub(crate) first_seen: &'a OnceLock<String>,
    /// Ends the wait until it is gone.
    pub(crate) stop: &'a CancellationToken,
}

/// What became of it.
pub(crate) struct Outcome {
    pub(crate) result: Result<Removed, Verdict>,
    pub(crate) warnings: Vec<String>,
    /// Write requests that were sent.
    pub(crate) sent: u32,
}

/// Proof that it is gone, or would be.
pub(crate) struct Removed {
    pub(crate) change: Change,
    /// The object as it was; none when it was not there.
    pub(crate) uid: String,
    /// The design that it belongs to, where it was left in place for that reason.
    pub(crate) shared_with: Option<Box<str>>,
}

impl Removed {
    fn new(change: Change, uid: impl Into<String>) -> Self {
        Self { change, uid: uid.into(), shared_with: None }
    }
}

/// An object as far as a removal looks at it.
#[derive(Deserialize)]
pub(crate) struct Object {
    pub(crate) metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    conditions: Vec<Condition>,
}

/// Removes the object. `accepted` is called once the DELETE was accepted and only waiting is left.
pub(crate) async fn remove(
    cluster: &Cluster,
    what: &Removal<'_>,
    by: Instant,
    deadline: Instant,
    accepted: impl FnOnce(),
) -> Outcome {
    let mut said = Said::default();
    let result = attempt(cluster, what, by, deadline, accepted, &mut said).await;
    Outcome { result, warnings: said.warnings, sent: said.sent }
}

/// Asks what removing the object would come to (S22).
pub(crate) async fn rehearse(cluster: &Cluster, what: &Removal<'_>, by: Instant) -> Outcome {
    let mut said = Said::default();
    let result = rehearsed(cluster, what, by, &mut said).await;
    Outcome { result, warnings: said.warnings, sent: said.sent }
}

async fn rehearsed(cluster: &Cluster, what: &Removal<'_>, by: Instant, said: &mut Said) -> Result<Removed, Verdict> {
    let metadata = match found(cluster, what, by).await? {
        Ok(object) => object.metadata,
        Err(settled) => return Ok(settled),
    };
    let removed = Removed::new(Change::Removed, metadata.uid.clone());
    match delete(cluster, what, &metadata.uid, Storing::No, by, said).await? {
        Deleted::MadeAnew(other) => said.warnings.push(made_anew(&other)),
        Deleted::Accepted if metadata.finalizers.is_empty() => {}
        Deleted::Accepted => said.warnings.push(format!("it has finalizers: {}", metadata.finalizers.join(", "))),
    }
    Ok(removed)
}

#[derive(Default)]
struct Said {
    warnings: Vec<String>,
    sent: u32,
}

async fn attempt(
    cluster: &Cluster,
    what: &Removal<'_>,
    by: Instant,
    deadline: Instant,
    accepted: impl FnOnce(),
    said: &mut Said,
) -> Result<Removed, Verdict> {
    let subject = &what.subject;
    let metadata = match found(cluster, what, by).await? {
        Ok(object) => object.metadata,
        Err(settled) => return Ok(settled),
    };
    let uid = what.first_seen.get_or_init(|| metadata.uid.clone());
    let removed = Removed::new(Change::Removed, uid.clone());
    if metadata.uid != *uid {
        said.warnings.push(made_anew(&metadata));
        return Ok(removed);
    }
    if let Deleted::MadeAnew(other) = delete(cluster, what, uid, Storing::Yes, by, said).await? {
        said.warnings.push(made_anew(&other));
        return Ok(removed);
    }
    accepted();
    match what.stop.run_until_cancelled(until_gone(cluster, what, uid, deadline)).await {
        Some(gone) => said.warnings.extend(gone?.map(|other| made_anew(&other))),
        None => {
            let text = format!("{} was told to go; the run was stopped before it was gone", classify::name(subject));
            return Err(Verdict::Unknown(Failure::new(Reason::Cancelled, text)));
        }
    }
    Ok(removed)
}

/// The object that is to go, or what became of it without that.
async fn found(cluster: &Cluster, what: &Removal<'_>, by: Instant) -> Result<Result<Object, Removed>, Verdict> {
    Ok(match examine(cluster, what, by).await? {
        Examined::Removable(object) => Ok(object),
        Examined::NotThere => {
            let change = if what.lost_before { Change::Removed } else { Change::Absent };
            Err(Removed::new(change, ""))
        }
        Examined::Shared { with, uid } => {
            Err(Removed { shared_with: Some(with), ..Removed::new(Change::Unchanged, uid) })
        }
    })
}

/// What became clear of an object that is to be removed.
pub(crate) enum Examined {
    Removable(Object),
    NotThere,
    /// It belongs to another design and is left where it is, which is no failure (L1).
    Shared {
        with: Box<str>,
        uid: String,
    },
}

/// Looks at what is to be removed, whoever is going to remove it, and refuses what must stay (D19). Reads only.
pub(crate) async fn examine(cluster: &Cluster, what: &Removal<'_>, by: Instant) -> Result<Examined, Verdict> {
    let subject = &what.subject;
    let refuse = |reason, message: String| Err(Verdict::Refused(Failure::new(reason, message)));
    let is_namespace = kind::is_namespace(subject.api_version, subject.kind);
    if is_namespace && PROTECTED.contains(&subject.name) {
        let text = format!("namespace {} is needed by every cluster and is never deleted", subject.name);
        return refuse(Reason::Protected, text);
    }
    let object: Object = match object::read(cluster, subject, what.resource, accept(subject), by).await? {
        Found::There(object) => object,
        Found::NotThere => return Ok(Examined::NotThere),
    };
    let metadata = &object.metadata;
    let is_definition = kind::is_definition(subject.api_version, subject.kind);
    let whose = match owner(metadata, what.design_id) {
        Owner::Ours => None,
        Owner::Design(other) if is_namespace || is_definition || what.leaves_shared => {
            return Ok(Examined::Shared { with: other.into(), uid: metadata.uid.clone() });
        }
        Owner::Nobody => Some("it carries no design's mark, so it was not deployed by this engine".to_owned()),
        Owner::Design(other) => Some(format!("it carries the mark of design {other}, not of {}", what.design_id)),
    };
    if let Some(whose) = whose {
        let text = format!("{} is left in place: {whose}", classify::name(subject));
        return refuse(Reason::NotOurs, text);
    }
    if !what.delete_foreign {
        let foreign = match what.stop.run_until_cancelled(foreign(cluster, what, is_namespace, by)).await {
            Some(foreign) => foreign.map_err(|why| classify::contents_unknown(subject, &why))?,
            None => {
                let text = format!("{} was not touched: the run was stopped before", classify::name(subject));
                return refuse(Reason::Cancelled, text);
            }
        };
        if foreign.count > 0 {
            let text = format!(
                "{} is kept: it holds {} outside the design, which would go with it: {}; set delete_foreign to delete them too",
                classify::name(subject),
                foreign.count_text(),
                foreign.names.join(", ")
            );
            return refuse(Reason::ForeignContents, text);
        }
    }
    Ok(Examined::Removable(object))
}

/// What is said of an object that took the place of the one that is gone.
fn made_anew(other: &Metadata) -> String {
    format!("somebody has made it anew meanwhile, with the uid {}; that one is left in place", other.uid)
}

/// What is not of the design and would go along.
async fn foreign(cluster: &Cluster, what: &Removal<'_>, is_namespace: bool, by: Instant) -> Result<Foreign, String> {
    let Subject { api_version, kind, name, .. } = what.subject;
    let own = Own { design_id: what.design_id, release: None };
    if is_namespace {
        contents::of_namespace(cluster, name, &own, what.everywhere, by).await
    } else if kind::is_definition(api_version, kind) {
        contents::of_definitions(cluster, &[name], &own, by).await
    } else {
        Ok(Foreign::default())
    }
}

/// Namespaces say in their status why they linger; of everything else the metadata is enough.
pub(crate) fn accept(subject: &Subject<'_>) -> &'static str {
    if subject.kind == "Namespace" { "application/json" } else { METADATA_ONLY }
}

/// What a DELETE came to.
enum Deleted {
    /// It was accepted, or there is nothing any more.
    Accepted,
    /// The object is gone, and this one has its name now.
    MadeAnew(Box<Metadata>),
}

async fn delete(
    cluster: &Cluster,
    what: &Removal<'_>,
    uid: &str,
    storing: Storing,
    by: Instant,
    said: &mut Said,
) -> Result<Deleted, Verdict> {
    let subject = &what.subject;
    let mut path = object::path(subject, what.resource);
    if storing == Storing::No {
        // For whoever reads logs.
        path.push_str("?dryRun=All");
    }
    // Without a policy Jobs would leave their pods behind (case 69); without the uid another object could be hit.
    let mut options = serde_json::json!({
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",
        "preconditions": { "uid": uid },
    });
    if storing == Storing::No {
        // The options in the body are the ones that count: with them the API server does not look at the query.
        options["dryRun"] = serde_json::json!(["All"]);
    }
    let request = Request::builder()
        .method(Method::DELETE)
        .uri(path)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, METADATA_ONLY)
        .body(Body::from(options.to_string().into_bytes()))
        .map_err(|error| classify::no_path(&error))?;
    let target = object::target("DELETE", subject, what.resource, what.attempt);
    said.sent += 1;
    let reply = cluster.send(request, &target, by).await.map_err(|why| classify::unanswered(subject, &why))?;
    let warnings = warnings(&reply.headers);
    let done = reply.status.is_success() || object::says_not_there(&reply, subject);
    if done && warnings.is_empty() {
        return Ok(Deleted::Accepted);
    }
    let secrets = secrets(cluster, what, by).await;
    said.warnings.extend(warnings.iter().map(|warning| secrets.render(warning)));
    if done {
        return Ok(Deleted::Accepted);
    }
    let refused = classify::answered(subject, &reply.answer(), &secrets);
    if reply.status != StatusCode::CONFLICT {
        return Err(refused);
    }
    // Another object may have taken the place of the one that was to go, or that one is on its way out already.
    match object::read::<object::Bare>(cluster, subject, what.resource, METADATA_ONLY, by).await? {
        Found::NotThere => Ok(Deleted::Accepted),
        Found::There(object::Bare { metadata }) if metadata.uid != uid => Ok(Deleted::MadeAnew(Box::new(metadata))),
        Found::There(object::Bare { metadata }) if metadata.deletion_timestamp.is_some() => Ok(Deleted::Accepted),
        Found::There(_) => Err(refused),
    }
}

/// What must not be said of the object: what the design has secret in it, and what the object in the cluster has, which may be
/// from an earlier version of the design. A webhook sees that one (case 232).
async fn secrets(cluster: &Cluster, what: &Removal<'_>, by: Instant) -> Secrets {
    let of_design = cluster.secrets_around(what.manifest);
    let live = object::read::<serde_json::Value>(cluster, &what.subject, what.resource, "application/json", by).await;
    match live {
        Ok(Found::There(live)) => of_design.and(Secrets::of_value(&live)),
        Ok(Found::NotThere) | Err(_) => of_design,
    }
}

/// Waits for the API server's word that the object is not there, or that another one is in its place, which is answered.
async fn until_gone(
    cluster: &Cluster,
    what: &Removal<'_>,
    uid: &str,
    deadline: Instant,
) -> Result<Option<Metadata>, Verdict> {
    let subject = &what.subject;
    let began = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        let look = object::read::<Object>(cluster, subject, what.resource, accept(subject), deadline).await;
        let why = match look {
            Ok(Found::NotThere) => return Ok(None),
            Ok(Found::There(object)) if object.metadata.uid != uid => return Ok(Some(object.metadata)),
            Ok(Found::There(object)) => Ok(lingering(cluster, &object)),
            // The kind may have gone with the object, when its definition went meanwhile.
            Err(Verdict::Again { failure, .. }) if failure.reason == Reason::KindUnknown => {
                match cluster.absence(subject.api_version, subject.kind, deadline).await {
                    Ok(Absence::Proven) => return Ok(None),
                    Ok(Absence::Elsewhere(..)) => Err(failure.message),
                    Err(why) => Err(format!("{}; {why}", failure.message)),
                }
            }
            Err(Verdict::Again { failure, .. } | Verdict::Refused(failure) | Verdict::Unknown(failure)) => {
                Err(failure.message)
            }
        };
        let next = Instant::now() + pause;
        if next >= deadline {
            let after = began.elapsed();
            return Err(match why {
                Ok(lingering) => Verdict::Refused(Failure::new(
                    Reason::FinalizersPending,
                    format!(
                        "{} was told to go but is still there after {after:.1?}: {lingering}",
                        classify::name(subject)
                    ),
                )),
                Err(why) => Verdict::Unknown(Failure::new(
                    Reason::AnswerLost,
                    format!("{} was told to go, and whether it has gone is not known: {why}", classify::name(subject)),
                )),
            });
        }
        sleep_until(next).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Why an object that was told to go is still there.
pub(crate) fn lingering(cluster: &Cluster, object: &Object) -> String {
    let metadata = &object.metadata;
    let mut parts = Vec::new();
    if !metadata.finalizers.is_empty() {
        parts.push(format!("it waits for its finalizers {}", metadata.finalizers.join(", ")));
    }
    let conditions = object.status.conditions.iter().filter(|condition| condition.status == "True");
    parts.extend(conditions.map(|condition| format!("{}: {}", condition.kind, cluster.render(&condition.message))));
    if let Some(since) = &metadata.deletion_timestamp {
        parts.push(format!("being deleted since {since}"));
    }
    if parts.is_empty() { "the API server does not say why".into() } else { parts.join("; ") }
}
