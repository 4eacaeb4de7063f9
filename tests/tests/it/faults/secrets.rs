//! Group 13: kubeconfigs as a way in, secrets as a way out, and the rights that are enough.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use switchyard_proto::v1::{Change, Outcome, Verdict};
use switchyard_tests::{
    client,
    fault::{Canned, Fault, Rule, Seen},
    plan::Draft,
    programs::Program,
    sandbox::Folder,
};
use tokio::net::TcpListener;

use super::{
    clusters::unusable,
    stage::{Stage, assert_applied, assert_failed, eventually, failure},
};

/// Counts whoever connects, and says nothing to them.
struct Trap {
    port: u16,
    visitors: Arc<AtomicUsize>,
}

impl Trap {
    async fn set() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let visitors = Arc::new(AtomicUsize::new(0));
        let count = visitors.clone();
        tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { port, visitors }
    }

    fn visitors(&self) -> usize {
        self.visitors.load(Ordering::Relaxed)
    }
}

/// Cases 92, 95, 96, 141, 142: a kubeconfig in a request that is broken, or more than data, is refused by name; nobody else's
/// cluster is used instead, nothing is run, no file is read, and nobody is connected to.
#[tokio::test]
async fn a_kubeconfig_that_is_broken_or_more_than_data_is_refused_and_nothing_else_used() {
    let stage = Stage::set("kubeconfigs").await;
    let (in_cluster, proxy, target) = (Trap::set().await, Trap::set().await, Trap::set().await);
    let folder = Folder::new("kubeconfigs").unwrap();
    let marker = folder.path().join("was-run");
    let secret = folder.write("token", "canary-token-of-the-executor").unwrap();
    let program = Program::Executor
        .prepare()
        .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        .env("KUBERNETES_SERVICE_PORT", in_cluster.port.to_string())
        .env("HTTPS_PROXY", format!("http://127.0.0.1:{}", proxy.port))
        .env("https_proxy", format!("http://127.0.0.1:{}", proxy.port))
        .start()
        .await
        .unwrap();
    let client = client::Client::connect(&program.url(), &program.url()).await.unwrap();
    let kubeconfig = |user: &str, cluster: &str| {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             contexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
             clusters: [{{name: k, cluster: {{server: 'https://127.0.0.1:{}'{cluster}}}}}]\n\
             users: [{{name: u, user: {{token: canary-token-of-the-caller{user}}}}}, {{name: other, user: {{}}}}]\n",
            target.port
        )
    };
    let run =
        format!("{{apiVersion: client.authentication.k8s.io/v1, command: touch, args: ['{}']}}", marker.display());
    let (secret, good) = (secret.display(), kubeconfig("", ""));
    let cases = [
        (String::new(), "empty"),
        ("a: [canary-token-of-the-caller".to_owned(), "does not parse"),
        (good.replace("current-context: c", ""), "current-context"),
        (good.replace("current-context: c", "current-context: d"), "no context `d`"),
        (good.replace("cluster: k,", "cluster: z,"), "no cluster `z`"),
        (good.replace("user: u}", "user: z}"), "no user `z`"),
        (kubeconfig(&format!(", exec: {run}"), ""), "`exec`"),
        (good.replace("name: other, user: {}", &format!("name: other, user: {{exec: {run}}}")), "`exec`"),
        (kubeconfig(", auth-provider: {name: gcp}", ""), "`auth-provider`"),
        (kubeconfig(&format!(", tokenFile: '{secret}'"), ""), "`tokenFile`"),
        (kubeconfig(&format!(", client-certificate: '{secret}'"), ""), "`client-certificate`"),
        (kubeconfig(&format!(", client-key: '{secret}'"), ""), "`client-key`"),
        (kubeconfig("", &format!(", certificate-authority: '{secret}'")), "`certificate-authority`"),
        (kubeconfig("", ", insecure-skip-tls-verify: true"), "`insecure-skip-tls-verify`"),
        (kubeconfig("", &format!(", proxy-url: 'http://127.0.0.1:{}'", proxy.port)), "`proxy-url`"),
        (kubeconfig(", as: admin", ""), "`as`"),
        (kubeconfig(", as-groups: [system:masters]", ""), "`as-groups`"),
        // Case 144: a bomb is no kubeconfig either.
        (bomb(), "does not parse"),
    ];

    let draft = Draft::on(&["east"]).apply("map", &[], &stage.config_map("map"));
    for (text, expected) in &cases {
        let access = vec![client::kubeconfig("east", text.clone())];
        let status = client.execute(draft.seal(), access).await.unwrap().finish().await.unwrap_err();
        let told = unusable(&status).remove("east").unwrap();
        assert!(told.contains(expected), "`{expected}` is missing in: {told}");
        assert!(!format!("{status:?} {told}").contains("canary"), "{told}");
    }
    assert_eq!((in_cluster.visitors(), proxy.visitors(), target.visitors()), (0, 0, 0));
    assert!(!marker.exists());

    // Case 95: a good one goes straight to its cluster, whatever the environment says of proxies.
    let access = stage.access_for(&draft);
    let outcome = client.execute(draft.seal(), access).await.unwrap().finish().await.unwrap();
    assert_applied(&outcome, "map", Change::Created);
    assert_eq!(proxy.visitors(), 0);
    let (_, log) = program.stop().await;
    assert!(!log.contains("canary"), "{log}");
}

