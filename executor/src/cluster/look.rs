//! One look at an object that others write or remove. Reads only.

use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::{
    Cluster,
    discovery::{self, Absence, Resource},
    object::{self, Found},
};
use crate::answers::{
    classify::{self, Subject, Verdict},
    failure::Reason,
};

/// Where an object is, or would be.
pub(crate) struct Place<'a> {
    /// Its namespace is empty if the kind is cluster-scoped.
    pub(crate) subject: Subject<'a>,
    pub(crate) resource: Resource,
}

impl<'a> Place<'a> {
    /// Where an object is, as a resource of this version.
    pub(crate) fn new(subject: &Subject<'a>, api_version: &'a str, resource: Resource) -> Self {
        let namespace = if resource.namespaced { subject.namespace } else { "" };
        Self { subject: Subject { api_version, namespace, ..subject.clone() }, resource }
    }
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
            discovery::Error::NoVersion => Unseen::Unreadable(classify::no_version(subject)),
            discovery::Error::Failed(why) => Unseen::Unreadable(classify::discovery_failed(subject, &why)),
        })?;
        Ok(Place::new(subject, subject.api_version, resource))
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

    /// The same in whatever version the kind is served: its objects are the same in all. None if the cluster proves that it serves
    /// none, so that there is no object (D18).
    pub(crate) async fn look_in_any_version<T: DeserializeOwned>(
        &self,
        subject: &Subject<'_>,
        accept: &'static str,
        by: Instant,
    ) -> Result<Option<Found<T>>, Verdict> {
        match self.look(subject, accept, by).await {
            Ok(found) => return Ok(Some(found)),
            Err(Unseen::Unreadable(verdict)) => return Err(verdict),
            Err(Unseen::NotServed) => {}
        }
        match self.absence(subject.api_version, subject.kind, by).await {
            Ok(Absence::Proven) => Ok(None),
            Ok(Absence::Elsewhere(api_version, resource)) => {
                let Place { subject, resource } = Place::new(subject, &api_version, resource);
                object::read(self, &subject, &resource, accept, by).await.map(Some)
            }
            Err(why) => Err(classify::discovery_failed(subject, &why)),
        }
    }
}
