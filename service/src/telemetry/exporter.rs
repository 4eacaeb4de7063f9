//! The OTLP exporter, as the standard variables describe it.
//!
//! The SDK reads most of them by itself: `OTEL_EXPORTER_OTLP_[TRACES_]ENDPOINT`, `_HEADERS`, `_TIMEOUT`,
//! `_COMPRESSION`, `_INSECURE`, `OTEL_TRACES_SAMPLER[_ARG]`, `OTEL_BSP_*`, `OTEL_SPAN_*_LIMIT`,
//! `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_SERVICE_NAME`. What it leaves to its user is here: whether to export at all, the
//! protocol, and certificates.

use std::{env, fs, path::PathBuf};

use opentelemetry_otlp::{SpanExporter, WithTonicConfig};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

/// Why traces are not exported although they are wanted. Values are left out: an endpoint can hold a password.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error("{variable} asks for {asked}, and only {known} is there")]
    Unknown { variable: &'static str, asked: String, known: &'static str },
    #[error("could not read {}, which {variable} names: {kind}", path.display())]
    File { variable: &'static str, path: PathBuf, kind: std::io::ErrorKind },
    #[error("{variable} is not usable as an endpoint")]
    Endpoint { variable: &'static str },
    #[error("{variable} needs a scheme: http://HOST:PORT, or https://HOST:PORT for TLS")]
    Scheme { variable: &'static str },
}

/// Makes the exporter, unless the environment asks for none.
pub(super) fn from_environment() -> Result<Option<SpanExporter>, Trouble> {
    if read("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Ok(None);
    }
    match read("OTEL_TRACES_EXPORTER").as_deref() {
        None | Some("otlp") => {}
        Some("none") => return Ok(None),
        Some(other) => {
            return Err(Trouble::Unknown {
                variable: "OTEL_TRACES_EXPORTER",
                asked: other.to_owned(),
                known: "otlp or none",
            });
        }
    }
    // By the standard no endpoint means the one on localhost. A program that nobody told to export does not try to.
    let Some((variable, endpoint)) = first_of(["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"])
    else {
        return Ok(None);
    };
    if let Some((variable, protocol)) = first_of(["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"])
        && protocol != "grpc"
    {
        return Err(Trouble::Unknown { variable, asked: protocol, known: "grpc" });
    }
    // Without one the library would take what comes before the colon for a scheme, and TLS for granted (case 300).
    if !["http://", "https://"].iter().any(|scheme| endpoint.starts_with(scheme)) {
        return Err(Trouble::Scheme { variable });
    }
    let mut builder = SpanExporter::builder().with_tonic();
    if endpoint.starts_with("https:") {
        builder = builder.with_tls_config(tls()?);
    }
    builder.build().map(Some).map_err(|_| Trouble::Endpoint { variable })
}

fn tls() -> Result<ClientTlsConfig, Trouble> {
    let mut tls = ClientTlsConfig::new();
    tls = match pem("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE")? {
        Some(authority) => tls.ca_certificate(Certificate::from_pem(authority)),
        None => tls.with_enabled_roots(),
    };
    let certificate = pem("OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE", "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE")?;
    let key = pem("OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", "OTEL_EXPORTER_OTLP_CLIENT_KEY")?;
    Ok(match (certificate, key) {
        (Some(certificate), Some(key)) => tls.identity(Identity::from_pem(certificate, key)),
        _ => tls,
    })
}

fn pem(own: &'static str, general: &'static str) -> Result<Option<Vec<u8>>, Trouble> {
    let Some((variable, path)) = first_of([own, general]) else { return Ok(None) };
    match fs::read(&path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) => Err(Trouble::File { variable, path: path.into(), kind: error.kind() }),
    }
}

fn first_of<const N: usize>(variables: [&'static str; N]) -> Option<(&'static str, String)> {
    variables.into_iter().find_map(|variable| Some((variable, read(variable)?)))
}

/// Reads a variable; an empty one counts as unset, by the standard.
pub(super) fn read(variable: &str) -> Option<String> {
    env::var(variable).ok().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}
