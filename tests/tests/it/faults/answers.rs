//! Group 4: answers that are late, lost, odd, or ask to come back.

use std::{sync::Arc, time::Duration};

use http::StatusCode;
use serde_json::{Value, json};
use switchyard_proto::v1::{Change, Outcome};
use switchyard_tests::{
    fault::{Canned, Fault, Loss, Rule},
    plan::Draft,
};

use super::stage::{Stage, assert_applied, assert_failed, failure};

fn webhook_away() -> Canned {
    let message = "Internal error occurred: failed calling webhook \"pods.example.com\": failed to call webhook: Post \
                   \"https://hook.shop.svc:443/\": dial tcp 10.0.0.7:443: connect: connection refused";
    Canned::refusal(500, "InternalError", message, Value::Null)
}

/// Case 50, D8: a write whose answer is lost is found out about, in all of its variants, and stored once.
#[tokio::test]
async fn a_write_whose_answer_is_lost_is_sent_again_and_proven() {
    let stage = Stage::set("lost-answers").await;
    let losses = [
        ("before-headers", Loss::BeforeHeaders),
        ("after-headers", Loss::AfterHeaders),
        ("half-body", Loss::HalfBody),
        ("gateway-timeout", Loss::GatewayTimeout),
        ("silence", Loss::Silence),
        ("silence-after-headers", Loss::SilenceAfterHeaders),
    ];
    for (name, loss) in losses {
        stage.east.add(Rule::patch(&format!("/{name}"), Fault::Lose(loss)).times(1));
    }

    // One after the other: a connection that breaks takes everything on it along.
    for (name, _) in losses {
        let draft = Draft::on(&["east"]).step_timeout(8_000).apply(name, &[], &stage.config_map(name));
        let outcome = stage.run(&draft).await;

        assert_applied(&outcome, name, Change::Created);
        assert_eq!(outcome.target(name, "east").unwrap().attempts, 2, "{name}");
        assert_eq!(stage.east.applies(&format!("/{name}")), 2, "{name}");
        let managed = stage.object("v1/configmaps", name).await.unwrap()["metadata"]["managedFields"].clone();
        assert_eq!(managed.as_array().unwrap().len(), 1, "{managed}");
    }
}

/// Case 50, D8: what cannot be found out is indeterminate, says so, and withholds like a failure.
#[tokio::test]
async fn a_write_that_stays_unanswered_is_indeterminate_and_withholds() {
    let stage = Stage::set("unanswered").await;
    stage.east.add(Rule::patch("/first", Fault::Lose(Loss::Silence)).times(1));
    stage.east.add(Rule::patch("/first", Fault::Ignore));
    let draft = Draft::on(&["east"]).step_timeout(2_000).apply("first", &[], &stage.config_map("first")).apply(
        "second",
        &["first"],
        &stage.config_map("second"),
    );

    let outcome = stage.run(&draft).await;

    assert_eq!(outcome.outcomes()["first"], Outcome::Indeterminate);
    let failure = failure(&outcome, "first", "east");
    assert!(failure.message.contains("east") && failure.message.contains("may have been applied"), "{failure:?}");
    assert_eq!(outcome.outcomes()["second"], Outcome::Withheld);
    assert_eq!(stage.east.applies("/second"), 0);
}

/// Case 50: an answer that is lost after others were refused for overload is looked into all the same.
#[tokio::test]
async fn a_lost_answer_is_looked_into_also_after_other_troubles() {
    let stage = Stage::set("lost-after-troubles").await;
    stage.east.add(Rule::patch("/unlucky", Fault::Answer(Canned::status(429))).times(4));
    stage.east.add(Rule::patch("/unlucky", Fault::Lose(Loss::HalfBody)).times(1));
    let draft = Draft::on(&["east"]).step_timeout(20_000).apply("unlucky", &[], &stage.config_map("unlucky"));

    let outcome = stage.run(&draft).await;

    assert_applied(&outcome, "unlucky", Change::Created);
}

