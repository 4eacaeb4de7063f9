//! No secret value in anything the engine says (D25), whatever the API server quotes.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use switchyard_proto::v1::Outcome;
use switchyard_tests::client::{self, TraceParent};

use crate::{design::Design, pair::Pair};

/// What must be found nowhere; each stands in another place of the design.
const MARKED: [&str; 6] = [
    "canary-stringdata-0d7f1",
    "canary-data-1d7f1",
    "canary-environment-2d7f1",
    "canary-token-3d7f1",
    "canary-registrant-4d7f1",
    "canary-url-5d7f1",
];

#[tokio::test]
async fn marked_values_are_in_no_result_span_log_line_or_status() {
    let pair = Pair::shared().await;
    let [string_data, data, environment, token, registrant, url] = MARKED;
    let encoded = BASE64_STANDARD.encode(data);
    let design = Design::new()
        // The API server refuses each of these and quotes what it refuses.
        .component("string-data", ("v1", "Secret"), &[], &format!("{{type: {string_data}/{string_data}!, stringData: {{'bad key!': {string_data}}}}}"))
        .component("typed", ("v1", "Secret"), &[], &format!("{{data: {{key: {{nested: {encoded}}}}}}}"))
        .component("plain", ("v1", "Secret"), &[], &format!("{{immutable: {encoded}, data: {{key: {encoded}}}}}"))
        .component(
            "environment",
            ("v1", "Pod"),
            &[],
            &format!("{{spec: {{containers: [{{name: c, image: i, env: [{{name: PASSWORD, value: {{is: {environment}}}}}, {{name: API_TOKEN, value: {token}, valueFrom: {token}}}]}}]}}}}"),
        )
        .component("token", ("v1", "ConfigMap"), &[], &format!("{{data: {{'api-token': {token}, 'bad key!': 'https://user:{url}@host/'}}}}"))
        .config_map("fine", "default", &["token"]);
    let with_registrant = design.text().replacen(
        "modelReference: {name: kubernetes}",
        &format!("model: {{name: kubernetes, registrant: {{kind: kubernetes, metadata: {{clientKeyData: {registrant}, port: null}}}}}}"),
        1,
    );
    let parent = TraceParent::random();
    let client = pair.client().await.traced(parent.clone());
    let request = client::deploy(with_registrant, &["east", "west"]);
    let plan = client.plan(request.clone()).await.unwrap();
    assert!(!format!("{:?} {:?}", plan.header, plan.steps).contains(registrant), "dropped on reading");
    let outcome = client.run(request, vec![]).await.unwrap();
    let failed = outcome.outcomes().values().filter(|outcome| **outcome == Outcome::Failed).count();
    assert_eq!(failed, 5, "{:#?}", outcome.summary);

    let refused = Design::new().config_map("x", "default", &["missing"]).text();
    let broken = format!("{refused}  {token}: [{string_data}\n");
    let status = client.plan(client::deploy(broken, &["east"])).await.unwrap_err();
    let kubeconfig = format!("users: [{{name: u, user: {{token: {token}, exec: {{command: {token}}}}}}}]");
    let access = vec![client::kubeconfig("east", kubeconfig)];
    let exec = client
        .run(client::deploy(Design::new().config_map("x", "default", &[]).text(), &["east"]), access)
        .await
        .unwrap_err();

    let complete = |trace: &switchyard_tests::sandbox::Trace| trace.named("PATCH secrets").count() >= 6;
    pair.world.jaeger().wait_for(parent.trace_id(), std::time::Duration::from_secs(30), complete).await.unwrap();
    let spans = pair.world.jaeger().trace_text(parent.trace_id()).await.unwrap();
    // Only what we said: the API server's own spans are not ours to mask, but they hold no bodies either.
    let said = [
        ("events", format!("{:?}", outcome.events)),
        ("spans", spans),
        ("planner log", pair.planner.log()),
        ("executor log", pair.executor.log()),
        ("status of a broken design", format!("{status:?} {:?}", String::from_utf8_lossy(status.details()))),
        ("status of a refused kubeconfig", format!("{exec:?} {:?}", String::from_utf8_lossy(exec.details()))),
    ];
    for (place, text) in &said {
        for value in MARKED {
            for spelling in [value.to_owned(), BASE64_STANDARD.encode(value)] {
                if let Some(at) = text.find(&spelling) {
                    let from = text[..at].char_indices().rev().nth(300).map_or(0, |(at, _)| at);
                    panic!("{value} stands in {place}: ...{}", &text[from..at + spelling.len()]);
                }
            }
        }
    }
}
