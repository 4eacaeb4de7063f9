//! What an executor leaves behind that had no time to clean up (case 348).

use std::os::unix::fs::DirBuilderExt as _;

use bytes::Bytes;
use rustix::process::{Pid, Signal, kill_process};
use switchyard_tests::chart::Serving;

use super::*;

/// The processes that work below a folder. One that has ended is none, whoever collects it.
fn processes_in(folder: &std::path::Path) -> Vec<i32> {
    let folder = folder.canonicalize().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let works_there =
        |pid: &i32| std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(&folder));
    numbers.filter(works_there).collect()
}

/// Waits until a new executor has swept: it listens as soon as its address is known, and sweeps before it answers.
async fn wait_for_scratch(stand: &Stand, wanted: impl Fn(&[String]) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !wanted(&stand.scratch()) {
        assert!(Instant::now() < deadline, "{:?} is left", stand.scratch());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Helm ends with an executor that is killed, the release is marked as failed, and the next executor removes what is left on disk.
#[tokio::test]
async fn executor_that_is_killed_leaves_no_helm_no_pending_release_and_no_kubeconfig() {
    let mut stand = Stand::with_helm(real_helm().await.to_str().unwrap()).await;
    let hanging = Hanging::begin(&stand, "charts_killed").await;
    let scratch = stand.folder.path().join("scratch");
    assert_eq!(processes_in(&scratch).len(), 1, "helm is at work");
    let kept = scratch.join("of-somebody-else");
    std::fs::create_dir(&kept).unwrap();

    let executor = Pid::from_raw(stand.executor.process().id() as i32).unwrap();
    kill_process(executor, Signal::KILL).unwrap();
    hanging.wait_for(&stand, "failed").await;
    let deadline = Instant::now() + Duration::from_secs(30);
    while !processes_in(&scratch).is_empty() {
        assert!(Instant::now() < deadline, "helm goes on");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(stand.scratch().len() > 1, "a killed executor cannot remove its folders");

    let helm = real_helm().await;
    let next = Stand::executor(stand.pair, &stand.folder, &stand.authority).await.unwrap();
    let _next = next.arg("--helm").arg(helm).start().await.unwrap();
    wait_for_scratch(&stand, |left| left == ["of-somebody-else"]).await;
}

/// A second executor that starts leaves the folders of one that is at work alone.
#[tokio::test]
async fn executor_that_starts_leaves_the_folders_of_another_that_is_at_work() {
    let stand = Stand::with_helm(real_helm().await.to_str().unwrap()).await;
    let Hanging { mut execution, namespace, release } = Hanging::begin(&stand, "charts_sweep").await;
    let before = stand.scratch().len();
    assert!(before > 0, "helm works in a folder");
    let nobodys = stand.folder.path().join("scratch/switchyard-private-zzz");
    std::fs::DirBuilder::new().mode(0o700).create(&nobodys).unwrap();
    let next = Stand::executor(stand.pair, &stand.folder, &stand.authority).await.unwrap();
    let next = next.start().await.unwrap();
    wait_for_scratch(&stand, |_| !nobodys.exists()).await;
    // It answers when the sweep is over.
    let next = Client::connect(&stand.pair.planner.url(), &next.url()).await.unwrap();
    next.executor().list_runs(v1::ListRunsRequest::default()).await.unwrap();
    assert_eq!(stand.scratch().len(), before);
    execution.cancel("enough").await;
    execution.finish().await.unwrap();
    assert_eq!(releases(stand.pair.world.east(), &namespace).await, [one(&release, 1, "failed")]);
}

/// A chart URL without the name of a file, or with a strange one, leaves nothing behind.
#[tokio::test]
async fn chart_url_without_a_file_name_leaves_nothing_on_disk() {
    let stand = Stand::with_helm(real_helm().await.to_str().unwrap()).await;
    let namespace = namespace("charts_slash").await;
    let host = stand.host().await;
    let name = unique("slash");
    let (path, _folder) = Chart::new(&name).config_map("settings", "a").package().await.unwrap();
    let bytes = Bytes::from(std::fs::read(path).unwrap());
    let serve = |file: &str| host.answer(file, Serving::Bytes(bytes.clone()));
    let cases = [("root", serve(""), true), ("up", serve("charts/%2e%2e"), true), ("slash", serve("charts/"), false)];
    let models: Vec<_> = cases.iter().map(|(name, url, _)| (*name, url.as_str(), "")).collect();
    let design = models.iter().fold(Design::new(), |design, (name, ..)| design.needs(name, name, &namespace, &[]));
    let outcome = stand.run(deploy(&design, &["east"], &models)).await;
    for (component, url, refused) in &cases {
        if *refused {
            let (reason, message) = failure(&outcome, component);
            assert_eq!(reason, "CHART_REFUSED", "{message}");
            assert!(message.contains("names no file"), "{message}");
        } else {
            let need = need(&outcome, component, "east");
            assert_eq!(need.outcome(), v1::Outcome::Succeeded, "{url}: {need:#?}");
        }
    }
    assert_eq!(stand.scratch(), Vec::<String>::new());
}