/// Nine levels of ten aliases each.
fn bomb() -> String {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..10 {
        let below = format!("*a{}, ", level - 1).repeat(10);
        text.push_str(&format!("a{level}: &a{level} [{}]\n", below.trim_end_matches(", ")));
    }
    text
}

/// All that a run says for people to read.
fn told(outcome: &client::Outcome) -> String {
    let failures = outcome.targets().map(|target| format!("{:?} {:?}\n", target.error, target.warnings));
    let withheld = outcome.results.iter().map(|result| format!("{:?} {:?}\n", result.error, result.withheld));
    let rows = outcome.summary.rows.iter().map(|row| format!("{row:?}\n"));
    failures.chain(withheld).chain(rows).collect()
}

/// Case 140, D25: an API server that quotes a Secret back is passed on without the values, plain or encoded, whole or cut,
/// with path and reason; what is no secret stays readable.
#[tokio::test]
async fn secret_values_in_refusals_are_masked_and_the_rest_is_readable() {
    let stage = Stage::set("quoted").await;
    let (plain, second) = ("canary-plain-81f", "canary-second-line-of-many-82f");
    let encoded = BASE64_STANDARD.encode(plain);
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "secret", "namespace": stage.namespace},
        "data": {"password": encoded}, "stringData": {"more": format!("first\n{second}"), "port": 54_321},
    });
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", "namespace": stage.namespace},
        // The value of the Secret once more, under a name that does not tell.
        "spec": {"containers": [{"name": "main", "image": "nginx", "env": [{"name": "GREETING", "value": plain}]}]},
    });
    let quote = format!(
        "Secret \"secret\" is invalid: data[password]: Invalid value: \"{plain}\": also {encoded}, {second}, port 54321, cut \
         {}...: must be something else",
        &encoded[..14]
    );
    let cause = json!({"causes": [{
        "reason": "FieldValueInvalid", "field": "data[password]", "message": format!("Invalid value: \"{plain}\""),
    }]});
    let warn = format!("299 - \"the value {plain} is weak\"");
    let refusal = Canned::refusal(422, "Invalid", &quote, cause).header("warning", &warn);
    stage.east.add(Rule::patch("/secrets/secret", Fault::Answer(refusal)));
    let of_pod = format!("Pod \"pod\" is invalid: env[0]: Invalid value: \"{plain}\", {second}");
    let of_pod = Canned::refusal(422, "Invalid", &of_pod, Value::Null);
    stage.east.add(Rule::patch("/pods/pod", Fault::Answer(of_pod)));
    let mut map = stage.config_map("map");
    map["data"]["colour"] = json!("canary-yellow");
    let readable = Canned::refusal(422, "Invalid", "data[colour]: Invalid value: \"canary-yellow\"", Value::Null);
    stage.east.add(Rule::patch("/configmaps/map", Fault::Answer(readable)));
    let draft = Draft::on(&["east"])
        .apply("secret", &[], &secret)
        .apply("pod", &[], &pod)
        .apply("map", &[], &map)
        .apply("withheld", &["secret"], &stage.config_map("withheld"));

    let outcome = stage.run(&draft).await;

    assert_failed(&outcome, "secret", "INVALID", &["data[password]", "Invalid value", "must be something else"]);
    let cause = &failure(&outcome, "secret", "east").causes[0];
    assert_eq!((cause.field.as_str(), cause.reason.as_str()), ("data[password]", "FieldValueInvalid"));
    assert_failed(&outcome, "map", "INVALID", &["canary-yellow"]);
    assert_eq!(outcome.outcomes()["withheld"], Outcome::Withheld);
    assert_failed(&outcome, "pod", "INVALID", &["env[0]: Invalid value: \"[redacted]\""]);
    let told = told(&outcome);
    for value in [plain, second, encoded.as_str(), &encoded[..14], "54321"] {
        assert!(!told.contains(value), "{value} is in {told}");
    }
}

