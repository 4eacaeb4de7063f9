//! What helm is given that is nobody else's business.

use std::os::unix::fs::PermissionsExt as _;

use bytes::Bytes;
use switchyard_proto::v1::Verdict;
use switchyard_tests::chart::Serving;

use super::*;

const PASSWORD: &str = "canary-P4ss:w0rd";
/// As it stands in a URL.
const ENCODED: &str = "canary-P4ss%3Aw0rd";
/// What makes a URL be a login by itself.
const SIGNATURE: &str = "canary-5f1c7d2e";

/// The real helm behind a script that writes down what it is given.
async fn watched(folder: &Folder) -> PathBuf {
    let (log, real) = (folder.path().join("helm.log"), real_helm().await);
    let script = format!(
        "#!/bin/sh\n{{ echo \"arguments $*\"; env; stat -c 'mode %a %n' . *; }} >> {} 2>/dev/null\nexec {} \"$@\"\n",
        log.display(),
        real.display()
    );
    let path = folder.write("helm", &script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    path
}

/// D25: kubeconfig and credentials reach helm through private files that are gone afterwards, and nothing else of ours does.
#[tokio::test]
async fn credentials_reach_helm_in_private_files_that_are_gone_afterwards() {
    let folder = Folder::new("watched").unwrap();
    let stand = Stand::with_helm(watched(&folder).await.to_str().unwrap()).await;
    let namespace = namespace("charts_secret").await;
    let guarded = Registry::start(&stand.authority, Some(("robot", PASSWORD))).await.unwrap();
    let (first, second) = (unique("guarded"), unique("basic"));
    let oci = guarded.push(&Chart::new(&first).config_map("first", "a")).await.unwrap();
    let oci = oci.replace("oci://", &format!("oci://robot:{ENCODED}@"));
    let host = stand.host().await;
    let (path, _folder) = Chart::new(&second).config_map("second", "a").package().await.unwrap();
    let bytes = Bytes::from(std::fs::read(path).unwrap());
    let wrong = host.answer("other.tgz", Serving::Guarded(bytes.clone(), format!("robot:{PASSWORD}")));
    let wrong = wrong.replace("https://", &format!("https://robot:{ENCODED}@")).replace("canary-", "canary-wrong-");
    let third = unique("signed");
    let (path, _folder) = Chart::new(&third).config_map("third", "a").package().await.unwrap();
    let signed = host.answer("signed.tgz", Serving::Bytes(std::fs::read(path).unwrap().into()));
    let signed = format!("{signed}?X-Amz-Signature={SIGNATURE}");
    let https = host.answer("basic.tgz", Serving::Guarded(bytes, format!("robot:{PASSWORD}")));
    let https = https.replace("https://", &format!("https://robot:{ENCODED}@"));
    let hook = unique("hook");
    let hook = stand.registry.push(&Chart::new(&hook).endless_hook()).await.unwrap();

    let design = ["oci", "https", "signed", "wrong", "hook"]
        .iter()
        .fold(Design::new(), |design, model| design.needs(model, model, &namespace, &[]));
    let models = [
        ("oci", oci.as_str(), ""),
        ("https", &https, ""),
        ("signed", &signed, ""),
        ("wrong", &wrong, ""),
        ("hook", &hook, ""),
    ];
    // Somebody with the rights of `k8s/base/rbac.yaml`, which are enough for helm.
    let east = stand.pair.world.east();
    let verbs = ["get", "list", "watch", "create", "update", "patch", "delete"];
    east.grant("charts-robot", &verbs, "*", &["*"]).await.unwrap();
    let kubeconfig = east.kubeconfig_for("charts-robot", &[]).unwrap().to_string();
    let (_, key) = kubeconfig.split_once("client-key-data: ").unwrap();
    // Behind what all such keys begin with.
    let key = key[80..160].to_owned();
    let access = vec![client::kubeconfig("east", kubeconfig)];
    let parent = TraceParent::random();
    let client = stand.client().await.traced(parent.clone());
    let outcome = client.run(within(deploy(&design, &["east"], &models), 10), access).await.unwrap();
    assert_eq!(outcome.verdict(), Verdict::Succeeded, "{:#?}", outcome.summary);
    for (component, release) in [("oci", &first), ("https", &second), ("signed", &third)] {
        let installed = need(&outcome, component, "east");
        assert_eq!(installed.outcome(), v1::Outcome::Succeeded, "{installed:#?}");
        assert_eq!(installed.release, *release);
        assert!(!installed.chart.as_ref().unwrap().url.contains('@'));
    }
    let (reason, message) = failure(&outcome, "wrong");
    assert_eq!(reason, "CHART_UNFETCHABLE");
    assert!(message.contains("401"), "{message}");
    failure(&outcome, "hook");

    let complete = |trace: &switchyard_tests::sandbox::Trace| trace.named("run").count() == 1;
    let jaeger = stand.pair.world.jaeger();
    jaeger.wait_for(parent.trace_id(), Duration::from_secs(30), complete).await.unwrap();
    let log = std::fs::read_to_string(folder.path().join("helm.log")).unwrap();
    for (place, text) in [
        ("what helm is started with", log.clone()),
        ("events", format!("{:?}", outcome.events)),
        ("spans", jaeger.trace_text(parent.trace_id()).await.unwrap()),
        ("executor log", stand.executor.log()),
    ] {
        for secret in [PASSWORD, ENCODED, SIGNATURE, "canary-wrong", &key] {
            assert!(!text.contains(secret), "{secret} stands in {place}: {text}");
        }
    }
    let modes: Vec<_> = log.lines().filter_map(|line| line.strip_prefix("mode ")).collect();
    assert!(modes.iter().any(|mode| mode.ends_with(" kubeconfig")), "{modes:?}");
    assert!(modes.iter().any(|mode| mode.ends_with(" registry.json")), "{modes:?}");
    assert!(modes.iter().all(|mode| mode.starts_with("600 ") || *mode == "700 ."), "{modes:?}");
    let known = [
        "HOME=",
        "TMPDIR=",
        "PWD=",
        "SSL_CERT_FILE=",
        "SSL_CERT_DIR=",
        "_=",
        "SHLVL=",
        "OLDPWD=",
        "HTTP_PROXY=http://127.0.0.1:1",
    ];
    let variables = log.lines().filter(|line| !line.starts_with("mode ") && !line.starts_with("arguments "));
    for variable in variables {
        assert!(known.iter().any(|known| variable.starts_with(known)), "{variable} reached helm");
    }
    assert_eq!(stand.scratch(), Vec::<String>::new(), "nothing is left on disk");
}
