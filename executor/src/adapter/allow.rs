//! Which adapters may be handed the credentials of the executor's own clusters.
//!
//! A registry in a request names adapters, so a caller chooses where an adapter is. A kubeconfig of the caller's own goes wherever
//! the caller says; those of the executor go only to addresses that the installation names. None is named by default.

use std::str::FromStr;

use wildmatch::WildMatch;

/// Addresses of adapters, such as `mesh-adapter.meshery.svc:10000`. `*` in the host stands for any characters, and `*` as the port
/// for any port.
#[derive(Clone, Debug, PartialEq)]
pub struct AddressPattern {
    host: WildMatch,
    /// None: any.
    port: Option<u16>,
}

impl FromStr for AddressPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (host, port) = text.rsplit_once(':').ok_or("a port is missing: HOST:PORT, `*` as PORT for any")?;
        let port = match port {
            "*" => None,
            port => match port.parse() {
                Ok(port) if port > 0 => Some(port),
                _ => return Err("PORT is a number from 1 to 65535, or `*`".into()),
            },
        };
        let host = normal(host);
        if !host.chars().all(|c| c == '*' || is_of_a_host(c)) || host.is_empty() {
            return Err("HOST is a name or an IP address, `*` for any characters".into());
        }
        Ok(Self { host: WildMatch::new(&host), port })
    }
}

impl AddressPattern {
    /// Whether the adapter at `host` and `port` is among those that are meant.
    pub(crate) fn matches(&self, host: &str, port: u16) -> bool {
        let host = normal(host);
        // A host with a `?` or an `@` in it would be dialled under another name than the one that is compared.
        host.chars().all(is_of_a_host) && self.port.is_none_or(|own| own == port) && self.host.matches(&host)
    }
}

fn is_of_a_host(c: char) -> bool {
    c.is_ascii_alphanumeric() || ['.', '-', '_', ':'].contains(&c)
}

/// As names are compared: without case, the brackets of an IPv6 address and the dot of the root.
pub(super) fn normal(host: &str) -> String {
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, host: &str, port: u16) -> bool {
        pattern.parse::<AddressPattern>().unwrap().matches(host, port)
    }

    #[test]
    fn addresses_are_matched_by_host_and_port_apart() {
        assert!(matches("mesh.meshery.svc:10000", "Mesh.meshery.svc.", 10000));
        assert!(matches("*.meshery.svc:*", "mesh.meshery.svc", 1));
        assert!(matches("[::1]:*", "::1", 10000) && matches("::1:10000", "[::1]", 10000));
        assert!(!matches("mesh:10000", "mesh", 10001));
        assert!(!matches("mesh:10000", "mesh.evil.example", 10000));
        assert!(!matches("*.svc:10000", "mesh.svc.evil.example", 10000));
    }

    #[test]
    fn host_that_is_dialled_under_another_name_matches_nothing() {
        for host in
            ["evil.example?.mesh.svc", "evil.example#.mesh.svc", "evil.example\\.mesh.svc", "x@y.mesh.svc", "*.svc"]
        {
            assert!(!matches("*.svc:*", host, 10000), "{host}");
            assert!(!matches("*:*", host, 10000), "{host}");
        }
    }

    #[test]
    fn pattern_that_names_no_address_is_refused() {
        for text in ["mesh", "mesh:", "mesh:0", "mesh:x", ":10000", "http://mesh:10000", "a b:1"] {
            assert!(text.parse::<AddressPattern>().is_err(), "{text}");
        }
    }
}
