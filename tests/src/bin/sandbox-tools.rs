//! Finds or builds tools of the sandbox and prints where they are: `sandbox-tools buf grpcurl`.

use std::process::ExitCode;

use switchyard_tests::sandbox::{Tool, Toolbox};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sandbox-tools: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let named = std::env::args().skip(1).map(|name| name.parse()).collect::<anyhow::Result<Vec<Tool>>>()?;
    let tools = if named.is_empty() { Tool::ALL.to_vec() } else { named };
    let toolbox = Toolbox::get_blocking(&tools)?;
    for tool in tools {
        println!("{tool}={}", toolbox.path(tool)?.display());
    }
    Ok(())
}
