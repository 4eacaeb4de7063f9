//! The executor's program.

use std::process::ExitCode;

use switchyard_service::program::{self, Program};

/// A component is some hundred small allocations that live until its answer has come, on threads that take turns. With this
/// allocator it takes the executor a fifteenth less processor time than with that of the C library, and no more memory
/// (`docs/performance.md`). Only where memory pages have one size: this allocator is built for that of the machine it is built on.
#[cfg(target_arch = "x86_64")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const PROGRAM: Program =
    Program { name: "switchyard-executor", version: env!("CARGO_PKG_VERSION"), listen: "127.0.0.1:7002" };

fn main() -> ExitCode {
    if let Some(code) = switchyard_executor::become_helm() {
        return code;
    }
    program::main(&PROGRAM, switchyard_executor::run)
}
