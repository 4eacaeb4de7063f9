//! What would be lost along with a definition or a namespace: the objects in it that are not of the design (D19, cases 70,
//! 71, 201–207).
//!
//! What cannot be told is an error, and whoever asks keeps what it wanted to delete.

mod everywhere;
mod weigh;

pub(crate) use self::everywhere::Everywhere;
pub use self::everywhere::Place;

use futures::{StreamExt, TryStreamExt, stream};
use serde::Deserialize;
use tokio::time::{Duration, Instant, sleep_until};

use self::weigh::{Holder, Item, Standing};
use super::{
    Cluster,
    discovery::Resource,
    listing::{self, Kind},
    object::{self, Condition, Found, Metadata, OwnerReference},
    ownership::{Owner, owner},
};
use crate::answers::classify::Subject;

/// Names that are told; the rest is counted.
const TOLD: usize = 5;
/// Lists at once.
const AT_ONCE: usize = 8;

/// How long objects are given that the garbage collector is about to remove, because their owner is gone.
const COLLECTION: Duration = Duration::from_secs(10);
/// How often a look that failed is taken again: a kind may go, and a server restart, between discovery and list.
const FAILED_LOOKS: u32 = 4;
/// Pauses between looks.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What counts as the asker's own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own<'a> {
    /// Objects with the mark of this design.
    pub(crate) design_id: &'a str,
    /// Objects of this Helm release, if the asker has one.
    pub(crate) release: Option<Release<'a>>,
}

/// A Helm release, as Helm notes it on each of its objects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Release<'a> {
    pub(crate) name: &'a str,
    pub(crate) namespace: &'a str,
}

impl Own<'_> {
    fn includes(&self, metadata: &Metadata) -> bool {
        let noted = |key: &str| metadata.annotations.get(key).map(String::as_str);
        let of_release = self.release.is_some_and(|release| {
            noted("meta.helm.sh/release-name") == Some(release.name)
                && noted("meta.helm.sh/release-namespace") == Some(release.namespace)
        });
        of_release || owner(metadata, self.design_id) == Owner::Ours
    }
}

/// Objects that are not the asker's.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Foreign {
    pub(crate) count: usize,
    /// The first few of them, such as `configmaps shop/settings`.
    pub(crate) names: Vec<String>,
    /// Whether not all were counted.
    more: bool,
    /// Whether all of them have an owner that is gone, so that the garbage collector is about to remove them.
    orphaned: bool,
}

impl Foreign {
    fn add(&mut self, name: String) {
        self.count += 1;
        if self.names.len() < TOLD {
            self.names.push(name);
        }
    }

    fn merge(&mut self, other: Self) {
        if other.count == 0 {
            return;
        }
        self.orphaned = other.orphaned && (self.count == 0 || self.orphaned);
        self.count += other.count;
        self.more |= other.more;
        self.names.extend(other.names);
        self.names.truncate(TOLD);
    }

    /// "3 objects", or "500 objects or more" when not all were counted.
    pub(crate) fn count_text(&self) -> String {
        match (self.count, self.more) {
            (1, false) => "1 object".into(),
            (count, false) => format!("{count} objects"),
            (count, true) => format!("{count} objects or more"),
        }
    }
}

/// Objects in a namespace that are not the asker's.
///
/// Left out is what the cluster makes in every namespace (`everywhere`), and what an object of the namespace owns: its owner
/// is looked at itself. An owner outside the namespace is not, so what it owns counts.
///
/// # Errors
///
/// A sentence, when it cannot be told.
pub(crate) async fn of_namespace(
    cluster: &Cluster,
    namespace: &str,
    own: &Own<'_>,
    everywhere: &Everywhere,
    by: Instant,
) -> Result<Foreign, String> {
    settled(cluster, &Holds::Namespace { name: namespace, everywhere }, own, by).await
}

/// Objects of the kinds that these definitions define, in all namespaces, that are not the asker's. What another object owns
/// counts too: its owner may be anybody's. `names` are those of the definitions, such as `widgets.example.com`; one that
/// is not there defines nothing.
///
/// # Errors
///
/// A sentence, when it cannot be told.
pub(crate) async fn of_definitions(
    cluster: &Cluster,
    names: &[&str],
    own: &Own<'_>,
    by: Instant,
) -> Result<Foreign, String> {
    settled(cluster, &Holds::Definitions { names }, own, by).await
}

/// What is looked into.
enum Holds<'a> {
    Namespace { name: &'a str, everywhere: &'a Everywhere },
    Definitions { names: &'a [&'a str] },
}

