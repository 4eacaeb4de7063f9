//! What the executor calls itself to those whom it asks (RFC 9110 section 10.1.5): audit logs and flow control of API servers go
//! by it (case 313).

use http::HeaderValue;

/// As client-go says it: program, version, and Go's names of system and architecture.
pub(crate) fn program() -> String {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("switchyard-executor/{} ({}/{arch})", env!("CARGO_PKG_VERSION"), std::env::consts::OS)
}

/// Which executor it is, for people: the program, and the host that it runs on where that is known.
pub(crate) fn executor() -> String {
    match std::env::var("HOSTNAME") {
        Ok(host) if !host.is_empty() => format!("{} on {host}", program()),
        _ => program(),
    }
}

/// The program, for the requests of one run.
pub(crate) fn of_run(run_id: &str) -> HeaderValue {
    let text = format!("{} run/{run_id}", program());
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("switchyard-executor"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_told_behind_the_program() {
        let agent = of_run("0a1b");
        let text = agent.to_str().unwrap();
        assert!(text.starts_with(&format!("switchyard-executor/{} (linux/", env!("CARGO_PKG_VERSION"))), "{text}");
        assert!(text.ends_with(") run/0a1b"), "{text}");
    }
}
