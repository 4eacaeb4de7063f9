//! Who gets in when the port speaks TLS.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod support;

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use support::{Running, ask};
use switchyard_proto::v1::planner_service_client::PlannerServiceClient;
use switchyard_service::Shutdown;
use tempfile::TempDir;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity};

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// Issues a certificate for `localhost` that is valid until the given year; certificate and key in PEM.
    fn issue(&self, until: i32) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }
}

/// The files a server is told to read.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, (certificate, key): (String, String), clients: &Authority) {
        fs::write(self.path("cert.pem"), certificate).unwrap();
        fs::write(self.path("key.pem"), key).unwrap();
        fs::write(self.path("ca.pem"), clients.pem()).unwrap();
    }

    fn flags(&self, client_authority: bool) -> Vec<String> {
        let mut flags = vec![("--tls-cert", "cert.pem"), ("--tls-key", "key.pem")];
        if client_authority {
            flags.push(("--tls-client-ca", "ca.pem"));
        }
        flags.into_iter().flat_map(|(flag, name)| [flag.to_owned(), self.path(name).display().to_string()]).collect()
    }
}

async fn start(files: &Files, client_authority: bool) -> Running {
    let flags = files.flags(client_authority);
    support::start(&flags.iter().map(String::as_str).collect::<Vec<_>>()).await
}

/// Makes one call, trusting `server` and showing `identity`.
async fn call(running: &Running, server: &Authority, identity: Option<(String, String)>) -> Result<(), String> {
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(server.pem())).domain_name("localhost");
    if let Some((certificate, key)) = identity {
        tls = tls.identity(Identity::from_pem(certificate, key));
    }
    let endpoint = Channel::from_shared(format!("https://{}", running.address)).unwrap().tls_config(tls).unwrap();
    let channel = endpoint.connect().await.map_err(|error| format!("{error:?}"))?;
    PlannerServiceClient::new(channel).plan(ask("one part")).await.map_err(|status| status.to_string())?;
    Ok(())
}

#[tokio::test]
async fn a_server_with_a_certificate_is_trusted_by_its_authority_only() {
    let (authority, files) = (Authority::new(), Files::new());
    files.write(authority.issue(2100), &authority);
    let running = start(&files, false).await;
    assert_eq!(call(&running, &authority, None).await, Ok(()));
    assert!(call(&running, &Authority::new(), None).await.is_err());
    assert!(
        Channel::from_shared(format!("http://{}", running.address)).unwrap().connect().await.is_err() || {
            let plain = Channel::from_shared(format!("http://{}", running.address)).unwrap().connect_lazy();
            PlannerServiceClient::new(plain).plan(ask("one part")).await.is_err()
        }
    );
}

#[tokio::test]
async fn mutual_tls_lets_in_who_shows_a_valid_certificate_of_the_authority_and_nobody_else() {
    let (servers, clients, files) = (Authority::new(), Authority::new(), Files::new());
    files.write(servers.issue(2100), &clients);
    let running = start(&files, true).await;
    assert_eq!(call(&running, &servers, Some(clients.issue(2100))).await, Ok(()));
    for (who, identity) in [
        ("nobody", None),
        ("a stranger", Some(servers.issue(2100))),
        ("someone of the past", Some(clients.issue(2001))),
    ] {
        assert!(call(&running, &servers, identity).await.is_err(), "{who} got in");
    }
    running.shutdown.drain();
    running.end_within(Duration::from_secs(3)).await;
}

#[tokio::test]
async fn files_that_change_are_used_without_a_restart_unless_they_are_broken() {
    let (before, after, files) = (Authority::new(), Authority::new(), Files::new());
    files.write(before.issue(2100), &before);
    let running = start(&files, true).await;
    assert_eq!(call(&running, &before, Some(before.issue(2100))).await, Ok(()));

    fs::write(files.path("cert.pem"), "not a certificate").unwrap();
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!(call(&running, &before, Some(before.issue(2100))).await, Ok(()));

    files.write(after.issue(2100), &after);
    let start = Instant::now();
    while call(&running, &after, Some(after.issue(2100))).await.is_err() {
        assert!(start.elapsed() < Duration::from_secs(5), "the new files are not used");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(call(&running, &after, Some(before.issue(2100))).await.is_err());
}

#[tokio::test]
async fn a_client_that_does_not_shake_hands_holds_up_nobody() {
    let (authority, files) = (Authority::new(), Files::new());
    files.write(authority.issue(2100), &authority);
    let running = start(&files, false).await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(tokio::net::TcpStream::connect(running.address).await.unwrap());
    }
    let answer = tokio::time::timeout(Duration::from_secs(5), call(&running, &authority, None)).await;
    assert_eq!(answer.unwrap(), Ok(()));
    running.shutdown.drain();
    running.end_within(Duration::from_secs(3)).await;
}

#[tokio::test]
async fn files_that_cannot_be_used_are_named() {
    let (authority, files) = (Authority::new(), Files::new());
    let (certificate, key) = authority.issue(2100);
    let good = (certificate.clone(), key.clone());
    let cases = [
        ("cert.pem", "", "cert.pem holds no certificate in PEM form"),
        ("key.pem", certificate.as_str(), "key.pem holds no private key in PEM form"),
        ("ca.pem", key.as_str(), "ca.pem holds no certificate in PEM form"),
    ];
    for (name, text, wanted) in cases {
        files.write(good.clone(), &authority);
        fs::write(files.path(name), text).unwrap();
        let flags = files.flags(true);
        let args = support::args(&flags.iter().map(String::as_str).collect::<Vec<_>>());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let error = support::serve(&args, listener, Shutdown::new()).await.unwrap_err();
        assert!(error.to_string().ends_with(wanted), "{error}");
    }
    // A key of another certificate.
    files.write((certificate, authority.issue(2100).1), &authority);
    let flags = files.flags(true);
    let args = support::args(&flags.iter().map(String::as_str).collect::<Vec<_>>());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let error = support::serve(&args, listener, Shutdown::new()).await.unwrap_err();
    assert!(error.to_string().contains("key.pem holds a private key that cannot be used"), "{error}");
}

/// Case 333: no client would take it, so it is told at the start.
#[tokio::test]
async fn certificate_that_has_expired_is_refused() {
    let (authority, files) = (Authority::new(), Files::new());
    files.write(authority.issue(2001), &authority);
    let flags = files.flags(false);
    let args = support::args(&flags.iter().map(String::as_str).collect::<Vec<_>>());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let error = support::serve(&args, listener, Shutdown::new()).await.unwrap_err().to_string();
    assert!(error.starts_with("--tls-cert: the certificate in ") && error.ends_with("cert.pem has expired"), "{error}");
}