/// Cases 50 and 91, D8: credentials that expire after a lost answer prove nothing about it.
#[tokio::test]
async fn a_lost_answer_that_cannot_be_looked_into_for_lack_of_credentials_is_indeterminate() {
    let stage = Stage::set("lost-and-expired").await;
    stage.east.add(Rule::patch("/lost", Fault::Lose(Loss::HalfBody)).times(1));
    let unauthorised = Canned::refusal(401, "Unauthorized", "Unauthorized", Value::Null);
    stage.east.add(Rule::patch("/configmaps/", Fault::Answer(unauthorised)));
    let draft = Draft::on(&["east"]).apply("lost", &[], &stage.config_map("lost")).apply(
        "refused",
        &[],
        &stage.config_map("refused"),
    );

    let outcome = stage.run(&draft).await;

    assert_eq!(outcome.outcomes()["lost"], Outcome::Indeterminate);
    assert_failed(&outcome, "refused", "CREDENTIALS_REJECTED", &["no longer accepted"]);
    assert_eq!((stage.east.applies("/lost"), stage.east.applies("/refused")), (2, 1));
}

/// Case 264, D8: a refusal says nothing of the attempt before it whose answer was lost. A read decides, or nobody can tell.
#[tokio::test]
async fn a_refusal_after_a_lost_answer_is_decided_by_a_read_or_by_nobody() {
    let stage = Stage::set("lost-then-refused").await;
    let refusals = [
        ("throttled", Canned::refusal(429, "TooManyRequests", "later", Value::Null).retry_after(600)),
        ("forbidden", Canned::refusal(403, "Forbidden", "no longer", Value::Null)),
    ];
    for (kind, refusal) in refusals {
        // The write was carried out, was not, and cannot be looked at.
        for (name, loss, outcome) in [
            ("stored", Fault::Lose(Loss::BeforeHeaders), Outcome::Succeeded),
            ("cut", Fault::Cut, Outcome::Failed),
            ("unseen", Fault::Lose(Loss::BeforeHeaders), Outcome::Indeterminate),
        ] {
            let name = format!("{kind}-{name}");
            let path = format!("/{name}");
            stage.east.add(Rule::patch(&path, loss).times(1));
            stage.east.add(Rule::patch(&path, Fault::Answer(refusal.clone())));
            if outcome == Outcome::Indeterminate {
                stage.east.add(Rule::get(&path, Fault::Answer(Canned::status(503))));
            }
            let draft = Draft::on(&["east"]).apply(&name, &[], &stage.config_map(&name));

            let told = stage.run(&draft).await;

            let target = told.target(&name, "east").unwrap();
            assert_eq!(target.outcome(), outcome, "{target:?}");
            if outcome == Outcome::Succeeded {
                assert_eq!(target.change(), Change::Created, "{target:?}");
            }
            assert_eq!(stage.east.applies(&path), 2);
        }
    }
}

/// Case 51: an API server that accepts and never answers, or never to the end, costs the step its time and nothing else.
#[tokio::test]
async fn a_request_that_never_returns_ends_at_the_steps_time() {
    let stage = Stage::set("silent").await;
    let variants = [
        ("never", Fault::Ignore),
        ("headers", Fault::Lose(Loss::SilenceAfterHeaders)),
        ("drip", Fault::Lose(Loss::Drip)),
    ];
    let mut draft = Draft::on(&["east", "west"]).step_timeout(2_000).apply("fine", &[], &stage.config_map("fine"));
    for (name, fault) in variants.clone() {
        stage.east.add(Rule::patch(&format!("/{name}"), fault));
        draft = draft.apply(name, &[], &stage.config_map(name));
    }

    let outcome = stage.run(&draft).await;

    assert_applied(&outcome, "fine", Change::Created);
    for (name, _) in variants {
        let target = outcome.target(name, "east").unwrap();
        assert_eq!(target.outcome(), Outcome::Indeterminate, "{target:?}");
        assert!(failure(&outcome, name, "east").message.contains("no answer from cluster east"), "{target:?}");
        let elapsed = Duration::try_from(target.elapsed.unwrap()).unwrap();
        assert!(elapsed <= Duration::from_millis(2_200), "{name} took {elapsed:?} of 2 s");
        assert_eq!(outcome.target(name, "west").unwrap().outcome(), Outcome::Succeeded);
    }
}

