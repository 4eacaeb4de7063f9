//! `cargo compare`: Switchyard beside the floor and its peers. See `switchyard_tests::compare`.

use std::process::ExitCode;

use clap::Parser as _;
use switchyard_tests::compare::{self, Args};

fn main() -> ExitCode {
    compare::main(Args::parse())
}
