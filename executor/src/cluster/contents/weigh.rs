//! Which of the listed objects would be lost: pure.

use std::collections::HashSet;

use super::{Everywhere, Foreign, Own};
use crate::cluster::{
    discovery,
    listing::{Kind, Listed},
    object::{Metadata, OwnerReference},
};

/// How far a chain of owners is followed. Longer ones, and owners in a circle, count as nobody's.
const CHAIN: usize = 32;

/// One listed object, as far as it is judged.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// How it is called in messages; empty where it will not be named.
    pub(super) told: String,
    pub(super) namespace: String,
    uid: String,
    /// Resource and name, of a kind that others belong to by name.
    named: Option<(&'static str, String)>,
    pub(super) standing: Standing,
}

impl Item {
    /// What it belongs to; nothing where that was not asked.
    pub(super) fn holders(&self) -> &[Holder] {
        match &self.standing {
            Standing::Held(holders) => holders,
            Standing::NoLoss | Standing::Foreign => &[],
        }
    }
}

/// What an object is to the asker.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Its own, or what the cluster makes by itself.
    NoLoss,
    /// Somebody else's.
    Foreign,
    /// It belongs to others, and goes with them.
    Held(Vec<Holder>),
}

/// What another object belongs to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// Its owner.
    Owner(OwnerReference),
    /// The object of the same namespace that it was made for.
    Named(&'static str, String),
}

/// Whether there is an object among them that is somebody else's for certain.
pub(super) fn some_is_foreign(items: &[Item]) -> bool {
    items.iter().any(|item| item.standing == Standing::Foreign)
}

/// Judges one object of a namespace.
pub(super) fn in_namespace(kind: &Kind, metadata: Metadata, own: &Own<'_>, everywhere: &Everywhere) -> Item {
    let (plural, group) = (kind.resource.plural.as_str(), kind.group());
    let no_loss = own.includes(&metadata)
        // Events tell of other objects, and end by themselves.
        || (plural == "events" && matches!(group, "" | "events.k8s.io"))
        || everywhere.includes(plural, group, &metadata.name);
    let standing = if no_loss { Standing::NoLoss } else { standing(holders(plural, group, &metadata), &metadata) };
    let named = match (group, plural) {
        ("", "services") => Some("services"),
        ("", "serviceaccounts") => Some("serviceaccounts"),
        _ => None,
    };
    let named = named.map(|resource| (resource, metadata.name.clone()));
    item(kind, metadata, named, standing)
}

/// Judges one object of a definition's kind.
pub(super) fn of_kind(kind: &Kind, metadata: Metadata, own: &Own<'_>) -> Item {
    let standing = if own.includes(&metadata) { Standing::NoLoss } else { standing(owners(&metadata), &metadata) };
    item(kind, metadata, None, standing)
}

fn standing(holders: Vec<Holder>, metadata: &Metadata) -> Standing {
    match holders.is_empty() {
        true => Standing::Foreign,
        // It is on its way out already, as its owner is.
        false if metadata.deletion_timestamp.is_some() => Standing::NoLoss,
        false => Standing::Held(holders),
    }
}

