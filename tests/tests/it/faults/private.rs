//! `--deny-private-addresses`: a caller who names a server does not reach what only the executor can reach (case 254).

use std::net::TcpListener;

use switchyard_tests::{client, plan::Draft};

use super::{clusters::unusable, stage::Stage};

const DENIED: &str = "requests may not lead to this address";

/// Whether nobody has connected.
fn is_undisturbed(listener: &TcpListener) -> bool {
    listener.accept().is_err()
}

/// Servers of kubeconfigs in requests, as addresses and as names, on a port that answers and on one that does not: all are told
/// the same, and nobody is connected to.
#[tokio::test]
async fn kubeconfig_of_a_request_leads_to_no_private_address() {
    let stage = Stage::set_with("private", &["--deny-private-addresses", "--run-lock", "process"]).await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let draft = Draft::on(&["east"]).apply("map", &[], &stage.config_map("map"));
    let refused = async |server: &str| {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
             clusters: [{{name: k, cluster: {{server: '{server}'}}}}]\nusers: [{{name: u, user: {{token: x}}}}]\n"
        );
        let status = stage.try_run(&draft, vec![client::kubeconfig("east", text)]).await.unwrap_err();
        unusable(&status).remove("east").unwrap()
    };

    for host in ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "169.254.169.254", "10.0.0.1"] {
        for port in [port, 1] {
            let told = refused(&format!("https://{host}:{port}")).await;
            assert!(told.ends_with(DENIED), "{host}: {told}");
        }
    }
    assert!(is_undisturbed(&listener));
    let sent = vec![client::kubeconfig("east", stage.east.kubeconfig().to_string())];
    assert!(stage.try_run(&draft, sent).await.is_err());
    assert_eq!(stage.east.dials(), 0);
}
