//! Tests of the whole, against a real control plane.

mod sandbox;
