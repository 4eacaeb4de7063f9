//! Ports on loopback that were free a moment ago.

use std::net::{Ipv4Addr, TcpListener};

use anyhow::Context as _;

/// How often a component is started with other ports after another program took one of them.
pub(crate) const ATTEMPTS: usize = 5;

/// Asks the kernel for `N` different ports. They are released before the component binds them, so another program
/// can come first; [`is_clash`] tells, and the caller tries again with other ports.
pub(crate) fn free<const N: usize>() -> anyhow::Result<[u16; N]> {
    // All are held until all are known, or the kernel may hand out one of them twice.
    let mut held = Vec::with_capacity(N);
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("failed to get a free port")?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}

/// Tells from a component's failure whether a port was taken.
pub(crate) fn is_clash(error: &anyhow::Error) -> bool {
    format!("{error:#}").contains("address already in use")
}
