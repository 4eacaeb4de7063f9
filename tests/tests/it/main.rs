//! Tests of the whole, against a real control plane.

mod adapter;
mod demo;
mod deploy;
mod design;
mod dry_run;
mod faults;
mod grpcurl;
mod pair;
mod readme;
mod sandbox;
mod secrets;
mod trace;
mod undeploy;
