//! What the planner and the executor share, and only that: configuration, TLS, telemetry, health, reflection, signals,
//! drain and the details of gRPC errors.
//!
//! A program is [`program::main`] with a `run` function; `run` puts its services on a [`serve::Server`]. Everything
//! that holds for every call of either program (one span, no panic that escapes, a clean refusal while draining) is
//! done there, so a service's own code holds none of it.

mod accept;
pub mod attributes;
pub mod budget;
pub mod config;
mod connection;
mod greeting;
mod guard;
pub mod listen;
pub mod metrics;
mod places;
pub mod program;
pub mod received;
pub mod rpc;
pub mod serve;
pub mod shutdown;
pub mod status;
pub mod telemetry;
pub mod tls;
pub mod trace;
mod web;

pub use shutdown::Shutdown;
