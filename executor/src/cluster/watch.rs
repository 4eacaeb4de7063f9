//! Watching the design's objects: one watch a kind and namespace, however many of its objects are waited for; and one a kind over
//! all namespaces once there are many of them. Watches have a connection of their own: each holds one of the hundred requests that
//! an API server takes at a time on a connection, which writes would have to wait for (case 253).
//!
//! A watch that is opened without a resource version begins with the objects as they are, so opening it again after a cut is
//! all that a cut takes: there is nothing to list apart and no version that could have expired (Kubernetes API concepts,
//! "Get state and start at most recent").

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
};

use futures::TryStreamExt;
use http::{HeaderMap, Request};
use kube::core::WatchEvent;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use switchyard_service::telemetry;
use tokio::{
    sync::watch,
    time::{Duration, Instant, sleep_until, timeout},
};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use super::{Cluster, Target, discovery::Resource, object};
use crate::{answers::classify::Subject, in_use::InUse};

/// How often a watch is opened at most, so that a server which closes each one is not hammered (case 59).
const BETWEEN_OPENINGS: Duration = Duration::from_secs(1);
/// How long a watch may be silent. A connection that swallows what it should carry looks the same as a calm cluster, so a
/// silent watch is opened again, which shows the objects as they are (case 59).
const LONGEST_SILENCE: Duration = Duration::from_secs(10);

/// Watches of one kind, each of one namespace, before the kind is watched over all namespaces.
const NAMESPACES: usize = 10;
/// Watches of one cluster. Beyond that, who waits looks for itself.
const MOST: usize = 90;

/// What is known of one object.
#[derive(Clone, Debug)]
pub(crate) enum Look {
    /// Nothing yet.
    Nothing,
    There(Arc<Value>),
    /// It was deleted.
    Gone,
    /// The cluster does not let us watch; whoever waits has to look for itself.
    Refused,
}

/// What a watch has shown so far.
#[derive(Default)]
struct Objects {
    /// By namespace and name.
    seen: BTreeMap<(String, String), watch::Sender<Look>>,
    refused: bool,
}

/// The watches of one cluster that somebody needs.
#[derive(Default)]
pub(super) struct Watches {
    open: InUse<Key, Watch>,
    /// Kinds that may not be watched over all namespaces.
    narrow: Narrow,
}

/// API version, plural, design.
type Kind = [String; 3];

type Narrow = Arc<Mutex<BTreeSet<Kind>>>;

/// What is watched: a kind, in one namespace or, if that is empty, in all.
type Key = (Kind, String);

struct Watch {
    objects: Arc<Mutex<Objects>>,
    /// Ends with the last that waits. None: there are too many watches already.
    _task: Option<AbortOnDropHandle<()>>,
}

/// What one who waits sees of one object.
pub(super) struct Looks {
    seen: watch::Receiver<Look>,
    /// Whether the present look has been handed out.
    fresh: bool,
    /// Whether all namespaces are watched though the object lies in one.
    is_wide: bool,
    _watch: Arc<Watch>,
}

impl Looks {
    /// Whether a refusal may be one to watch all namespaces, so that asking for looks anew helps.
    pub(super) fn is_wide(&self) -> bool {
        self.is_wide
    }

    /// The next look at the object.
    pub(super) async fn next(&mut self) -> Look {
        if !std::mem::take(&mut self.fresh) && !matches!(*self.seen.borrow(), Look::Refused) {
            // The sender lives as long as the watch, which is held here.
            self.seen.changed().await.ok();
        }
        self.seen.borrow_and_update().clone()
    }
}

impl Watches {
    /// Looks at the object that `subject` names, among those with the design's mark.
    pub(super) fn looks(
        &self,
        cluster: &Cluster,
        subject: &Subject<'_>,
        resource: &Resource,
        design_id: &str,
    ) -> Looks {
        let namespace = if resource.namespaced { subject.namespace } else { "" };
        let kind = [subject.api_version, &resource.plural, design_id].map(str::to_owned);
        let own = (kind, namespace.to_owned());
        let is_wide = !namespace.is_empty() && !self.open.has(&own) && self.has_many(&own.0);
        let watched = if is_wide { "" } else { namespace };
        let (kind, _) = own;
        let are_enough = self.open.count(|_| true) >= MOST;
        let watch = self.open.get((kind.clone(), watched.to_owned()), || {
            if are_enough {
                return Watch::none();
            }
            let refused = is_wide.then(|| (self.narrow.clone(), kind));
            Watch::open(cluster, &Subject { namespace: watched, ..subject.clone() }, resource, design_id, refused)
        });
        let seen = lock(&watch.objects).entry((namespace, subject.name)).subscribe();
        Looks { seen, fresh: true, is_wide, _watch: watch }
    }