/// Case 140: the same with what a real API server quotes.
#[tokio::test]
async fn a_real_api_server_that_quotes_a_secret_is_masked_too() {
    let stage = Stage::set("really-quoted").await;
    let secret = |name: &str, rest: Value| {
        let mut object = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": stage.namespace},
        });
        object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        object
    };
    let draft = Draft::on(&["east"])
        .apply("number", &[], &secret("number", json!({"data": {"port": 918_273_645}})))
        .apply("text", &[], &secret("text", json!({"data": {"key": "not base64: canary-91f"}})))
        .apply("list", &[], &secret("list", json!({"stringData": {"key": ["canary-92f"]}})))
        .apply("key", &[], &secret("key", json!({"stringData": {"bad key": "canary-93f"}})))
        .apply(
            "docker",
            &[],
            &secret(
                "docker",
                json!({
                    "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "{canary-94f"},
                }),
            ),
        );

    let outcome = stage.run(&draft).await;

    assert_eq!(outcome.summary.counts["failed"], 5, "{:?}", outcome.summary.rows);
    let told = told(&outcome);
    assert!(!told.contains("canary") && !told.contains("918273645"), "{told}");
    assert_failed(&outcome, "key", "INVALID", &["data[bad key]"]);
}

/// Case 147: get, patch and create on what is applied is enough; what is not permitted is named with verb, resource, namespace
/// and account, after one request.
#[tokio::test]
async fn rights_on_what_is_applied_are_enough_and_missing_ones_are_named() {
    let stage = Stage::set("rights").await;
    let east = stage.world.east();
    let account = format!("deployer-{}", stage.namespace);
    east.grant(&account, &["get", "patch", "create"], "", &["configmaps"]).await.unwrap();
    east.grant(&account, &["get", "patch", "create"], "rbac.authorization.k8s.io", &["roles"]).await.unwrap();
    let kubeconfig = east.kubeconfig_for(&account, &[]).unwrap();
    let probe = east.client_as(&kubeconfig).await.unwrap();
    eventually("the rights to take effect", async || {
        let paths = [stage.path("v1/configmaps", "x"), stage.path("rbac.authorization.k8s.io/v1/roles", "x")];
        for path in paths {
            let request = http::Request::get(path).body(Vec::new()).unwrap();
            let answer = probe.request::<Value>(request).await;
            if !matches!(answer, Err(kube::Error::Api(status)) if status.code == 404) {
                return false;
            }
        }
        true
    })
    .await;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "too-much", "namespace": stage.namespace},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "secret", "namespace": stage.namespace},
    });
    let draft = Draft::on(&["east"]).apply("map", &[], &stage.config_map("map")).apply("secret", &[], &secret).apply(
        "role",
        &[],
        &role,
    );

    let access = vec![client::kubeconfig("east", kubeconfig.to_string())];
    let outcome = stage.try_run(&draft, access.clone()).await.unwrap();

    assert_applied(&outcome, "map", Change::Created);
    let namespace = stage.namespace.as_str();
    assert_failed(&outcome, "secret", "FORBIDDEN", &["patch", "secrets", namespace, &account]);
    assert_failed(&outcome, "role", "FORBIDDEN", &["attempting to grant RBAC permissions not currently held"]);
    for name in ["secret", "role"] {
        assert_eq!(outcome.target(name, "east").unwrap().attempts, 1);
        assert!(!failure(&outcome, name, "east").retryable);
    }
    // Without the right to list anything, an unchanged object is told from a changed one by times alone.
    let again = stage.try_run(&draft, access).await.unwrap();
    assert_eq!(again.outcomes()["map"], Outcome::Succeeded);
    let user = |event: &switchyard_tests::sandbox::audit::Event| event.user.username == account;
    let watched = east.audit().unwrap().into_iter().filter(user).filter(|event| event.verb == "watch").count();
    assert_eq!(watched, 0);
}

