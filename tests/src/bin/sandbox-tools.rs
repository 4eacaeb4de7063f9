//! Finds or builds tools of the sandbox and prints where they are: `sandbox-tools buf grpcurl`. `clients` makes the clients in
//! other languages that the tests run, as far as their toolchains are there.

use std::process::ExitCode;

use switchyard_tests::{
    clients::{Client, Language},
    sandbox::{Tool, Toolbox},
};

const CLIENTS: &str = "clients";

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sandbox-tools: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> anyhow::Result<()> {
    let (clients, named): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|name| name == CLIENTS);
    let named = named.iter().map(|name| name.parse()).collect::<anyhow::Result<Vec<Tool>>>()?;
    let tools = if named.is_empty() && clients.is_empty() { Tool::ALL.to_vec() } else { named };
    let toolbox = Toolbox::get(&tools).await?;
    for tool in tools {
        println!("{tool}={}", toolbox.path(tool)?.display());
    }
    for language in Language::OTHERS.into_iter().filter(|_| !clients.is_empty()) {
        match language.client().await? {
            Client::Ready(command) => println!("{language:?}={command:?}"),
            Client::Missing(why) => eprintln!("{why}"),
        }
    }
    Ok(())
}
