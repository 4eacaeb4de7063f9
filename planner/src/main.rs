//! The program `switchyard-planner`.

use std::process::ExitCode;

use switchyard_service::program::{self, Program};

const PROGRAM: Program =
    Program { name: "switchyard-planner", version: env!("CARGO_PKG_VERSION"), listen: "127.0.0.1:7001" };

fn main() -> ExitCode {
    program::main(&PROGRAM, switchyard_planner::run)
}
