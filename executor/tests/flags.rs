//! Flags of the executor that are checked at its start (case 333).

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use switchyard_executor::Args;
use switchyard_service::{
    Shutdown,
    program::{self, Program},
};

const PROGRAM: Program = Program { name: "switchyard-executor", version: "0", listen: "127.0.0.1:0" };

/// What the executor says of a flag before it serves.
async fn said(flag: &str, value: &str) -> String {
    let args: Args = match program::parse_from(&PROGRAM, ["switchyard-executor", flag, value]) {
        Ok(args) => args,
        Err(error) => return error.to_string().lines().next().unwrap().to_owned(),
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let served = switchyard_executor::run(args, listener, Shutdown::new());
    let served = tokio::time::timeout(std::time::Duration::from_secs(10), served).await;
    served.unwrap_or_else(|_| panic!("{flag} {value} serves")).unwrap_err().to_string()
}

#[tokio::test]
async fn flags_of_the_executor_are_checked_at_the_start() {
    for (flag, value) in [
        ("--helm", "/nonexistent"),
        ("--helm", "/etc"),
        ("--lock-namespace", "Not_Valid"),
        ("--lock-namespace", ""),
        ("--kubeconfig", "/nonexistent"),
        ("--adapter-ca", "/nonexistent"),
    ] {
        let said = said(flag, value).await;
        assert!(said.contains(flag) && said.contains(value) && said.lines().count() == 1, "{flag} {value}: {said}");
    }
}
