//! Tests of the whole, against a real control plane.

mod adapter;
mod deploy;
mod design;
mod faults;
mod grpcurl;
mod pair;
mod sandbox;
mod secrets;
mod trace;