/// S18, D25: the caller's token is what the API server sees, and nothing but reads comes before the first write.
#[tokio::test]
async fn the_callers_own_token_is_what_the_api_server_sees() {
    let stage = Stage::set("token").await;
    let proxy = switchyard_tests::fault::Proxy::with_callers_token(stage.world.east()).await.unwrap();
    let draft = Draft::on(&["east"]).apply("map", &[], &stage.config_map("map"));
    let run = async |token: &str| {
        let access = vec![client::kubeconfig("east", proxy.kubeconfig_with_token(token).to_string())];
        stage.try_run(&draft, access).await
    };

    let refused = run("nobody-knows-this-token").await.unwrap_err();
    assert!(unusable(&refused)["east"].contains("does not accept the credentials"), "{refused:?}");
    assert_eq!(proxy.count(Seen::is_write), 0);

    // The operator is known and may do nothing: the cluster is workable, the component is not permitted.
    let outcome = run(switchyard_tests::sandbox::Sandbox::OPERATOR_TOKEN).await.unwrap();
    assert!(matches!(outcome.outcomes()["map"], Outcome::Failed | Outcome::Succeeded));
    let bearer = format!("Bearer {}", switchyard_tests::sandbox::Sandbox::OPERATOR_TOKEN);
    assert_eq!(proxy.count(|seen| seen.is_write() && seen.authorization == bearer), 1);
}

/// Case 81: a binding beside its role, by an account that may not bind what is not there. A dry run cannot tell; the real run
/// has both.
#[tokio::test]
async fn binding_waits_for_the_role_beside_it() {
    let stage = Stage::set("binding").await;
    let east = stage.world.east();
    let account = format!("binder-{}", stage.namespace);
    let (may, rbac) = (["get", "patch", "create"], "rbac.authorization.k8s.io");
    east.grant(&account, &may, "", &["configmaps"]).await.unwrap();
    east.grant(&account, &may, rbac, &["roles", "rolebindings"]).await.unwrap();
    let access = || vec![client::kubeconfig("east", east.kubeconfig_for(&account, &[]).unwrap().to_string())];
    let own = |name: &str, kind: &str| {
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": kind, "metadata": {"name": name, "namespace": stage.namespace},
        })
    };
    let mut role = own("reader", "Role");
    role["rules"] = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]);
    let mut binding = own("readers", "RoleBinding");
    binding["roleRef"] = json!({"apiGroup": rbac, "kind": "Role", "name": "reader"});
    binding["subjects"] = json!([{"apiGroup": rbac, "kind": "User", "name": "somebody"}]);
    let maps = ["one", "two", "three"];
    let before = |draft: Draft| draft.apply("readers", &[], &binding);
    let chain = |draft: Draft| {
        let chain = maps.iter().enumerate();
        let chain = chain.fold(draft, |draft, (at, name)| {
            draft.apply(name, &maps[at.saturating_sub(1)..at], &stage.config_map(name))
        });
        chain.apply("reader", &["three"], &role)
    };

    eventually("the rights to take effect", async || {
        let dry =
            Draft::on(&["east"]).dry_run().apply("one", &[], &stage.config_map("one")).apply("reader", &[], &role);
        stage.try_run(&dry, access()).await.unwrap().verdict() == Verdict::Succeeded
    })
    .await;
    let dry = stage.try_run(&before(chain(Draft::on(&["east"]).dry_run())), access()).await.unwrap();
    assert_eq!(dry.outcomes()["readers"], Outcome::Indeterminate, "{:?}", dry.result("readers"));
    let told = &failure(&dry, "readers", "east").message;
    assert!(told.contains("cannot tell in a dry run: Role reader is created by component reader"), "{told}");

    // The role comes behind three others, so the binding is there first.
    let real = stage.try_run(&chain(before(Draft::on(&["east"]))), access()).await.unwrap();
    assert_eq!(real.verdict(), Verdict::Succeeded, "{:?}", real.summary);
    assert!(real.target("readers", "east").unwrap().attempts > 1);
}
