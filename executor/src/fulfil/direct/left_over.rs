//! What the design has in the clusters that the plan no longer has, and what becomes of it (L6).

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::OnceLock,
};

use futures::{StreamExt, future::join_all, stream};
use switchyard_proto::v1::{self, Prune, Verdict as RunVerdict};
use tokio::time::{Duration, Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{listed::Other, write::Write};
use crate::{
    answers::{
        classify::{Subject, Verdict},
        failure::{Failure, Reason},
    },
    cluster::remove::{self, Removal},
    core::{kind, target::ClusterIx},
    fulfil::{Fate, LeftOver, ObjectId},
};

/// How long the lists may take where none were taken before.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one removal may take unless the plan says otherwise, as a step on a cluster.
const REMOVAL: Duration = Duration::from_secs(60);
/// Removals at the same time on one cluster.
const AT_ONCE: usize = 8;
/// Attempts at a removal that the API server has no time for.
const TRIES: u32 = 3;

impl Write {
    /// Looks for left-overs, and removes them if that was asked for and every step has succeeded. Where none has, there is little
    /// to be seen of the clusters, if anything.
    pub(crate) async fn left_overs(&self, verdict: RunVerdict, stop: &CancellationToken) -> Vec<LeftOver> {
        let plan = &self.direct.plan;
        let is_idle = matches!(verdict, RunVerdict::Cancelled | RunVerdict::Failed);
        if plan.options.prune == Prune::Never || is_idle {
            return Vec::new();
        }
        let by = Instant::now() + PATIENCE;
        let there = plan.clusters.keys().filter(|cluster| self.may_be_there(*cluster));
        let listed = there.map(async |cluster| {
            let others = self.listed(cluster, by).await.map(|listed| &listed.others[..]).unwrap_or_default();
            let mut others: Vec<&Other> = others.iter().collect();
            others.sort_by_key(|it| (&it.object.api_version, &it.object.kind, &it.object.namespace, &it.object.name));
            (cluster, others)
        });
        let listed = join_all(listed).await;
        let number = listed.iter().flat_map(|(_, others)| others).filter(|other| other.is_ours).count();
        let refused = match plan.options.prune_at_most {
            _ if verdict != RunVerdict::Succeeded => Some("not every component succeeded".to_owned()),
            Some(most) if number > most => {
                Some(format!("{number} objects would be removed, and `prune_at_most` is {most}"))
            }
            _ => None,
        };
        let each = listed.into_iter().map(async |(cluster, others)| match (plan.options.prune, &refused) {
            (Prune::Delete, None) => self.prune(cluster, others, stop).await,
            (Prune::Delete, Some(why)) => {
                let fate = |other: &Other| if other.is_ours { kept(why) } else { Fate::Told };
                others.into_iter().map(|other| told(cluster, other, fate(other))).collect()
            }
            _ => others.into_iter().map(|other| told(cluster, other, Fate::Told)).collect::<Vec<_>>(),
        });
        join_all(each).await.into_iter().flatten().collect()
    }

    /// Removes what the executor has applied, dependents first; what something that stays may need stays too.
    async fn prune(&self, cluster: ClusterIx, others: Vec<&Other>, stop: &CancellationToken) -> Vec<LeftOver> {
        let depths = depths(&others);
        let mut waves = BTreeMap::<_, Vec<&Other>>::new();
        let mut done = Vec::new();
        for other in others {
            if other.is_ours {
                let depth = depths.get(other.component.as_str()).copied().unwrap_or_default();
                waves.entry((holds_others(other), Reverse(depth))).or_default().push(other);
            } else {
                done.push(told(cluster, other, Fate::Told));
            }
        }
        let mut why_not = None;
        for wave in waves.into_values() {
            if stop.is_cancelled() {
                why_not.get_or_insert_with(|| "the run was stopped".to_owned());
            }
            let removed = match &why_not {
                Some(why) => wave.into_iter().map(|other| told(cluster, other, kept(why))).collect(),
                None => {
                    let removals = wave.into_iter().map(|other| self.remove_left_over(cluster, other, stop));
                    let removals: Vec<_> = removals.map(Box::pin).collect();
                    stream::iter(removals).buffered(AT_ONCE).collect::<Vec<_>>().await
                }
            };
            let failed = removed.iter().find(|it| matches!(it.fate, Fate::Failed(..)));
            why_not = why_not
                .or_else(|| failed.map(|it| format!("{} {} could not be removed", it.object.kind, it.object.name)));
            done.extend(removed);
        }
        done
    }

    async fn remove_left_over(&self, at: ClusterIx, other: &Other, stop: &CancellationToken) -> LeftOver {
        let plan = &self.direct.plan;
        let cluster = &*self.direct.sites[at].cluster;
        let object = &other.object;
        let deadline = Instant::now() + plan.options.step_timeout.unwrap_or(REMOVAL);
        let first_seen = OnceLock::from(object.uid.clone());
        let mut attempt = 0;
        let fate = loop {
            attempt += 1;
            let removal = Removal {
                subject: Subject {
                    cluster: &cluster.name,
                    api_version: &object.api_version,
                    kind: &object.kind,
                    namespace: &object.namespace,
                    name: &object.name,
                    kind_in_design: false,
                    namespace_in_design: false,
                },
                resource: &other.resource,
                design_id: &plan.design.id,
                leaves_shared: true,
                manifest: b"{}",
                delete_foreign: plan.options.delete_foreign,
                everywhere: &self.direct.everywhere,
                attempt,
                lost_before: attempt > 1,
                first_seen: &first_seen,
                stop,
            };
            match remove::remove(cluster, &removal, deadline, deadline, || {}).await.result {
                Ok(removed) if removed.shared_with.is_some() => break Fate::Told,
                Ok(removed) => break Fate::Gone(removed.change.into()),
                Err(Verdict::Refused(failure)) => break Fate::Failed(v1::Outcome::Failed, failure),
                Err(Verdict::Unknown(failure)) => break Fate::Failed(v1::Outcome::Indeterminate, failure),
                Err(Verdict::Again { failure, after, .. }) => {
                    let pause = after.unwrap_or(Duration::from_secs(1)) * attempt;
                    if attempt == TRIES || Instant::now() + pause >= deadline || stop.is_cancelled() {
                        break Fate::Failed(v1::Outcome::Failed, failure);
                    }
                    sleep(pause).await;
                }
            }
        };
        told(at, other, fate)
    }
}

fn told(cluster: ClusterIx, other: &Other, fate: Fate) -> LeftOver {
    LeftOver { cluster, object: other.object.clone(), component: other.component.clone(), fate }
}

fn kept(why: &str) -> Fate {
    Fate::Failed(v1::Outcome::Cancelled, Failure::new(Reason::Cancelled, format!("it was not removed: {why}")))
}

/// Whether other objects go with it: definitions and namespaces come last.
fn holds_others(other: &Other) -> bool {
    let ObjectId { api_version, kind, .. } = &other.object;
    kind::is_definition(api_version, kind) || kind::is_namespace(api_version, kind)
}

/// For each component the length of the longest chain of what it depends on, as far as that is left over too.
fn depths<'a>(others: &[&'a Other]) -> HashMap<&'a str, usize> {
    let mut depths: HashMap<_, _> = others.iter().map(|other| (other.component.as_str(), 0)).collect();
    // As often as the longest chain has links. One that leads back to itself, which no plan has, ends all the same.
    for _ in 0..others.len() {
        let mut grew = false;
        for other in others {
            let below = other.depends_on.iter().filter_map(|id| depths.get(id.as_str())).max();
            let depth = below.map_or(0, |depth| depth + 1).min(others.len());
            grew |= depths.insert(other.component.as_str(), depth).is_some_and(|known| known < depth);
        }
        if !grew {
            break;
        }
    }
    depths
}
