//! The executor's program.

use std::process::ExitCode;

use switchyard_service::program::{self, Program};

const PROGRAM: Program =
    Program { name: "switchyard-executor", version: env!("CARGO_PKG_VERSION"), listen: "127.0.0.1:7002" };

fn main() -> ExitCode {
    program::main(&PROGRAM, switchyard_executor::run)
}
