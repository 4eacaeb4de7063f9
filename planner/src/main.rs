//! The program `switchyard-planner`.

use std::process::ExitCode;

use mimalloc::MiMalloc;
use switchyard_service::program::{self, Program};

/// A plan is millions of small allocations: with this allocator a design of 100,000 components takes a fifth less time and
/// no more memory (`cargo bench -p switchyard-planner`). It needs no more than the C compiler that ring needs as well.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

const PROGRAM: Program =
    Program { name: "switchyard-planner", version: env!("CARGO_PKG_VERSION"), listen: "127.0.0.1:7001" };

fn main() -> ExitCode {
    program::main(&PROGRAM, switchyard_planner::run)
}
