//! What a cluster has of a design: one LIST a kind, by the design's label (L3).

use std::collections::BTreeSet;

use serde_json::value::RawValue;
use switchyard_service::budget::Budget;
use tokio::time::Instant;

use super::{
    Cluster,
    discovery::Resource,
    listing::{self, Ask, Kind, Page, Piece, Unlisted},
    object::DESIGN_LABEL,
};

/// What is listed.
pub(crate) struct Wanted<'a> {
    pub(crate) design_id: &'a str,
    pub(crate) api_version: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) resource: Resource,
    /// Where objects may lie that are of interest: these are listed one by one where the credentials may not list all.
    pub(crate) namespaces: &'a BTreeSet<String>,
}

/// Lists all objects of a kind that carry the design's label. `keep` is given each as JSON, and what it does not keep is gone with its
/// page. While a page is looked at, its bytes count against `room`.
///
/// # Errors
///
/// A sentence, when they could not all be listed, or there was no room for a page.
pub(crate) async fn objects<T>(
    cluster: &Cluster,
    wanted: &Wanted<'_>,
    room: &Budget,
    by: Instant,
    mut keep: impl FnMut(&str) -> Option<T>,
) -> Result<Vec<T>, String> {
    let Wanted { design_id, api_version, kind, resource, namespaces } = wanted;
    let kind = Kind { api_version: (*api_version).into(), kind: (*kind).into(), resource: resource.clone() };
    let label = Some((DESIGN_LABEL, *design_id));
    let mut list = async |namespace: &str| {
        let mut kept = Vec::new();
        let ask = Ask { accept: "application/json", label };
        listing::pages(cluster, &kind, namespace, ask, by, |piece| {
            let Piece::Page(reply) = piece else {
                kept.clear();
                return Ok(None);
            };
            let mut share = room.share(usize::MAX);
            share.take(reply.body.len()).map_err(|why| Unlisted::Failed(why.to_string()))?;
            let page: Page<&RawValue> = listing::page(&kind, reply)?;
            kept.extend(page.items.iter().filter_map(|item| keep(item.get())));
            Ok(page.next())
        })
        .await?;
        Ok::<_, Unlisted>(kept)
    };
    match list("").await {
        Err(Unlisted::Forbidden(_)) if resource.namespaced => {
            let mut kept = Vec::new();
            for namespace in *namespaces {
                kept.extend(list(namespace).await?);
            }
            Ok(kept)
        }
        listed => Ok(listed?),
    }
}