/// Case 46: PATCH is repeatable, so a commit that was reported as a time-out is proven by the second one.
#[tokio::test]
async fn a_commit_reported_as_a_timeout_is_proven_by_the_same_patch() {
    let stage = Stage::set("etcd-timeout").await;
    let timed_out = Canned::refusal(500, "InternalError", "etcdserver: request timed out", Value::Null);
    let carried_out = Arc::new(move |answer: &mut Canned| *answer = timed_out.clone());
    stage.east.add(Rule::patch("/twice", Fault::Alter(carried_out)).times(1));
    let draft = Draft::on(&["east"]).step_timeout(5_000).apply("twice", &[], &stage.config_map("twice"));

    let outcome = stage.run(&draft).await;

    assert_applied(&outcome, "twice", Change::Created);
    assert_eq!(stage.east.applies("/twice"), 2);
    let bodies: Vec<_> = stage.east.seen().into_iter().filter(|seen| seen.is_write()).map(|seen| seen.body).collect();
    assert_eq!(bodies[0], bodies[1]);
    assert_eq!(
        stage.east.count(|seen| seen.method == http::Method::POST),
        0,
        "nothing that cannot be repeated is sent"
    );
}

/// Case 47: `Retry-After` is heeded.
#[tokio::test]
async fn a_throttled_write_waits_as_long_as_it_was_asked_to() {
    let stage = Stage::set("throttled").await;
    stage.east.add(Rule::patch("/busy", Fault::Answer(Canned::status(429).retry_after(1))).times(1));
    stage.east.add(Rule::patch("/busy", Fault::Answer(Canned::status(503).retry_after(1))).times(1));
    let draft = Draft::on(&["east"]).step_timeout(10_000).apply("busy", &[], &stage.config_map("busy"));

    let outcome = stage.run(&draft).await;

    assert_applied(&outcome, "busy", Change::Created);
    let sent: Vec<_> = stage.east.seen().iter().filter(|seen| seen.is_apply_of("/busy")).map(|seen| seen.at).collect();
    assert_eq!(sent.len(), 3);
    for pair in sent.windows(2) {
        assert!(pair[1] - pair[0] >= Duration::from_secs(1), "it came back after {:?}", pair[1] - pair[0]);
    }
}

/// Case 21: an hour is not waited for.
#[tokio::test]
async fn a_server_that_asks_for_an_hour_is_not_waited_for() {
    let stage = Stage::set("an-hour").await;
    stage.east.add(Rule::patch("/busy", Fault::Answer(Canned::status(503).retry_after(3_600))));
    let draft = Draft::on(&["east"]).apply("busy", &[], &stage.config_map("busy"));

    let outcome = stage.run(&draft).await;

    assert_failed(&outcome, "busy", "API_UNAVAILABLE", &["wait 3600 s", "30 s"]);
    assert_eq!(stage.east.applies("/busy"), 1);
}

/// Case 47: throttling without end is a failure that says so, within the step's time.
#[tokio::test]
async fn throttling_without_end_fails_within_the_steps_time() {
    let stage = Stage::set("throttled-forever").await;
    stage.east.add(Rule::patch("/busy", Fault::Answer(Canned::status(429))));
    let draft = Draft::on(&["east"]).step_timeout(2_500).apply("busy", &[], &stage.config_map("busy"));

    let outcome = stage.run(&draft).await;

    assert_failed(&outcome, "busy", "THROTTLED", &["cluster east is throttling", "given up after"]);
    assert!(failure(&outcome, "busy", "east").retryable);
}

