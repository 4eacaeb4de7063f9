//! Which name an object gets (D10).

/// The name of an object, and whether that needs a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chosen<'a> {
    /// There is no doubt.
    Plain(&'a str),
    /// Both names would do and differ; this is `displayName`, and the other one is not used.
    Over(&'a str, &'a str),
    /// Neither name can be a Kubernetes name; the API server decides.
    Doubtful(&'a str),
}

impl<'a> Chosen<'a> {
    /// The name.
    pub fn name(self) -> &'a str {
        match self {
            Self::Plain(name) | Self::Over(name, _) | Self::Doubtful(name) => name,
        }
    }
}

/// Chooses between `displayName` and `configuration.metadata.name`; both may be empty. None when both are.
pub fn choose<'a>(display: &'a str, configured: &'a str, group: &str) -> Option<Chosen<'a>> {
    let valid = |name: &str| can_be_name(name, group);
    Some(match (valid(display), valid(configured)) {
        (true, true) if display != configured => Chosen::Over(display, configured),
        (true, _) => Chosen::Plain(display),
        (false, true) => Chosen::Plain(configured),
        (false, false) if !display.is_empty() => Chosen::Doubtful(display),
        (false, false) if !configured.is_empty() => Chosen::Doubtful(configured),
        (false, false) => return None,
    })
}

/// Whether Kubernetes takes this as the name of an object of a group: a DNS-1123 subdomain, and for RBAC anything that can
/// be part of a URL's path, such as `system:node`.
fn can_be_name(name: &str, group: &str) -> bool {
    if group == "rbac.authorization.k8s.io" {
        return !matches!(name, "" | "." | "..") && !name.contains(['/', '%', ' ']);
    }
    !name.is_empty() && name.len() <= 253 && name.split('.').all(is_dns_part)
}

fn is_dns_part(part: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !part.is_empty() && part.bytes().all(inner) && !part.starts_with('-') && !part.ends_with('-')
}

/// Whether this is a DNS-1123 label, as a namespace must be.
pub fn is_label(name: &str) -> bool {
    name.len() <= 63 && is_dns_part(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_display_name_wins_when_it_can_be_a_name() {
        assert_eq!(choose("web", "", "apps"), Some(Chosen::Plain("web")));
        assert_eq!(choose("web", "web", "apps"), Some(Chosen::Plain("web")));
        assert_eq!(choose("web", "other", "apps"), Some(Chosen::Over("web", "other")));
        assert_eq!(choose("web", "Not One", "apps"), Some(Chosen::Plain("web")));
        assert_eq!(choose("My Web", "web", "apps"), Some(Chosen::Plain("web")));
        assert_eq!(choose("", "web", "apps"), Some(Chosen::Plain("web")));
        assert_eq!(choose("My Web", "Not One", "apps"), Some(Chosen::Doubtful("My Web")));
        assert_eq!(choose("My Web", "", "apps"), Some(Chosen::Doubtful("My Web")));
        assert_eq!(choose("", "Not One", "apps"), Some(Chosen::Doubtful("Not One")));
        assert_eq!(choose("", "", "apps"), None);
    }

    #[test]
    fn rbac_takes_names_with_colons() {
        assert_eq!(choose("system:node", "", "rbac.authorization.k8s.io"), Some(Chosen::Plain("system:node")));
        assert_eq!(choose("system:node", "", ""), Some(Chosen::Doubtful("system:node")));
    }

    #[test]
    fn labels_are_what_namespaces_need() {
        for (name, expected) in [("a", true), ("a-1", true), ("", false), ("A", false), ("a.b", false), ("-a", false)] {
            assert_eq!(is_label(name), expected, "{name}");
        }
        assert!(!is_label(&"a".repeat(64)));
    }
}