fn item(kind: &Kind, metadata: Metadata, named: Option<(&'static str, String)>, standing: Standing) -> Item {
    let Metadata { name, namespace, uid, .. } = metadata;
    let told = match standing {
        Standing::NoLoss => String::new(),
        _ if namespace.is_empty() => format!("{} {name}", kind.resource.plural),
        _ => format!("{} {namespace}/{name}", kind.resource.plural),
    };
    Item { told, namespace, uid, named, standing }
}

fn owners(metadata: &Metadata) -> Vec<Holder> {
    metadata.owner_references.iter().cloned().map(Holder::Owner).collect()
}

/// What an object belongs to: its owners, or what a controller of Kubernetes made it for without saying so.
fn holders(plural: &str, group: &str, metadata: &Metadata) -> Vec<Holder> {
    let owners = owners(metadata);
    if !owners.is_empty() || !group.is_empty() {
        return owners;
    }
    match plural {
        "endpoints" => vec![Holder::Named("services", metadata.name.clone())],
        "secrets" => {
            let account = metadata.annotations.get("kubernetes.io/service-account.name");
            account.map(|account| Holder::Named("serviceaccounts", account.clone())).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// Weighs everything that was listed in one namespace. `kinds` are those that were listed.
pub(super) fn namespace(kinds: &[Kind], lists: Vec<Listed<Item>>) -> Foreign {
    let mut foreign = Foreign { more: lists.iter().any(|list| list.more), ..Foreign::default() };
    let items: Vec<_> = lists.into_iter().flat_map(|list| list.items).collect();
    let (held, free): (Vec<_>, Vec<_>) = items.into_iter().partition(|item| matches!(item.standing, Standing::Held(_)));
    free.iter().filter(|item| item.standing == Standing::Foreign).for_each(|item| foreign.add(item.told.clone()));
    if foreign.more {
        // Not everything was seen, so nothing can be said of what belongs to others. What was found is enough to refuse.
        return foreign;
    }
    let mut seen = Seen::default();
    free.iter().for_each(|item| seen.add(item));
    let mut held: Vec<_> = held.iter().collect();
    for _ in 0..CHAIN {
        let is_held = |item: &&Item| item.holders().iter().all(|holder| seen.has(holder));
        let (now, later): (Vec<&Item>, Vec<&Item>) = held.iter().copied().partition(is_held);
        if now.is_empty() {
            break;
        }
        now.into_iter().for_each(|item| seen.add(item));
        held = later;
    }
    let kinds: HashSet<_> = kinds.iter().map(|kind| (kind.group(), kind.kind.as_str())).collect();
    // An owner of a kind that lies in namespaces lies in this one, where it would have been seen: so it is gone, and the
    // garbage collector is about to remove what it owned.
    let is_gone = |holder: &Holder| match holder {
        Holder::Owner(owner) => kinds.contains(&(discovery::group(&owner.api_version), owner.kind.as_str())),
        Holder::Named(..) => true,
    };
    let orphaned = |item: &&Item| item.holders().iter().all(|holder| seen.has(holder) || is_gone(holder));
    foreign.orphaned = foreign.count == 0 && !held.is_empty() && held.iter().all(orphaned);
    held.into_iter().for_each(|item| foreign.add(item.told.clone()));
    foreign
}

/// What belongs to nobody else, or to something that was seen.
#[derive(Default)]
struct Seen<'a> {
    uids: HashSet<&'a str>,
    names: HashSet<(&'static str, &'a str)>,
}

impl<'a> Seen<'a> {
    fn add(&mut self, item: &'a Item) {
        self.uids.insert(&item.uid);
        self.names.extend(item.named.as_ref().map(|(resource, name)| (*resource, name.as_str())));
    }

    fn has(&self, holder: &Holder) -> bool {
        match holder {
            Holder::Owner(owner) => self.uids.contains(owner.uid.as_str()),
            Holder::Named(resource, name) => self.names.contains(&(*resource, name.as_str())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{contents::Release, discovery::Resource, object::DESIGN_LABEL};

    const OWN: Own<'static> = Own { design_id: "ours", release: None };

    fn kind(api_version: &str, kind: &str, plural: &str) -> Kind {
        let resource = Resource { plural: plural.into(), namespaced: true, has_status: false };
        Kind { api_version: api_version.into(), kind: kind.into(), resource }
    }

    fn object(name: &str) -> Metadata {
        Metadata { name: name.into(), namespace: "shop".into(), uid: format!("uid of {name}"), ..Metadata::default() }
    }

    fn marked(name: &str, design: &str) -> Metadata {
        Metadata { labels: [(DESIGN_LABEL.to_owned(), design.to_owned())].into(), ..object(name) }
    }

    fn owned(name: &str, owners: &[(&str, &str, &str)]) -> Metadata {
        let owner = |&(api_version, kind, name): &(&str, &str, &str)| OwnerReference {
            api_version: api_version.into(),
            kind: kind.into(),
            name: name.into(),
            uid: format!("uid of {name}"),
        };
        Metadata { owner_references: owners.iter().map(owner).collect(), ..object(name) }
    }

    fn weighed(objects: Vec<(&Kind, Metadata)>) -> Foreign {
        let kinds: Vec<_> = ["ConfigMap", "Secret", "Service", "ServiceAccount", "Endpoints", "Pod"]
            .map(|name| kind("v1", name, &name.to_lowercase()))
            .into();
        let everywhere = ["configmaps/kube-root-ca.crt", "serviceaccounts/default"];
        let everywhere = everywhere.map(|place| place.parse().unwrap()).into_iter().collect();
        let items = objects.into_iter().map(|(kind, object)| in_namespace(kind, object, &OWN, &everywhere)).collect();
        namespace(&kinds, vec![Listed { items, more: false }])
    }

    #[test]
    fn what_is_not_of_the_design_is_named() {
        let maps = kind("v1", "ConfigMap", "configmaps");
        let foreign = weighed(vec![(&maps, marked("a", "ours")), (&maps, marked("b", "theirs")), (&maps, object("c"))]);
        assert_eq!(foreign.names, ["configmaps shop/b", "configmaps shop/c"]);
        assert!(!foreign.orphaned);
    }

    #[test]
    fn an_owned_object_goes_with_an_owner_that_was_seen() {
        let maps = kind("v1", "ConfigMap", "configmaps");
        let child = owned("child", &[("v1", "ConfigMap", "parent")]);
        let grandchild = owned("grandchild", &[("v1", "ConfigMap", "child")]);
        let ours = vec![(&maps, grandchild.clone()), (&maps, child.clone()), (&maps, marked("parent", "ours"))];
        assert_eq!(weighed(ours).count, 0);
        // Of others, the owner is what is named.
        let theirs = vec![(&maps, grandchild), (&maps, child), (&maps, object("parent"))];
        assert_eq!(weighed(theirs).names, ["configmaps shop/parent"]);
    }

    #[test]
    fn an_owner_outside_the_namespace_keeps_nothing_from_being_lost() {
        let maps = kind("v1", "ConfigMap", "configmaps");
        let foreign = weighed(vec![(&maps, owned("child", &[("v1", "Node", "n"), ("v1", "ConfigMap", "gone")]))]);
        assert_eq!((foreign.count, foreign.orphaned), (1, false));
        let both = owned("both", &[("v1", "Node", "n"), ("v1", "ConfigMap", "parent")]);
        assert_eq!(weighed(vec![(&maps, both), (&maps, marked("parent", "ours"))]).count, 1);
    }

    #[test]
    fn an_owner_that_is_gone_leaves_what_the_garbage_collector_takes() {
        let maps = kind("v1", "ConfigMap", "configmaps");
        let child = owned("child", &[("v1", "ConfigMap", "parent")]);
        let foreign = weighed(vec![(&maps, child.clone())]);
        assert_eq!((foreign.count, foreign.orphaned), (1, true));
        let going = Metadata { deletion_timestamp: Some("2026-11-30T10:00:00Z".into()), ..child.clone() };
        assert_eq!(weighed(vec![(&maps, going)]).count, 0);
        assert!(!weighed(vec![(&maps, child), (&maps, object("other"))]).orphaned);
    }

    #[test]
    fn owners_in_a_circle_vouch_for_nobody() {
        let maps = kind("v1", "ConfigMap", "configmaps");
        let (a, b) = (owned("a", &[("v1", "ConfigMap", "b")]), owned("b", &[("v1", "ConfigMap", "a")]));
        assert_eq!(weighed(vec![(&maps, a), (&maps, b)]).count, 2);
    }

    #[test]
    fn what_controllers_make_is_nobodys_loss() {
        let of = |name, plural| kind("v1", name, plural);
        let (maps, secrets) = (of("ConfigMap", "configmaps"), of("Secret", "secrets"));
        let (accounts, services) = (of("ServiceAccount", "serviceaccounts"), of("Service", "services"));
        let endpoints = of("Endpoints", "endpoints");
        let token = |account: &str| Metadata {
            annotations: [("kubernetes.io/service-account.name".to_owned(), account.to_owned())].into(),
            ..object("token")
        };
        let nobodys = vec![
            (&maps, object("kube-root-ca.crt")),
            (&accounts, object("default")),
            (&secrets, token("default")),
            (&services, marked("web", "ours")),
            (&endpoints, object("web")),
        ];
        assert_eq!(weighed(nobodys).count, 0);
        // Made by hand, or for something that is not there.
        for (kind, object) in [(&secrets, token("ci")), (&endpoints, object("external")), (&secrets, object("tls"))] {
            assert_eq!(weighed(vec![(kind, object)]).count, 1);
        }
        let slices = kind("discovery.k8s.io/v1", "EndpointSlice", "endpointslices");
        assert_eq!(weighed(vec![(&slices, object("by-hand"))]).count, 1);
        let events = kind("events.k8s.io/v1", "Event", "events");
        let theirs = kind("calendar.example/v1", "Event", "events");
        assert_eq!(weighed(vec![(&events, object("e")), (&theirs, object("party"))]).count, 1);
    }

    #[test]
    fn of_a_kind_owned_objects_count_too() {
        let widgets = kind("a.example/v1", "Widget", "widgets");
        let standing = |object| of_kind(&widgets, object, &OWN).standing;
        assert_eq!(standing(marked("a", "ours")), Standing::NoLoss);
        assert_eq!(standing(object("a")), Standing::Foreign);
        assert!(matches!(standing(owned("a", &[("v1", "Service", "s")])), Standing::Held(_)));
    }

    #[test]
    fn a_release_has_its_own_objects() {
        let own = Own { design_id: "ours", release: Some(Release { name: "mesh", namespace: "system" }) };
        let noted = |name: &str, namespace: &str| Metadata {
            annotations: [("name", name), ("namespace", namespace)]
                .map(|(key, value)| (format!("meta.helm.sh/release-{key}"), value.to_owned()))
                .into(),
            ..object("a")
        };
        assert!(own.includes(&noted("mesh", "system")));
        assert!(!own.includes(&noted("mesh", "other")));
        assert!(!own.includes(&noted("other", "system")));
        assert!(!OWN.includes(&noted("mesh", "system")));
        assert!(own.includes(&marked("a", "ours")));
    }
}