/// Case 47: against a server that copes with five writes at a time, all 100 arrive and the bound shrinks.
#[tokio::test(flavor = "multi_thread")]
async fn writes_in_flight_shrink_until_the_cluster_copes() {
    let stage = Stage::set("crowd").await;
    stage.east.add(Rule::patch("/configmaps/", Fault::Crowd(5, Canned::status(429).retry_after(1))));
    let mut draft = Draft::on(&["east"]);
    for number in 0..100 {
        let name = format!("map-{number}");
        draft = draft.apply(&name, &[], &stage.config_map(&name));
    }

    let outcome = stage.run(&draft).await;

    assert_eq!(outcome.summary.counts["succeeded"], 100, "{:?}", outcome.summary.counts);
    let seen: Vec<_> = stage.east.seen().into_iter().filter(|seen| seen.is_write()).collect();
    assert!(seen.len() < 400, "{} requests for 100 writes", seen.len());
}

/// Case 48: a webhook that is not up yet is waited for.
#[tokio::test]
async fn a_webhook_that_is_not_up_yet_is_waited_for() {
    let stage = Stage::set("webhook-late").await;
    stage.east.add(Rule::patch("/hooked", Fault::Answer(webhook_away())).times(4));
    let draft = Draft::on(&["east"]).step_timeout(20_000).apply("hooked", &[], &stage.config_map("hooked"));

    let outcome = stage.run(&draft).await;

    assert_applied(&outcome, "hooked", Change::Created);
    assert_eq!(stage.east.applies("/hooked"), 5);
}

/// Case 48: a webhook that never comes up is named.
#[tokio::test]
async fn a_webhook_that_never_comes_up_is_named() {
    let stage = Stage::set("webhook-away").await;
    stage.east.add(Rule::patch("/hooked", Fault::Answer(webhook_away())));
    let draft = Draft::on(&["east"]).step_timeout(2_500).apply("hooked", &[], &stage.config_map("hooked"));

    let outcome = stage.run(&draft).await;

    assert_failed(&outcome, "hooked", "WEBHOOK_UNAVAILABLE", &["pods.example.com", "connection refused"]);
}

/// Case 48: a webhook's no is an answer, whatever its code; case 114: its text is cut at a length.
#[tokio::test]
async fn a_webhooks_no_is_passed_on_after_one_request() {
    let stage = Stage::set("webhook-denies").await;
    let no = "admission webhook \"pods.example.com\" denied the request: ";
    let brief = Canned::refusal(403, "Forbidden", &format!("{no}no latest tag"), Value::Null);
    let internal = Canned::refusal(500, "InternalError", &format!("{no}no luck"), Value::Null);
    let long = Canned::refusal(400, "BadRequest", &format!("{no}{}", "long ".repeat(40 * 1024)), Value::Null);
    let mut draft = Draft::on(&["east"]);
    for (name, answer) in [("brief", brief), ("internal", internal), ("long", long)] {
        stage.east.add(Rule::patch(&format!("/{name}"), Fault::Answer(answer)));
        draft = draft.apply(name, &[], &stage.config_map(name));
    }

    let outcome = stage.run(&draft).await;

    assert_failed(&outcome, "brief", "WEBHOOK_DENIED", &["denied the request: no latest tag"]);
    assert_failed(&outcome, "internal", "WEBHOOK_DENIED", &["denied the request: no luck"]);
    assert_failed(&outcome, "long", "WEBHOOK_DENIED", &["denied the request: long long", "…"]);
    assert!(failure(&outcome, "long", "east").message.len() < 5 * 1024);
    assert_eq!(stage.east.count(|seen| seen.is_write()), 3);
}

/// Case 49: an API that never learned server-side apply is told apart, and nothing is replaced silently.
#[tokio::test]
async fn an_api_without_server_side_apply_fails_after_one_request() {
    let stage = Stage::set("no-apply").await;
    stage.east.add(Rule::patch("/old", Fault::Answer(Canned::status(415).text("unsupported media type"))));
    let draft = Draft::on(&["east"]).apply("old", &[], &stage.config_map("old"));

    let outcome = stage.run(&draft).await;

    assert_failed(&outcome, "old", "APPLY_UNSUPPORTED", &["does not accept server-side apply"]);
    assert_eq!(stage.east.count(|seen| seen.is_write()), 1);
}