/// Looks again while nothing is in the way but what the garbage collector is about to remove, and after a failed look.
async fn settled(cluster: &Cluster, what: &Holds<'_>, own: &Own<'_>, by: Instant) -> Result<Foreign, String> {
    let collected = by.min(Instant::now() + COLLECTION);
    let (mut pause, mut failed) = (FIRST_PAUSE, 0);
    loop {
        let seen = match what {
            Holds::Namespace { name, everywhere } => look_into_namespace(cluster, name, own, everywhere, by).await,
            Holds::Definitions { names } => look_into_definitions(cluster, names, own, by).await,
        };
        failed += u32::from(seen.is_err());
        let may_change = match &seen {
            Ok(foreign) => foreign.orphaned,
            Err(_) => failed < FAILED_LOOKS,
        };
        let next = Instant::now() + pause;
        if !may_change || next >= collected {
            return seen;
        }
        sleep_until(next).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn look_into_namespace(
    cluster: &Cluster,
    namespace: &str,
    own: &Own<'_>,
    everywhere: &Everywhere,
    by: Instant,
) -> Result<Foreign, String> {
    let kinds = listing::namespaced_kinds(cluster, by).await?;
    let lists = stream::iter(kinds.clone()).map(|kind| async move {
        let judge = |metadata| weigh::in_namespace(&kind, metadata, own, everywhere);
        listing::list(cluster, &kind, namespace, by, judge, weigh::some_is_foreign).await
    });
    let lists: Vec<_> = lists.buffered(AT_ONCE).try_collect().await?;
    Ok(weigh::namespace(&kinds, lists))
}

async fn look_into_definitions(
    cluster: &Cluster,
    names: &[&str],
    own: &Own<'_>,
    by: Instant,
) -> Result<Foreign, String> {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let each = stream::iter(names).map(|name| async move { of_definition(cluster, &name, own, by).await });
    let each: Vec<_> = each.buffered(AT_ONCE).try_collect().await?;
    let mut all = Foreign::default();
    each.into_iter().for_each(|foreign| all.merge(foreign));
    Ok(all)
}

#[derive(Deserialize)]
struct Definition {
    spec: DefinitionSpec,
    #[serde(default)]
    status: DefinitionStatus,
}

#[derive(Deserialize)]
struct DefinitionSpec {
    group: String,
    names: DefinitionNames,
    scope: String,
    versions: Vec<DefinitionVersion>,
}

#[derive(Deserialize)]
struct DefinitionNames {
    plural: String,
    kind: String,
}

#[derive(Deserialize)]
struct DefinitionVersion {
    name: String,
    #[serde(default)]
    served: bool,
    #[serde(default)]
    storage: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DefinitionStatus {
    #[serde(deserialize_with = "super::null_as_default")]
    conditions: Vec<Condition>,
}

impl Definition {
    /// Whether its kind was ever served. Established never becomes false again, so without it there can be no object.
    fn was_ever_served(&self) -> bool {
        self.status.conditions.iter().any(|condition| condition.kind == "Established" && condition.status == "True")
    }

    /// The kind, in a version that can be listed: the stored one if it is served, as it needs no conversion.
    fn kind(self) -> Option<Kind> {
        let DefinitionSpec { group, names, scope, versions } = self.spec;
        let served = || versions.iter().filter(|version| version.served);
        let version = served().find(|version| version.storage).or_else(|| served().next())?;
        Some(Kind {
            api_version: format!("{group}/{}", version.name),
            kind: names.kind,
            resource: Resource { plural: names.plural, namespaced: scope == "Namespaced", has_status: false },
        })
    }
}

async fn of_definition(cluster: &Cluster, name: &str, own: &Own<'_>, by: Instant) -> Result<Foreign, String> {
    let Some(definition) = definition(cluster, name, by).await? else { return Ok(Foreign::default()) };
    if !definition.was_ever_served() {
        return Ok(Foreign::default());
    }
    let Some(kind) = definition.kind() else {
        return Err(format!("definition {name} serves no version, so its objects cannot be listed"));
    };
    let judge = |metadata| weigh::of_kind(&kind, metadata, own);
    let listed = listing::list(cluster, &kind, "", by, judge, weigh::some_is_foreign).await?;
    let mut foreign = Foreign { more: listed.more, ..Foreign::default() };
    let (held, free): (Vec<_>, Vec<_>) =
        listed.items.into_iter().partition(|item| matches!(item.standing, Standing::Held(_)));
    free.into_iter().filter(|item| item.standing == Standing::Foreign).for_each(|item| foreign.add(item.told));
    foreign.orphaned = foreign.count == 0 && !held.is_empty() && all_orphaned(cluster, &held, by).await;
    held.into_iter().for_each(|item| foreign.add(item.told));
    Ok(foreign)
}

async fn definition(cluster: &Cluster, name: &str, by: Instant) -> Result<Option<Definition>, String> {
    let unreadable = || format!("definition {name} cannot be read");
    let subject = Subject {
        cluster: &cluster.name,
        api_version: "apiextensions.k8s.io/v1",
        kind: "CustomResourceDefinition",
        namespace: "",
        name,
        kind_in_design: false,
        namespace_in_design: false,
    };
    let resource = Resource { plural: "customresourcedefinitions".into(), namespaced: false, has_status: true };
    match object::read(cluster, &subject, &resource, "application/json", by).await {
        Ok(Found::There(definition)) => Ok(Some(definition)),
        Ok(Found::NotThere) => Ok(None),
        Err(_) => Err(unreadable()),
    }
}

/// Whether the owners of these objects are gone, as far as the first few of them tell: what is owned by a thing that is
/// there is not about to be collected.
async fn all_orphaned(cluster: &Cluster, held: &[Item], by: Instant) -> bool {
    for item in held.iter().take(TOLD) {
        for holder in item.holders() {
            if !is_gone(cluster, holder, &item.namespace, by).await {
                return false;
            }
        }
    }
    true
}

async fn is_gone(cluster: &Cluster, holder: &Holder, namespace: &str, by: Instant) -> bool {
    let Holder::Owner(OwnerReference { uid, api_version, kind, name }) = holder else { return false };
    let Ok(resource) = cluster.find(api_version, kind, Instant::now(), by).await else { return false };
    let subject = Subject {
        cluster: &cluster.name,
        api_version,
        kind,
        namespace: if resource.namespaced { namespace } else { "" },
        name,
        kind_in_design: false,
        namespace_in_design: false,
    };
    match object::read::<object::Bare>(cluster, &subject, &resource, object::METADATA_ONLY, by).await {
        Ok(Found::NotThere) => true,
        Ok(Found::There(object::Bare { metadata })) => metadata.uid != *uid,
        Err(_) => false,
    }
}
