//! Addresses that a request must not lead to, where the installation says so (`--deny-private-addresses`).
//!
//! Whoever calls names API servers, adapters and charts' hosts. Without this, the executor dials for a caller what only it can reach:
//! its own loopback, the cloud's metadata service, the network behind it. Names are resolved and looked at when a connection is
//! made, and what was looked at is what is dialled, so that a name which changes its address in between gains nothing.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use hyper_util::client::legacy::connect::{
    HttpConnector,
    dns::{GaiResolver, Name},
};
use tower::Service;

/// Whether requests may lead to private addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Anywhere.
    #[default]
    All,
    /// Only to addresses of the public Internet.
    Public,
}

/// An address that a request must not lead to. It says nothing of what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Denied;

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("requests may not lead to this address")
    }
}

impl std::error::Error for Denied {}

/// A name that no address is known for.
#[derive(Debug, thiserror::Error)]
#[error("the name cannot be resolved: {0}")]
pub(crate) struct NotResolved(#[from] io::Error);

impl Reach {
    /// Refuses a host that is such an address itself. Names are looked at when they are resolved.
    pub(crate) fn check(self, host: &str) -> Result<(), Denied> {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        match bare.parse::<IpAddr>() {
            Ok(address) if !self.permits(address) => Err(Denied),
            _ => Ok(()),
        }
    }

    fn permits(self, address: IpAddr) -> bool {
        self == Self::All || is_public(address)
    }

    /// A connector that dials only what is permitted. It looks at names alone: hosts that are addresses are for [`Self::check`].
    pub(crate) fn connector(self) -> HttpConnector<Resolver> {
        HttpConnector::new_with_resolver(Resolver { reach: self, inner: GaiResolver::new() })
    }

    fn only_permitted(self, mut addresses: Vec<SocketAddr>) -> io::Result<Vec<SocketAddr>> {
        let none = addresses.is_empty();
        addresses.retain(|address| self.permits(address.ip()));
        if addresses.is_empty() && !none { Err(io::Error::other(Denied)) } else { Ok(addresses) }
    }
}

/// Resolves names to addresses that may be dialled.
#[derive(Clone)]
pub(crate) struct Resolver {
    reach: Reach,
    inner: GaiResolver,
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let (reach, found) = (self.reach, self.inner.call(name));
        Box::pin(async move {
            let found = found.await.map_err(|error| io::Error::new(error.kind(), NotResolved::from(error)))?;
            Ok(reach.only_permitted(found.collect())?.into_iter())
        })
    }
}

/// Whether an address is one of the public Internet, by the registries of special addresses (RFC 6890). What is written in IPv6 and
/// means an IPv4 address is judged as that one.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => embedded(address).map_or_else(|| is_public_v6(address), is_public_v4),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_shared = a == 100 && (64..128).contains(&b);
    let is_benchmark = a == 198 && (b == 18 || b == 19);
    let is_protocol = (a, b, c) == (192, 0, 0);
    !(a == 0
        || address.is_loopback()
        || address.is_private()
        // With 169.254.169.254, where clouds hand out credentials.
        || address.is_link_local()
        || address.is_documentation()
        || is_shared
        || is_benchmark
        || is_protocol
        // Multicast, reserved and broadcast.
        || a >= 224)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    // Only 2000::/3 is given out to anybody; loopback, unique-local, link-local and multicast lie elsewhere.
    let is_documentation = first == 0x2001 && second == 0xdb8 || first == 0x3fff;
    // Teredo, ORCHID and the like.
    let is_protocol = first == 0x2001 && second < 0x200;
    first & 0xe000 == 0x2000 && !is_documentation && !is_protocol
}

/// The IPv4 address that an IPv6 address stands for: mapped (`::ffff:0:0/96`), compatible (`::/96`), behind NAT64 (`64:ff9b::/96`,
/// `64:ff9b:1::/48`), or 6to4 (`2002::/16`).
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let segments = address.segments();
    let of = |high: u16, low: u16| Some(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)));
    match segments {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] => of(high, low),
        [0, 0, 0, 0, 0xffff, 0, high, low] => of(high, low),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => of(high, low),
        // A prefix for local use: whatever is behind it is local.
        [0x64, 0xff9b, 1, ..] => Some(Ipv4Addr::LOCALHOST),
        [0x2002, high, low, ..] => of(high, low),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_public_internet_are_permitted() {
        for denied in [
            "127.0.0.1",
            "127.9.9.9",
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "169.254.0.1",
            "100.64.0.1",
            "192.0.0.192",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "::ffff:0:10.0.0.1",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001:db8::1",
            "2001::1",
            "fec0::1",
            "100::1",
        ] {
            assert!(!Reach::Public.permits(denied.parse().unwrap()), "{denied}");
            assert!(Reach::All.permits(denied.parse().unwrap()), "{denied}");
        }
        for permitted in
            ["1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"]
        {
            assert!(Reach::Public.permits(permitted.parse().unwrap()), "{permitted}");
        }
    }

    #[test]
    fn host_that_is_an_address_is_checked_with_and_without_brackets() {
        assert_eq!(Reach::Public.check("[::1]"), Err(Denied));
        assert_eq!(Reach::Public.check("::1"), Err(Denied));
        assert_eq!(Reach::Public.check("localhost"), Ok(()));
        assert_eq!(Reach::All.check("127.0.0.1"), Ok(()));
    }

    #[tokio::test]
    async fn name_is_judged_by_what_it_resolves_to_however_an_address_is_spelled() {
        for host in ["localhost", "127.1", "2130706433", "0x7f000001"] {
            let resolve = async |reach| {
                Resolver { reach, inner: GaiResolver::new() }.call(host.parse().unwrap()).await.map(Iterator::count)
            };
            assert!(resolve(Reach::All).await.unwrap() > 0, "{host}");
            assert_eq!(resolve(Reach::Public).await.unwrap_err().to_string(), Denied.to_string(), "{host}");
        }
    }
}