/// Case 40, D9: refusals that other engines take for success are failures, and an answer without the object is no proof.
#[tokio::test]
async fn success_is_proven_and_never_inferred() {
    let stage = Stage::set("proven").await;
    let invalid = |text: &str| Canned::refusal(422, "Invalid", text, Value::Null);
    let refusals = [
        (
            "exists",
            Canned::refusal(409, "AlreadyExists", "configmaps \"exists\" already exists", Value::Null),
            "CONFLICT",
        ),
        ("immutable", invalid("spec.selector: Invalid value: field is immutable"), "IMMUTABLE"),
        ("cluster-ip", invalid("spec.clusterIPs[0]: Invalid value: primary clusterIP can not be unset"), "IMMUTABLE"),
        ("html", Canned::status(200).text("<html>please log in</html>"), "UNEXPECTED_ANSWER"),
        ("moved", Canned::status(302).header("location", "https://127.0.0.1:1/"), "UNEXPECTED_ANSWER"),
    ];
    let mut draft = Draft::on(&["east"]).step_timeout(3_000);
    for (name, answer, _) in refusals.clone() {
        stage.east.add(Rule::patch(&format!("/{name}"), Fault::Answer(answer)));
        draft = draft.apply(name, &[], &stage.config_map(name));
    }
    let another = Arc::new(|answer: &mut Canned| {
        let mut object: Value = serde_json::from_slice(answer.body()).unwrap();
        object["metadata"]["name"] = json!("somebody-else");
        *answer = Canned::status(200).json(&object);
    });
    stage.east.add(Rule::patch("/another", Fault::Alter(another)));
    draft = draft.apply("another", &[], &stage.config_map("another"));
    // 202 and 204 promise; the next request proves.
    for (name, code) in [("accepted", StatusCode::ACCEPTED), ("no-content", StatusCode::NO_CONTENT)] {
        let bare = Arc::new(move |answer: &mut Canned| *answer = Canned::status(code.as_u16()));
        stage.east.add(Rule::patch(&format!("/{name}"), Fault::Alter(bare)).times(1));
        draft = draft.apply(name, &[], &stage.config_map(name));
    }
    stage.east.add(Rule::patch("/promised", Fault::Answer(Canned::status(202))));
    draft = draft.apply("promised", &[], &stage.config_map("promised"));

    let outcome = stage.run(&draft).await;

    for (name, _, reason) in refusals {
        assert_failed(&outcome, name, reason, &[]);
        assert_eq!(stage.object("v1/configmaps", name).await, None, "{name}");
    }
    assert_failed(&outcome, "another", "UNEXPECTED_ANSWER", &["somebody-else"]);
    for name in ["accepted", "no-content"] {
        assert_applied(&outcome, name, Change::Created);
        assert!(stage.object("v1/configmaps", name).await.is_some(), "{name}");
    }
    // Never proven, never known.
    assert_eq!(outcome.outcomes()["promised"], Outcome::Indeterminate);
    assert_eq!(stage.object("v1/configmaps", "promised").await, None);
}

/// Case 54: the server's warnings reach the caller, on the component and cluster that they are about.
#[tokio::test]
async fn warnings_of_the_server_are_passed_on() {
    let stage = Stage::set("warnings").await;
    let warn = Arc::new(|answer: &mut Canned| {
        *answer = answer
            .clone()
            .header("warning", "299 - \"v1 Something is deprecated\"")
            .header("warning", "299 - \"unknown field \\\"spec.x\\\"\"");
    });
    stage.east.add(Rule::patch("/warned", Fault::Alter(warn)));
    let draft = Draft::on(&["east", "west"]).apply("warned", &[], &stage.config_map("warned"));

    let outcome = stage.run(&draft).await;

    assert_applied(&outcome, "warned", Change::Created);
    let expected = ["v1 Something is deprecated", "unknown field \"spec.x\""];
    assert_eq!(outcome.target("warned", "east").unwrap().warnings, expected);
    assert_eq!(outcome.target("warned", "west").unwrap().warnings, [""; 0]);
}

