//! Where charts come from, and what comes from there: bounded, looked over, told.

use bytes::Bytes;
use switchyard_proto::v1::Verdict;
use switchyard_tests::chart::{Archive, Serving};

use super::*;

/// Case 106: a host that is silent, slow, leads in a circle or has nothing is told within the time, and the component is applied.
#[tokio::test]
async fn host_that_does_not_deliver_is_told_within_the_time() {
    let stand = Stand::shared().await;
    let namespace = namespace("charts_hosts").await;
    let host = stand.host().await;
    let cases = [
        ("silent", host.answer("silent.tgz", Serving::Silence), "it took longer than"),
        ("slow", host.answer("slow.tgz", Serving::Drip), "it took longer than"),
        ("loop", host.answer("loop.tgz", Serving::Loop), "stopped after 10 redirects"),
        ("missing", host.url("missing.tgz"), "404 Not Found"),
        // Case 349. An address that nobody has (RFC 5737).
        ("plain", host.answer("plain.tgz", Serving::To("http://192.0.2.1/x.tgz".into())), "it leads on to http://"),
    ];
    let models: Vec<_> = cases.iter().map(|(name, url, _)| (*name, url.as_str(), "")).collect();
    let design = models.iter().fold(Design::new(), |design, (name, ..)| {
        let design = design.needs(name, name, &namespace, &[]);
        design.config_map(&format!("follows-{name}"), &namespace, &[name])
    });
    let outcome = stand.run(within(deploy(&design, &["east"], &models), 5)).await;
    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.summary);
    assert_eq!(outcome.results.len(), 10);
    for (name, url, wanted) in &cases {
        let (reason, message) = failure(&outcome, name);
        assert_eq!(reason, "CHART_UNFETCHABLE", "{message}");
        assert!(message.contains(wanted) && message.contains(url), "{message}");
    }
}

/// Case 350: a host that has no time at first is asked again; one that never has any is told.
#[tokio::test]
async fn host_without_time_is_asked_again() {
    let stand = Stand::shared().await;
    let namespace = namespace("charts_busy").await;
    let host = stand.host().await;
    let name = unique("busy");
    let (path, _folder) = Chart::new(&name).config_map("settings", "a").package().await.unwrap();
    let bytes = Bytes::from(std::fs::read(path).unwrap());
    let soon = host.answer("soon.tgz", Serving::Busy(2, bytes.clone()));
    let never = host.answer("never.tgz", Serving::Busy(usize::MAX, bytes));
    let design = Design::new().needs("soon", "a", &namespace, &[]).needs("never", "b", &namespace, &[]);
    let outcome = stand.run(deploy(&design, &["east"], &[("soon", &soon, ""), ("never", &never, "")])).await;
    assert_eq!(need(&outcome, "a", "east").outcome(), v1::Outcome::Succeeded, "{outcome:#?}");
    assert_eq!(host.asked("soon.tgz"), 3);
    let (reason, message) = failure(&outcome, "b");
    assert_eq!(reason, "CHART_UNFETCHABLE");
    assert!(message.contains("503 Service Unavailable"), "{message}");
    assert!(host.asked("never.tgz") > 3);
}

/// Case 354: the version beside an archive's URL is that of the archive.
#[tokio::test]
async fn archive_of_another_version_than_the_registry_names_is_refused() {
    let stand = Stand::shared().await;
    let namespace = namespace("charts_version").await;
    let host = stand.host().await;
    let url = host.serve(&Chart::new(&unique("version")).config_map("settings", "a")).await.unwrap();
    let design = Design::new().needs("m", "a", &namespace, &[]);
    let outcome = stand.run(deploy(&design, &["east"], &[("m", &url, "1.2.0")])).await;
    let (reason, message) = failure(&outcome, "a");
    assert_eq!(reason, "CHART_REFUSED");
    assert!(message.contains("names version 1.2.0") && message.contains("it is 1.0.0"), "{message}");
    let outcome = stand.run(deploy(&design, &["east"], &[("m", &url, "v1.0.0")])).await;
    assert_eq!(need(&outcome, "a", "east").outcome(), v1::Outcome::Succeeded, "{outcome:#?}");
}

/// Case 106: an answer without an end is ended by the memory that helm may take.
#[tokio::test]
async fn endless_answer_is_ended_by_its_size() {
    let stand = Stand::shared().await;
    let namespace = namespace("charts_endless").await;
    let host = stand.host().await;
    let url = host.answer("endless.tgz", Serving::Endless);
    let design = Design::new().needs("m", "a", &namespace, &[]);
    let outcome = stand.run(deploy(&design, &["east"], &[("m", &url, "")])).await;
    let (reason, message) = failure(&outcome, "a");
    assert_eq!(reason, "CHART_UNFETCHABLE");
    assert!(message.contains("it needed more than 512 MiB of memory"), "{message}");
    assert_eq!(outcome.verdict(), Verdict::Succeeded);
}

