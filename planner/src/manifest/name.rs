//! Which name an object gets (D10).

use std::fmt;

use crate::problem::quoted;

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

/// What the name of an object must be, by its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// A DNS-1123 subdomain: most kinds.
    Subdomain,
    /// A DNS-1123 subdomain of at most so many bytes, since names of other objects are made of it: Job and CronJob.
    Short(usize),
    /// A DNS-1123 label: Namespace, StatefulSet.
    Label,
    /// A DNS-1035 label, which starts with a letter: Service.
    LetterFirst,
    /// Anything that can be part of a URL's path, such as `system:node`: RBAC and a few more.
    PathSegment,
    /// This and nothing else, and what it consists of: `plural.group` of a CustomResourceDefinition, `version.group` of an
    /// APIService.
    Exactly(String, &'static str),
}

impl Rule {
    /// The rule of a kind, as API servers from 1.27 to 1.37 have it. `inside` is asked for texts of the object's spec.
    pub fn of(group: &str, kind: &str, inside: impl Fn(&[&str]) -> Option<String>) -> Self {
        let both = |first: &[&str], what| match (inside(first), inside(&["group"])) {
            (Some(first), Some(group)) => Self::Exactly(format!("{first}.{group}"), what),
            _ => Self::Subdomain,
        };
        match (group, kind) {
            ("rbac.authorization.k8s.io", _)
            | ("certificates.k8s.io", "CertificateSigningRequest" | "ClusterTrustBundle")
            | ("networking.k8s.io", "IPAddress") => Self::PathSegment,
            ("", "Service") => Self::LetterFirst,
            ("", "Namespace") | ("apps", "StatefulSet") => Self::Label,
            ("batch", "Job") => Self::Short(63),
            // A Job's name is this and eleven bytes more.
            ("batch", "CronJob") => Self::Short(52),
            ("apiextensions.k8s.io", "CustomResourceDefinition") => {
                both(&["names", "plural"], "its plural and its group")
            }
            ("apiregistration.k8s.io", "APIService") => both(&["version"], "its version and its group"),
            _ => Self::Subdomain,
        }
    }

    fn allows(&self, name: &str) -> bool {
        match self {
            Self::Subdomain => is_subdomain(name),
            Self::Short(most) => name.len() <= *most && is_subdomain(name),
            Self::Label => is_label(name),
            Self::LetterFirst => is_label(name) && name.starts_with(|c: char| c.is_ascii_lowercase()),
            Self::PathSegment => !matches!(name, "" | "." | "..") && !name.contains(['/', '%', ' ']),
            Self::Exactly(expected, _) => name == expected,
        }
    }
}

/// What a person has to write.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Subdomain => f.write_str("lower-case letters, digits, `-` and `.`"),
            Self::Short(most) => write!(f, "at most {most} lower-case letters, digits, `-` and `.`"),
            Self::Label => f.write_str("at most 63 lower-case letters, digits and `-`"),
            Self::LetterFirst => f.write_str("at most 63 lower-case letters, digits and `-`, with a letter first"),
            Self::PathSegment => f.write_str("no `/`, `%` or blank"),
            Self::Exactly(expected, what) => write!(f, "{}, {what}", quoted(expected)),
        }
    }
}

/// Chooses between `displayName` and `configuration.metadata.name`; both may be empty. None when both are.
pub fn choose<'a>(display: &'a str, configured: &'a str, rule: &Rule) -> Option<Chosen<'a>> {
    Some(match (rule.allows(display), rule.allows(configured)) {
        (true, true) if display != configured => Chosen::Over(display, configured),
        (true, _) => Chosen::Plain(display),
        (false, true) => Chosen::Plain(configured),
        (false, false) if !display.is_empty() => Chosen::Doubtful(display),
        (false, false) if !configured.is_empty() => Chosen::Doubtful(configured),
        (false, false) => return None,
    })
}

fn is_subdomain(name: &str) -> bool {
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
        assert_eq!(choose("web", "", &Rule::Subdomain), Some(Chosen::Plain("web")));
        assert_eq!(choose("web", "web", &Rule::Subdomain), Some(Chosen::Plain("web")));
        assert_eq!(choose("web", "other", &Rule::Subdomain), Some(Chosen::Over("web", "other")));
        assert_eq!(choose("web", "Not One", &Rule::Subdomain), Some(Chosen::Plain("web")));
        assert_eq!(choose("My Web", "web", &Rule::Subdomain), Some(Chosen::Plain("web")));
        assert_eq!(choose("", "web", &Rule::Subdomain), Some(Chosen::Plain("web")));
        assert_eq!(choose("My Web", "Not One", &Rule::Subdomain), Some(Chosen::Doubtful("My Web")));
        assert_eq!(choose("My Web", "", &Rule::Subdomain), Some(Chosen::Doubtful("My Web")));
        assert_eq!(choose("", "Not One", &Rule::Subdomain), Some(Chosen::Doubtful("Not One")));
        assert_eq!(choose("", "", &Rule::Subdomain), None);
    }

    #[test]
    fn rbac_takes_names_with_colons() {
        assert_eq!(choose("system:node", "", &Rule::PathSegment), Some(Chosen::Plain("system:node")));
        assert_eq!(choose("system:node", "", &Rule::Subdomain), Some(Chosen::Doubtful("system:node")));
    }

    #[test]
    fn a_kind_has_its_own_rule() {
        let rule = |group, kind, first: Option<&str>| {
            let inside = |keys: &[&str]| if keys == ["group"] { Some("ex.io") } else { first };
            Rule::of(group, kind, |keys| inside(keys).map(str::to_owned))
        };
        let chosen =
            |display, configured, rule: Rule| choose(display, configured, &rule).map(Chosen::name).map(str::to_owned);
        assert_eq!(chosen("my.service", "my-service", rule("", "Service", None)).as_deref(), Some("my-service"));
        assert_eq!(chosen("1st", "first", rule("", "Service", None)).as_deref(), Some("first"));
        assert_eq!(chosen("team.a", "team-a", rule("", "Namespace", None)).as_deref(), Some("team-a"));
        assert_eq!(
            chosen("my.service", "other", rule("serving.knative.dev", "Service", None)).as_deref(),
            Some("my.service")
        );
        let definition = rule("apiextensions.k8s.io", "CustomResourceDefinition", Some("widgets"));
        assert_eq!(chosen("widget", "widgets.ex.io", definition).as_deref(), Some("widgets.ex.io"));
        let service = rule("apiregistration.k8s.io", "APIService", Some("v1"));
        assert_eq!(chosen("metrics", "v1.ex.io", service).as_deref(), Some("v1.ex.io"));
        assert_eq!(chosen("my.db", "db", rule("apps", "StatefulSet", None)).as_deref(), Some("db"));
        let long = "a".repeat(53);
        assert_eq!(chosen(&long, "short", rule("batch", "CronJob", None)).as_deref(), Some("short"));
        assert_eq!(chosen(&long, "short", rule("batch", "Job", None)).as_deref(), Some(&*long));
        assert_eq!(
            chosen("a:b", "c", rule("certificates.k8s.io", "CertificateSigningRequest", None)).as_deref(),
            Some("a:b")
        );
    }

    #[test]
    fn labels_are_what_namespaces_need() {
        for (name, expected) in [("a", true), ("a-1", true), ("", false), ("A", false), ("a.b", false), ("-a", false)] {
            assert_eq!(is_label(name), expected, "{name}");
        }
        assert!(!is_label(&"a".repeat(64)));
    }
}