    /// Whether the kind is watched in so many namespaces that all are to be watched at once, and may be.
    fn has_many(&self, kind: &Kind) -> bool {
        self.open.count(|(its, namespace)| its == kind && !namespace.is_empty()) >= NAMESPACES
            && !self.narrow.lock().expect("nothing panics while it holds the lock").contains(kind)
    }
}

impl Watch {
    /// No watch: whoever waits has to look for itself.
    fn none() -> Self {
        Self { objects: Arc::new(Mutex::new(Objects { refused: true, ..Objects::default() })), _task: None }
    }

    /// Watches the kind in the subject's namespace, or in all if it has none. `refused` is where it is noted if that is not permitted.
    fn open(
        cluster: &Cluster,
        subject: &Subject<'_>,
        resource: &Resource,
        design_id: &str,
        refused: Option<(Narrow, Kind)>,
    ) -> Self {
        let objects = Arc::<Mutex<Objects>>::default();
        let mut path = object::collection(subject.api_version, resource, subject.namespace);
        path.push_str("?watch=1&allowWatchBookmarks=true&labelSelector=");
        path.extend(utf8_percent_encode(object::DESIGN_LABEL, NON_ALPHANUMERIC));
        path.push_str("%3D");
        path.extend(utf8_percent_encode(design_id, NON_ALPHANUMERIC));
        let target = Target { name: "", ..object::target("WATCH", subject, resource, 1) };
        let span = cluster.span(&target, &path.parse().unwrap_or_default());
        let mut headers = HeaderMap::new();
        telemetry::inject(&span, &mut headers);
        let following = follow(cluster.watching().kube(), path, headers, objects.clone());
        let task = {
            let objects = objects.clone();
            async move {
                following.await;
                if let Some((narrow, kind)) = refused {
                    narrow.lock().expect("nothing panics while it holds the lock").insert(kind);
                }
                lock(&objects).refuse();
            }
        };
        Self { objects, _task: Some(AbortOnDropHandle::new(tokio::spawn(task.instrument(span)))) }
    }
}

/// Keeps a watch open and takes in what it shows. Ends when that is refused.
async fn follow(client: kube::Client, path: String, headers: HeaderMap, objects: Arc<Mutex<Objects>>) {
    loop {
        let opened = Instant::now();
        let mut request = Request::get(&path).body(Vec::new()).expect("the path is escaped");
        request.headers_mut().extend(headers.clone());
        match timeout(LONGEST_SILENCE, client.request_events::<Value>(request)).await {
            Ok(Ok(events)) => {
                let mut events = std::pin::pin!(events);
                // Whatever else than an event comes, opening it again is the answer.
                while let Ok(Ok(Some(event))) = timeout(LONGEST_SILENCE, events.try_next()).await {
                    lock(&objects).take(event);
                }
            }
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 401 | 403 | 404 | 405) => {
                tracing::debug!(code = status.code, "watching is refused");
                return;
            }
            Ok(Err(_)) => tracing::debug!("the watch could not be opened"),
            Err(_) => tracing::debug!("the watch was not answered"),
        }
        sleep_until(opened + BETWEEN_OPENINGS).await;
    }
}

impl Objects {
    fn take(&mut self, event: WatchEvent<Value>) {
        let (object, look) = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                let object = Arc::new(object);
                (object.clone(), Look::There(object))
            }
            WatchEvent::Deleted(object) => (Arc::new(object), Look::Gone),
            WatchEvent::Bookmark(_) | WatchEvent::Error(_) => return,
        };
        let metadata = &object["metadata"];
        if let Some(name) = metadata["name"].as_str() {
            let namespace = metadata["namespace"].as_str().unwrap_or_default();
            self.entry((namespace, name)).send_replace(look);
        }
    }

    fn refuse(&mut self) {
        self.refused = true;
        for seen in self.seen.values() {
            seen.send_replace(Look::Refused);
        }
    }

    fn entry(&mut self, (namespace, name): (&str, &str)) -> &watch::Sender<Look> {
        let first = if self.refused { Look::Refused } else { Look::Nothing };
        self.seen.entry((namespace.to_owned(), name.to_owned())).or_insert_with(|| watch::Sender::new(first))
    }
}

fn lock(objects: &Mutex<Objects>) -> MutexGuard<'_, Objects> {
    objects.lock().expect("nothing panics while it holds the lock")
}