/// Case 106: what is not what the digest says does not come in.
#[tokio::test]
async fn chart_by_digest_is_that_chart_or_none() {
    let stand = Stand::shared().await;
    let namespace = namespace("charts_digest").await;
    let name = unique("digest");
    let url = stand.registry.push(&Chart::new(&name).config_map("settings", "a")).await.unwrap();
    let wrong = format!("{url}@sha256:{}", "0".repeat(64));
    let design = Design::new().needs("m", "a", &namespace, &[]);
    let outcome = stand.run(deploy(&design, &["east"], &[("m", &wrong, "")])).await;
    let (reason, message) = failure(&outcome, "a");
    assert_eq!(reason, "CHART_UNFETCHABLE", "{message}");
    assert_eq!(outcome.verdict(), Verdict::Succeeded);
    assert_eq!(releases(stand.pair.world.east(), &namespace).await, []);
}

/// Case 145: archives that would do harm are refused before helm reads them.
#[tokio::test]
async fn hostile_archive_is_refused() {
    let stand = Stand::with_helm(real_helm().await.to_str().unwrap()).await;
    let namespace = namespace("charts_hostile").await;
    let host = stand.host().await;
    let archive = || Archive::new("hostile").unwrap();
    // More than is taken, and not more than it takes to show that.
    let bomb = archive().zeros("hostile/bomb", 128 << 20).unwrap().bytes().unwrap();
    assert!(bomb.len() < 2 << 20, "{} bytes", bomb.len());
    let crowd = (0..10_001).fold(archive(), |archive, ix| archive.file_at(&format!("hostile/{ix}"), "").unwrap());
    let whole = archive().zeros("hostile/file", 1 << 16).unwrap().bytes().unwrap();
    let cases = [
        ("bomb", bomb, "unpacks to more than"),
        ("crowd", crowd.bytes().unwrap(), "more than 10000 files"),
        (
            "link",
            archive().link("hostile/link", "/etc/passwd").unwrap().bytes().unwrap(),
            "neither a file nor a folder",
        ),
        ("up", archive().file_at("hostile/../../x", "x").unwrap().bytes().unwrap(), "leads out of its folder"),
        ("root", archive().file_at("/tmp/x", "x").unwrap().bytes().unwrap(), "leads out of its folder"),
        ("half", whole.slice(..whole.len() / 2), "cannot be read as a chart"),
        ("html", Bytes::from_static(b"<html>nothing here</html>"), "cannot be read as a chart"),
    ];
    let served: Vec<_> =
        cases.iter().map(|(name, bytes, _)| (*name, host.answer(name, Serving::Bytes(bytes.clone())))).collect();
    let models: Vec<_> = served.iter().map(|(name, url)| (*name, url.as_str(), "")).collect();
    let design = models.iter().fold(Design::new(), |design, (name, ..)| design.needs(name, name, &namespace, &[]));
    let outcome = stand.run(deploy(&design, &["east"], &models)).await;
    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.summary);
    for (name, _, wanted) in &cases {
        let (reason, message) = failure(&outcome, name);
        assert_eq!(reason, "CHART_REFUSED", "{message}");
        assert!(message.contains(wanted), "{message}");
    }
    assert_eq!(releases(stand.pair.world.east(), &namespace).await, []);
    assert_eq!(stand.scratch(), Vec::<String>::new(), "nothing is left on disk");
}

/// What helm would take for something else than the place of a chart never reaches it.
#[tokio::test]
async fn only_https_and_oci_are_fetched_from() {
    let stand = Stand::shared().await;
    let namespace = namespace("charts_scheme").await;
    let url = stand.registry.push(&Chart::new(&unique("scheme"))).await.unwrap();
    let design = Design::new().needs("m", "a", &namespace, &[]);
    let client = stand.client().await;
    let plan = client.plan(deploy(&design, &["east"], &[("m", &url, "")])).await.unwrap();
    for url in ["http://127.0.0.1:1/x.tgz", "file:///etc/passwd", "--post-renderer=sh", "/etc/passwd"] {
        let mut plan = plan.clone();
        plan.steps[0].chart.as_mut().unwrap().url = url.into();
        let outcome = client.execute(plan.resealed(), vec![]).await.unwrap().finish().await.unwrap();
        let (reason, message) = failure(&outcome, "a");
        assert_eq!(reason, "CHART_REFUSED", "{message}");
        assert_eq!(outcome.verdict(), Verdict::Succeeded);
    }
}