/// Case 54: a field that the kind does not have fails with its path.
#[tokio::test]
async fn an_unknown_field_fails_with_its_path() {
    let stage = Stage::set("unknown-field").await;
    let mut map = stage.config_map("odd");
    map["dada"] = json!({"key": "value"});
    let draft = Draft::on(&["east"]).apply("odd", &[], &map);

    let outcome = stage.run(&draft).await;

    assert_failed(&outcome, "odd", "INVALID", &[".dada"]);
}

/// Case 51, the client stack: a server that speaks HTTP/1.1 only is spoken to in HTTP/1.1.
#[tokio::test]
async fn a_server_without_http2_is_spoken_to_in_http1() {
    let stage = Stage::set("http1").await;
    let proxy = switchyard_tests::fault::Proxy::http1(stage.world.east()).await.unwrap();
    proxy.add(Rule::patch("/lost", Fault::Lose(Loss::HalfBody)).times(1));
    let draft = Draft::on(&["east"]).step_timeout(5_000).apply("plain", &[], &stage.config_map("plain")).apply(
        "lost",
        &[],
        &stage.config_map("lost"),
    );

    let access = vec![switchyard_tests::client::kubeconfig("east", proxy.kubeconfig().to_string())];
    let outcome = stage.try_run(&draft, access).await.unwrap();

    assert_applied(&outcome, "plain", Change::Created);
    assert_applied(&outcome, "lost", Change::Created);
}

/// Cases 83 and 85, D20: a webhook that cannot be asked in a dry run leaves open what it would say; every other refusal is one,
/// with all that the server told.
#[tokio::test]
async fn dry_run_tells_who_could_not_be_asked_from_who_said_no() {
    let stage = Stage::set("dry-refusals").await;
    let webhook = "admission webhook \"audit.example.com\" does not support dry run";
    let webhook = Canned::refusal(400, "BadRequest", webhook, Value::Null);
    let causes = json!({"causes": [
        {"reason": "FieldValueRequired", "field": "data.a", "message": "Required value"},
        {"reason": "FieldValueInvalid", "field": "data.b", "message": "Invalid value: 1"},
        {"reason": "FieldValueInvalid", "field": "data.c", "message": "Invalid value: 2"},
    ]});
    let invalid = Canned::refusal(422, "Invalid", "three things are wrong", causes);
    let page = Canned::status(400).text("<html>no</html>");
    for (name, answer) in [("hooked", webhook), ("wrong", invalid), ("page", page)] {
        stage.east.add(Rule::patch(&format!("/configmaps/{name}"), Fault::Answer(answer)));
    }
    let names = ["hooked", "wrong", "page", "right"];
    let draft = names
        .iter()
        .fold(Draft::on(&["east"]).dry_run(), |draft, name| draft.apply(name, &[], &stage.config_map(name)));
    let outcome = stage.run(&draft).await;

    assert_eq!(outcome.outcomes()["hooked"], Outcome::Indeterminate);
    let told = &failure(&outcome, "hooked", "east").message;
    assert!(told.contains("cannot tell in a dry run") && told.contains("audit.example.com"), "{told}");
    assert_failed(&outcome, "wrong", "INVALID", &["three things are wrong"]);
    let fields: Vec<_> = failure(&outcome, "wrong", "east").causes.iter().map(|cause| cause.field.as_str()).collect();
    assert_eq!(fields, ["data.a", "data.b", "data.c"]);
    assert_failed(&outcome, "page", "INVALID", &["(400)"]);
    assert_eq!(outcome.outcomes()["right"], Outcome::Succeeded);
}
