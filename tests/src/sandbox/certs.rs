//! Certificates: an authority for each cluster, its server, and its users.

use anyhow::Context as _;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

/// A certificate and its private key, both as PEM.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// The private key.
    pub key: String,
}

/// A certificate authority.
pub struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl std::fmt::Debug for Authority {
    // The issuer holds the private key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    /// Creates an authority that calls itself `name`.
    pub fn new(name: &str) -> anyhow::Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().context("failed to make the authority's key")?;
        let certificate = params.self_signed(&key).context("failed to make the authority's certificate")?.pem();
        Ok(Self { certificate, issuer: Issuer::new(params, key) })
    }

    /// Returns the authority's own certificate, as PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Issues a certificate for a server on this machine, known by the given names and addresses.
    pub fn server(&self, names: &[&str]) -> anyhow::Result<Identity> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).context("failed to read the server's names")?;
        params.distinguished_name.push(DnType::CommonName, "server");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(params)
    }

    /// Issues a certificate for a client; to Kubernetes, the name is the user and the organisations are the groups.
    pub fn client(&self, user: &str, groups: &[&str]) -> anyhow::Result<Identity> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        // A name holds each kind of entry once in rcgen, and one of several values is not supported.
        anyhow::ensure!(groups.len() <= 1, "a client certificate holds one group; use a token user for {groups:?}");
        if let Some(&group) = groups.first() {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(params)
    }

    fn issue(&self, mut params: CertificateParams) -> anyhow::Result<Identity> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().context("failed to make a key")?;
        let certificate = params.signed_by(&key, &self.issuer).context("failed to sign a certificate")?.pem();
        Ok(Identity { certificate, key: key.serialize_pem() })
    }
}

/// A pair of keys without a certificate, as service account tokens are signed with.
#[derive(Debug)]
pub struct SigningKey {
    /// The private half, as PEM.
    pub private: String,
    /// The public half, as PEM.
    pub public: String,
}

impl SigningKey {
    /// Makes a new pair.
    pub fn new() -> anyhow::Result<Self> {
        let key = KeyPair::generate().context("failed to make a signing key")?;
        Ok(Self { private: key.serialize_pem(), public: key.public_key_pem() })
    }
}
