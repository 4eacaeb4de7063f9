//! Tests of the whole, against a real control plane.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod adapter;
mod architecture;
mod calling;
mod carrier;
mod clients;
mod compare;
mod demo;
mod dependencies;
mod deploy;
mod design;
mod dice;
mod dry_run;
mod failures;
mod faults;
mod grpcurl;
mod instructions;
mod judges;
mod manifests;
mod metrics;
mod pair;
mod proof;
mod readiness;
mod readme;
mod rules;
mod sandbox;
mod secrets;
mod story;
mod trace;
mod undeploy;
mod world;
mod yaml;
