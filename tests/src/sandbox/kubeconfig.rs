//! Kubeconfigs as text, good ones and bad ones.

use std::fmt;

use base64::{Engine as _, prelude::BASE64_STANDARD};

use super::certs::Identity;

/// How a user of a kubeconfig proves who they are.
#[derive(Debug, Clone)]
pub enum Credential {
    /// By a client certificate.
    Certificate(Identity),
    /// By a bearer token.
    Token(String),
    /// Not at all: the API server sees `system:anonymous`.
    Nothing,
}

#[derive(Debug, Clone)]
struct Entry {
    context: String,
    server: String,
    authority: String,
    credential: Credential,
}

/// A kubeconfig with everything inline; [`Display`](fmt::Display) writes it as YAML. The first context is the current.
#[derive(Debug, Clone, Default)]
pub struct Kubeconfig(Vec<Entry>);

impl Kubeconfig {
    /// Starts without any context.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a context, with a cluster and a user of the same name.
    #[must_use]
    pub fn context(mut self, name: &str, server: &str, authority_pem: &str, credential: Credential) -> Self {
        self.0.push(Entry {
            context: name.to_owned(),
            server: server.to_owned(),
            authority: authority_pem.to_owned(),
            credential,
        });
        self
    }

    /// Adds all contexts of another kubeconfig.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }
}

impl fmt::Display for Kubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(entries) = self;
        writeln!(f, "apiVersion: v1\nkind: Config")?;
        if let Some(first) = entries.first() {
            writeln!(f, "current-context: {}", first.context)?;
        }
        writeln!(f, "clusters:")?;
        for Entry { context, server, authority, .. } in entries {
            let authority = BASE64_STANDARD.encode(authority);
            writeln!(f, "- name: {context}\n  cluster:\n    server: {server}")?;
            writeln!(f, "    certificate-authority-data: {authority}")?;
        }
        writeln!(f, "contexts:")?;
        for Entry { context, .. } in entries {
            writeln!(f, "- name: {context}\n  context:\n    cluster: {context}\n    user: {context}")?;
        }
        writeln!(f, "users:")?;
        for Entry { context, credential, .. } in entries {
            writeln!(f, "- name: {context}")?;
            match credential {
                Credential::Certificate(Identity { certificate, key }) => {
                    let (certificate, key) = (BASE64_STANDARD.encode(certificate), BASE64_STANDARD.encode(key));
                    writeln!(f, "  user:\n    client-certificate-data: {certificate}\n    client-key-data: {key}")?;
                }
                Credential::Token(token) => writeln!(f, "  user:\n    token: {token}")?,
                Credential::Nothing => writeln!(f, "  user: {{}}")?,
            }
        }
        Ok(())
    }
}
