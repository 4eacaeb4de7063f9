//! One look at an object that others write or remove. Reads only.

use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::{
    Cluster,
    discovery::{self, Resource},
    object::{self, Found},
};
use crate::verdict::{self, Reason, Subject, Verdict};

/// Where an object is, or would be.
pub(crate) struct Place<'a> {
    /// Its namespace is empty if the kind is cluster-scoped.
    pub(crate) subject: Subject<'a>,
    pub(crate) resource: Resource,
}

/// Why an object could not be looked at.
#[derive(Clone, Debug)]
pub(crate) enum Unseen {
    /// The cluster says that it does not serve the kind.
    NotServed,
    /// Nobody can tell.
    Unreadable(Verdict),
}

impl Cluster {
    /// Finds out where an object is.
    pub(crate) async fn locate<'a>(&self, subject: &Subject<'a>, by: Instant) -> Result<Place<'a>, Unseen> {
        let found = self.find(subject.api_version, subject.kind, Instant::now(), by).await;
        let resource = found.map_err(|error| match error {
            discovery::Error::Unknown { .. } => Unseen::NotServed,
            discovery::Error::Failed(why) => Unseen::Unreadable(verdict::discovery_failed(subject, &why)),
        })?;
        let namespace = if resource.namespaced { subject.namespace } else { "" };
        Ok(Place { subject: Subject { namespace, ..subject.clone() }, resource })
    }

    /// Reads an object as `T`, whose form `accept` asks for.
    pub(crate) async fn look<T: DeserializeOwned>(
        &self,
        subject: &Subject<'_>,
        accept: &'static str,
        by: Instant,
    ) -> Result<Found<T>, Unseen> {
        let place = self.locate(subject, by).await?;
        match object::read(self, &place.subject, &place.resource, accept, by).await {
            // What was known of the kind may be from before its definition went, and has been forgotten by now.
            Err(Verdict::Again { failure, .. }) if failure.reason == Reason::KindUnknown => {
                let Place { subject, resource } = self.locate(subject, by).await?;
                object::read(self, &subject, &resource, accept, by).await.map_err(Unseen::Unreadable)
            }
            read => read.map_err(Unseen::Unreadable),
        }
    }
}
