//! Charts that take their time, beside others (case 346).

use switchyard_proto::v1::{Change, Outcome, execute_response::Event};

use super::*;

/// A run whose charts all hang leaves places for others.
#[tokio::test]
async fn run_whose_charts_hang_does_not_hold_up_another() {
    let stand = Stand::with_helm(real_helm().await.to_str().unwrap()).await;
    let namespaces = [namespace("charts_hang").await, namespace("charts_beside").await];
    let east = stand.pair.world.east();
    let names: Vec<_> = (0..8).map(|ix| unique(&format!("hang{ix}"))).collect();
    let mut urls = Vec::new();
    for name in &names {
        urls.push(stand.registry.push(&Chart::new(name).endless_hook()).await.unwrap());
    }
    let models: Vec<_> = names.iter().zip(&urls).map(|(name, url)| (name.as_str(), url.as_str(), "")).collect();
    let design = names.iter().fold(Design::new(), |design, name| design.needs(name, name, &namespaces[0], &[]));
    let client = stand.client().await;
    let plan = client.plan(within(deploy(&design, &["east"], &models), 120)).await.unwrap();
    let mut hanging = client.execute(plan, vec![]).await.unwrap();
    let begun = hanging.next().await.unwrap().unwrap();
    assert!(matches!(begun.event, Some(Event::RunStarted(_))));
    // As many as there are places for one run on one cluster.
    let deadline = Instant::now() + Duration::from_secs(60);
    while releases(east, &namespaces[0]).await.len() < 4 {
        assert!(Instant::now() < deadline, "the charts do not hang");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let name = unique("beside");
    let url = stand.registry.push(&Chart::new(&name).config_map("settings", "a")).await.unwrap();
    let design = Design::new().needs("m", "a", &namespaces[1], &[]);
    let outcome = stand.run(within(deploy(&design, &["east"], &[("m", &url, "")]), 30)).await;
    let beside = need(&outcome, "a", "east");
    assert_eq!((beside.outcome(), beside.change()), (Outcome::Succeeded, Change::Created), "{beside:#?}");
    assert_eq!(releases(east, &namespaces[0]).await.len(), 4, "the others wait for their turn");
    hanging.cancel("enough").await;
    let outcome = hanging.finish().await.unwrap();
    assert_eq!(outcome.results.len(), names.len());
}

/// The time of a chart begins with its turn; that it had to wait is told.
#[tokio::test]
async fn time_of_a_chart_begins_with_its_turn_and_the_wait_is_told() {
    let stand = Stand::with_helm(real_helm().await.to_str().unwrap()).await;
    let namespace = namespace("charts_turn").await;
    let names: Vec<_> = (0..6).map(|ix| unique(&format!("turn{ix}"))).collect();
    let mut urls = Vec::new();
    for name in &names {
        urls.push(stand.registry.push(&Chart::new(name).endless_hook()).await.unwrap());
    }
    let models: Vec<_> = names.iter().zip(&urls).map(|(name, url)| (name.as_str(), url.as_str(), "")).collect();
    let design = names.iter().fold(Design::new(), |design, name| design.needs(name, name, &namespace, &[]));
    let outcome = stand.run(within(deploy(&design, &["east"], &models), 10)).await;
    let messages: Vec<_> = names.iter().map(|name| failure(&outcome, name).1).collect();
    assert!(messages.iter().all(|message| message.contains("was not installed")), "{messages:#?}");
    let waited = messages.iter().filter(|message| message.contains("its turn had come after")).count();
    assert_eq!(waited, 2, "{messages:#?}");
    // Each of them was begun.
    assert_eq!(releases(stand.pair.world.east(), &namespace).await.len(), names.len());
}
