//! `cargo demo`: shows Switchyard at work.

use std::process::ExitCode;

use clap::Parser as _;
use switchyard_tests::demo::{self, Args};

fn main() -> ExitCode {
    demo::main(Args::parse())
}
