//! A real world to run Switchyard in: API servers on etcd, Jaeger, and the two programs themselves.
//!
//! Tests use [`Sandbox::shared`](sandbox::Sandbox::shared), one world for a whole test binary, and keep apart by
//! namespaces. A test that breaks things starts its own [`ControlPlane`](sandbox::ControlPlane). Nothing here needs
//! anything but this machine, listens beyond loopback, or survives the process that started it.

pub mod adapter;
pub mod chart;
pub mod client;
pub mod clients;
pub mod embedded;
pub mod fault;
pub mod plan;
pub mod programs;
pub mod relay;
pub mod sandbox;
pub mod usage;
pub mod work;
