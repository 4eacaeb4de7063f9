//! A proxy between the executor and a real API server that makes happen what a healthy API server never shows.
//!
//! The real API server does the real work. The proxy terminates TLS (HTTP/2 or HTTP/1.1, by ALPN), writes down every
//! request, and passes it on, unless a [`Rule`] says otherwise: another answer, a late one, one that is lost after the
//! write was carried out, none at all. Rules are looked through in the order in which they were added; the first that fits
//! and is not used up decides.

pub(crate) mod body;
mod gate;
mod log;
mod proxy;
mod rule;
pub(crate) mod server;
mod upstream;

pub use gate::Gate;
pub use log::Seen;
pub use proxy::Proxy;
pub use rule::{Canned, Fault, Loss, Rule};
