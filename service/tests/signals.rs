//! What real signals do. In a binary of its own: a signal reaches the whole process.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::{process::Command, time::Duration};

use switchyard_service::Shutdown;

fn send(signal: &str) {
    let sent = Command::new("kill").args([signal, &std::process::id().to_string()]).status().unwrap();
    assert!(sent.success());
}

#[tokio::test]
async fn the_first_signal_drains_the_second_aborts_and_a_hangup_does_neither() {
    let shutdown = Shutdown::from_signals().unwrap();
    let limit = Duration::from_secs(5);

    // Case 331: its default would have ended this process.
    send("-HUP");
    let early = tokio::time::timeout(Duration::from_millis(50), shutdown.draining()).await;
    assert!(early.is_err(), "a hangup is no reason to drain");

    send("-TERM");
    tokio::time::timeout(limit, shutdown.draining()).await.unwrap();
    let early = tokio::time::timeout(Duration::from_millis(50), shutdown.aborted()).await;
    assert!(early.is_err(), "one signal is not two");

    send("-INT");
    tokio::time::timeout(limit, shutdown.aborted()).await.unwrap();
}
