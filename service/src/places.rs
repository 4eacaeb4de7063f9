//! How many connections there may be, in all and from one peer (case 322).

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard},
};

use rustix::process::{Resource, getrlimit};

/// Most connections unless a flag says otherwise.
const MOST: usize = 4096;

/// The places for connections.
#[derive(Debug, Clone)]
pub(crate) struct Places(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    most: usize,
    most_per_peer: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_peer: HashMap<IpAddr, usize>,
}

/// The place of one connection.
#[derive(Debug)]
pub(crate) struct Place {
    places: Places,
    peer: IpAddr,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Full {
    #[error("there are {0} connections, as many as may be (--max-connections)")]
    All(usize),
    #[error("this peer has {0} connections, as many as one may have (--max-connections-per-peer)")]
    Peer(usize),
}

impl Places {
    /// Places for `most` connections, `most_per_peer` from one peer. Default: half of the files that the process may open, but at
    /// most 4096; and half of those for one peer, so that none can take all.
    pub(crate) fn new(most: Option<usize>, most_per_peer: Option<usize>) -> Self {
        let files = getrlimit(Resource::Nofile).current.and_then(|files| usize::try_from(files).ok());
        let most = most.unwrap_or_else(|| files.map_or(MOST, |files| MOST.min(files / 2))).max(1);
        let most_per_peer = most_per_peer.unwrap_or(most / 2).clamp(1, most);
        Self(Arc::new(Inner { most, most_per_peer, taken: Mutex::default() }))
    }

    /// Takes a place.
    pub(crate) fn take(&self, peer: IpAddr) -> Result<Place, Full> {
        let peer = who(peer);
        let mut taken = self.taken();
        if taken.all >= self.0.most {
            return Err(Full::All(self.0.most));
        }
        let of_peer = taken.by_peer.entry(peer).or_default();
        if *of_peer >= self.0.most_per_peer {
            return Err(Full::Peer(self.0.most_per_peer));
        }
        *of_peer += 1;
        taken.all += 1;
        Ok(Place { places: self.clone(), peer })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.taken.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Who is behind an address: one peer has a whole /64 of IPv6 addresses (RFC 6177).
fn who(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        taken.all -= 1;
        if let Some(of_peer) = taken.by_peer.get_mut(&self.peer) {
            *of_peer -= 1;
            if *of_peer == 0 {
                taken.by_peer.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_peer_takes_all_places_and_a_place_is_free_again_when_its_connection_ends() {
        let places = Places::new(Some(4), None);
        let peer = |text: &str| text.parse::<IpAddr>().unwrap();
        let first = places.take(peer("10.0.0.1")).unwrap();
        let _second = places.take(peer("::ffff:10.0.0.1")).unwrap();
        assert_eq!(places.take(peer("10.0.0.1")).err(), Some(Full::Peer(2)));
        let _third = places.take(peer("2001:db8::1")).unwrap();
        let _fourth = places.take(peer("2001:db8::2")).unwrap();
        assert_eq!(places.take(peer("2001:db8:0:1::1")).err(), Some(Full::All(4)));
        drop(first);
        assert!(places.take(peer("10.0.0.1")).is_ok());
    }

    #[test]
    fn default_leaves_files_for_other_uses() {
        let Inner { most, most_per_peer, .. } = *Places::new(None, None).0;
        assert!((1..=MOST).contains(&most) && most_per_peer <= most.div_ceil(2), "{most} {most_per_peer}");
    }
}
