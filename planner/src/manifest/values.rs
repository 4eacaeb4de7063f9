//! Values that no API server takes, whatever else is in the object: they are said at planning, by their field.
//!
//! Only kinds of Kubernetes itself are looked at, and only what API servers of every version refuse: what may be right is
//! left to the cluster. Findings name fields, never values (D25).

use crate::document::{At, Map, Node, Path, Value};

/// Most findings in one object: more than these nobody reads.
const MOST: usize = 100;

/// A value that is wrong.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    /// Below the configuration.
    pub(super) path: Path,
    pub(super) at: At,
    pub(super) message: String,
}

/// What is wrong in an object of a kind of Kubernetes itself.
pub(super) fn wrong(configuration: &Map<'_>, api_version: &str, kind: &str) -> Vec<Wrong> {
    let mut finder = Finder::default();
    let root = Here { up: None, step: Step::Root };
    let Some(look) = look_for(api_version, kind) else { return Vec::new() };
    look(&mut finder, &root, configuration);
    finder.found
}

type Look = fn(&mut Finder, &Here<'_>, &Map<'_>);

/// How a kind is looked at; most kinds are not.
fn look_for(api_version: &str, kind: &str) -> Option<Look> {
    Some(match api_version {
        "v1" => match kind {
            "Pod" => |finder, here, object| finder.pod(here, object.get("spec"), &["spec"]),
            "Service" => |finder, here, object| finder.service(here, object),
            "PersistentVolumeClaim" => |finder, here, object| finder.resources(here, object.get("spec"), &["spec"]),
            "ReplicationController" => Finder::template,
            "PersistentVolume" => |finder, here, object| {
                finder.within(here, object, &["spec", "capacity"], |finder, here, map| finder.quantities(here, map));
            },
            "ResourceQuota" => |finder, here, object| {
                finder.within(here, object, &["spec", "hard"], |finder, here, map| finder.quantities(here, map));
            },
            "LimitRange" => Finder::limit_range,
            _ => return None,
        },
        "apps/v1" => match kind {
            "Deployment" | "DaemonSet" | "ReplicaSet" => Finder::template,
            "StatefulSet" => Finder::stateful_set,
            _ => return None,
        },
        "batch/v1" => match kind {
            "Job" => Finder::template,
            "CronJob" => |finder, here, object| {
                let keys = ["spec", "jobTemplate", "spec", "template", "spec"];
                finder.pod(here, at(object, &keys), &keys);
            },
            _ => return None,
        },
        "networking.k8s.io/v1" if kind == "Ingress" => Finder::ingress,
        "autoscaling/v2" if kind == "HorizontalPodAutoscaler" => Finder::autoscaler,
        "admissionregistration.k8s.io/v1" if kind.ends_with("WebhookConfiguration") => Finder::webhooks,
        "apiextensions.k8s.io/v1" if kind == "CustomResourceDefinition" => |finder, here, object| {
            finder.bytes(here, object, &["spec", "conversion", "webhook", "clientConfig", "caBundle"]);
        },
        "apiregistration.k8s.io/v1" if kind == "APIService" => {
            |finder, here, object| finder.bytes(here, object, &["spec", "caBundle"])
        }
        "certificates.k8s.io/v1" if kind == "CertificateSigningRequest" => {
            |finder, here, object| finder.bytes(here, object, &["spec", "request"])
        }
        _ => return None,
    })
}

/// Where the look is: a path that is made only where something is wrong.
#[derive(Clone, Copy)]
struct Here<'a> {
    up: Option<&'a Here<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    Keys(&'a [&'a str]),
    Key(&'a str),
    Index(usize),
}

impl<'a> Here<'a> {
    fn step(&'a self, step: Step<'a>) -> Self {
        Self { up: Some(self), step }
    }

    fn path(&self) -> Path {
        let up = self.up.map(Here::path).unwrap_or_default();
        match self.step {
            Step::Root => up,
            Step::Keys(keys) => up.keys(keys),
            Step::Key(key) => up.key(key),
            Step::Index(index) => up.index(index),
        }
    }
}

/// What lies under `keys`.
fn at<'n, 't>(map: &'n Map<'t>, keys: &[&str]) -> Option<&'n Node<'t>> {
    let (first, rest) = keys.split_first()?;
    map.get(first)?.get(rest)
}

/// Gathers what is wrong.
#[derive(Default)]
struct Finder {
    found: Vec<Wrong>,
}

impl Finder {
    fn wrong(&mut self, here: &Here<'_>, at: At, what: &str) {
        if self.found.len() < MOST {
            let path = here.path();
            self.found.push(Wrong { message: format!("`{path}` {what}"), path, at });
        }
    }

    /// Looks at the map under `keys`, if there is one.
    fn within<'t>(
        &mut self,
        here: &Here<'_>,
        map: &Map<'t>,
        keys: &[&str],
        look: impl FnOnce(&mut Self, &Here<'_>, &Map<'t>),
    ) {
        if let Some(inner) = at(map, keys).and_then(Node::as_map) {
            look(self, &here.step(Step::Keys(keys)), inner);
        }
    }

    /// Looks at each map of the list under `keys`, if there is one.
    fn each<'t>(
        &mut self,
        here: &Here<'_>,
        map: &Map<'t>,
        keys: &[&str],
        mut look: impl FnMut(&mut Self, &Here<'_>, &Map<'t>),
    ) {
        let Some(list) = at(map, keys).and_then(Node::as_list) else { return };
        let list_at = here.step(Step::Keys(keys));
        for (index, item) in list.iter().enumerate() {
            if let Some(item) = item.as_map() {
                look(self, &list_at.step(Step::Index(index)), item);
            }
        }
    }

    /// An object with a template of pods.
    fn template(&mut self, here: &Here<'_>, object: &Map<'_>) {
        const KEYS: [&str; 3] = ["spec", "template", "spec"];
        self.pod(here, at(object, &KEYS), &KEYS);
    }

    fn stateful_set(&mut self, here: &Here<'_>, object: &Map<'_>) {
        self.template(here, object);
        self.each(here, object, &["spec", "volumeClaimTemplates"], |finder, here, claim| {
            finder.resources(here, claim.get("spec"), &["spec"]);
        });
    }

    /// What describes a pod, which lies under `keys`.
    fn pod(&mut self, here: &Here<'_>, spec: Option<&Node<'_>>, keys: &[&str]) {
        let Some(Node { value: Value::Map(spec), .. }) = spec else { return };
        let here = here.step(Step::Keys(keys));
        for entry in spec.iter() {
            if !matches!(entry.key.as_ref(), "containers" | "initContainers") {
                continue;
            }
            let Some(containers) = entry.node.as_list() else { continue };
            let list = here.step(Step::Key(&entry.key));
            for (index, container) in containers.iter().enumerate() {
                if let Some(container) = container.as_map() {
                    self.container(&list.step(Step::Index(index)), container);
                }
            }
        }
    }

    fn container(&mut self, here: &Here<'_>, container: &Map<'_>) {
        for entry in container.iter() {
            match entry.key.as_ref() {
                "resources" => self.amounts(&here.step(Step::Key("resources")), &entry.node),
                "ports" => {
                    let list = here.step(Step::Key("ports"));
                    for (index, port) in entry.node.as_list().unwrap_or_default().iter().enumerate() {
                        if let Some(port) = port.as_map() {
                            self.container_port(&list.step(Step::Index(index)), port);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn container_port(&mut self, here: &Here<'_>, port: &Map<'_>) {
        for entry in port.iter() {
            let node = &entry.node;
            let what = match entry.key.as_ref() {
                "containerPort" => number_of_a_port(node, 1),
                // None is 0.
                "hostPort" => number_of_a_port(node, 0),
                "name" if node.as_str().is_some_and(|name| !name.is_empty() && !is_port_name(name)) => Some(PORT_NAME),
                _ => None,
            };
            if let Some(what) = what {
                self.wrong(&here.step(Step::Key(&entry.key)), node.at, what);
            }
        }
    }

    fn service(&mut self, here: &Here<'_>, object: &Map<'_>) {
        self.each(here, object, &["spec", "ports"], |finder, here, port| {
            for entry in port.iter() {
                let node = &entry.node;
                let what = match entry.key.as_ref() {
                    "port" => number_of_a_port(node, 1),
                    "nodePort" => number_of_a_port(node, 0),
                    "targetPort" => match &node.value {
                        Value::String(name) if !name.is_empty() && !is_port_name(name) => Some(TARGET_PORT),
                        Value::Number(_) => number_of_a_port(node, 0),
                        _ => None,
                    },
                    "name" if node.as_str().is_some_and(|name| !name.is_empty() && !super::is_label(name)) => {
                        Some("can be no name of a port: at most 63 lower-case letters, digits and `-`")
                    }
                    _ => None,
                };
                if let Some(what) = what {
                    finder.wrong(&here.step(Step::Key(&entry.key)), node.at, what);
                }
            }
        });
    }

    fn ingress(&mut self, here: &Here<'_>, object: &Map<'_>) {
        let backend = |finder: &mut Self, here: &Here<'_>, holder: &Map<'_>, keys: &[&str]| {
            if let Some(node) = at(holder, keys)
                && let Some(what) = number_of_a_port(node, 1)
            {
                finder.wrong(&here.step(Step::Keys(keys)), node.at, what);
            }
        };
        backend(self, here, object, &["spec", "defaultBackend", "service", "port", "number"]);
        self.each(here, object, &["spec", "rules"], |finder, here, rule| {
            finder.each(here, rule, &["http", "paths"], |finder, here, path| {
                backend(finder, here, path, &["backend", "service", "port", "number"]);
            });
        });
    }

    /// What is asked for and allowed by what lies under `keys`.
    fn resources(&mut self, here: &Here<'_>, holder: Option<&Node<'_>>, keys: &[&str]) {
        let Some(node) = holder.and_then(|holder| holder.get(&["resources"])) else { return };
        let here = here.step(Step::Keys(keys));
        self.amounts(&here.step(Step::Key("resources")), node);
    }

    fn amounts(&mut self, here: &Here<'_>, resources: &Node<'_>) {
        for field in ["limits", "requests"] {
            if let Some(Value::Map(map)) = resources.get(&[field]).map(|node| &node.value) {
                self.quantities(&here.step(Step::Key(field)), map);
            }
        }
    }

    /// A map whose values are quantities.
    fn quantities(&mut self, here: &Here<'_>, map: &Map<'_>) {
        for entry in map.iter() {
            self.quantity(&here.step(Step::Key(&entry.key)), &entry.node);
        }
    }

    fn quantity(&mut self, here: &Here<'_>, node: &Node<'_>) {
        let fits = match &node.value {
            Value::String(text) | Value::Number(text) => is_quantity(text),
            Value::Null => true,
            _ => false,
        };
        if !fits {
            self.wrong(here, node.at, "is no quantity, such as 500m or 1Gi, and every API server refuses it");
        }
    }

    fn limit_range(&mut self, here: &Here<'_>, object: &Map<'_>) {
        self.each(here, object, &["spec", "limits"], |finder, here, limit| {
            for field in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
                finder.within(here, limit, &[field], |finder, here, map| finder.quantities(here, map));
            }
        });
    }

    fn autoscaler(&mut self, here: &Here<'_>, object: &Map<'_>) {
        self.each(here, object, &["spec", "metrics"], |finder, here, metric| {
            for source in ["resource", "containerResource", "pods", "object", "external"] {
                finder.within(here, metric, &[source, "target"], |finder, here, target| {
                    for field in ["value", "averageValue"] {
                        if let Some(node) = target.get(field) {
                            finder.quantity(&here.step(Step::Key(field)), node);
                        }
                    }
                });
            }
        });
    }

    fn webhooks(&mut self, here: &Here<'_>, object: &Map<'_>) {
        self.each(here, object, &["webhooks"], |finder, here, webhook| {
            finder.bytes(here, webhook, &["clientConfig", "caBundle"]);
        });
    }

    /// Bytes, which JSON holds in base64.
    fn bytes(&mut self, here: &Here<'_>, map: &Map<'_>, keys: &[&str]) {
        if let Some(node) = at(map, keys)
            && node.as_str().is_some_and(|text| !is_base64(text))
        {
            self.wrong(&here.step(Step::Keys(keys)), node.at, "is no base64, and every API server refuses it");
        }
    }
}

const PORT_NAME: &str =
    "can be no name of a port: at most 15 lower-case letters, digits and single `-`, with a letter among them";
const TARGET_PORT: &str = "is neither the name of a port nor a number: a name has at most 15 lower-case letters, digits and \
                           single `-`, with a letter among them, and a number stands without quotes";

/// What is wrong with the number of a port, which is at least `least`. Numbers that are written in another way than as digits
/// are left to the API server.
fn number_of_a_port(node: &Node<'_>, least: i64) -> Option<&'static str> {
    match &node.value {
        Value::Number(text) => {
            let is_none = text.parse::<i64>().is_ok_and(|number| !(least..=65_535).contains(&number));
            is_none.then_some("is no port: ports are 1 to 65535")
        }
        Value::String(_) => Some("is text and must be a number, without quotes"),
        _ => None,
    }
}

/// Whether a text can be the name of a port (RFC 6335 section 5.1, in lower case).
fn is_port_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=15).contains(&name.len())
        && name.bytes().all(fits)
        && name.bytes().any(|byte| byte.is_ascii_lowercase())
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--")
}

/// Whether a text is base64 as Go reads it, which passes over line ends.
pub(super) fn is_base64(text: &str) -> bool {
    let (mut digits, mut padding) = (0_usize, 0_usize);
    for byte in text.bytes() {
        match byte {
            b'\r' | b'\n' => {}
            b'=' => padding += 1,
            b'+' | b'/' if padding == 0 => digits += 1,
            byte if byte.is_ascii_alphanumeric() && padding == 0 => digits += 1,
            _ => return false,
        }
    }
    matches!((digits % 4, padding), (0, 0) | (2, 2) | (3, 1))
}

/// Whether a text is a quantity of Kubernetes, such as `100m`, `1.5Gi` or `1e3`.
fn is_quantity(text: &str) -> bool {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let is_number = number.bytes().any(|byte| byte.is_ascii_digit()) && number.matches('.').count() <= 1;
    let is_exponent = || {
        let exponent = suffix.strip_prefix(['e', 'E']);
        exponent.is_some_and(|exponent| exponent.parse::<i32>().is_ok())
    };
    let units = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    is_number && (units.contains(&suffix) || is_exponent())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Limits, Text, read};

    #[test]
    fn base64_is_what_go_takes() {
        for fine in ["", "YQ==", "YWI=", "YWJj", "YW\nJj", "YR=="] {
            assert!(is_base64(fine), "{fine:?}");
        }
        for wrong in ["not base64!", "YQ", "YQ=", "=", "YWJj=", "Y===", "YQ==YQ==", "YW Jj", "YW-_"] {
            assert!(!is_base64(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn quantities_have_the_units_of_kubernetes() {
        for fine in ["1", "0.5", ".5", "5.", "100m", "1Gi", "-1k", "+2E", "1e3", "1E-3", "12e+2"] {
            assert!(is_quantity(fine), "{fine}");
        }
        for wrong in ["", "1Gb", "1 Gi", "1gi", "K", "1.2.3", "m", "1KB", "e3", "1e", "0x10"] {
            assert!(!is_quantity(wrong), "{wrong}");
        }
    }

    #[test]
    fn names_of_ports_are_those_of_services_on_the_internet() {
        for fine in ["http", "a", "h2", "8080-tcp", "metrics-and-log"] {
            assert!(is_port_name(fine), "{fine}");
        }
        for wrong in ["", "HTTP", "80", "metrics-and-logs", "a--b", "-a", "a-", "a_b", "a.b"] {
            assert!(!is_port_name(wrong), "{wrong}");
        }
    }

    #[track_caller]
    fn wrong_in(api_version: &str, kind: &str, json: &str) -> Vec<String> {
        let (node, _) = read(Text::new(json), &Limits::default());
        let Some(Node { value: Value::Map(map), .. }) = node else { panic!("a map") };
        wrong(&map, api_version, kind).into_iter().map(|wrong| wrong.path.to_string()).collect()
    }

    #[test]
    fn each_kind_is_looked_at_where_it_has_such_values() {
        let cases: [(&str, &str, &str, &[&str]); 13] = [
            (
                "v1",
                "Pod",
                r#"{"spec":{"initContainers":[{"ports":[{"containerPort":0,"hostPort":0,"name":"HTTP"}]}]}}"#,
                &["spec.initContainers[0].ports[0].containerPort", "spec.initContainers[0].ports[0].name"],
            ),
            (
                "apps/v1",
                "Deployment",
                r#"{"spec":{"template":{"spec":{"containers":[{"ports":[{"containerPort":"80"}]}]}}}}"#,
                &["spec.template.spec.containers[0].ports[0].containerPort"],
            ),
            (
                "apps/v1",
                "StatefulSet",
                r#"{"spec":{"volumeClaimTemplates":[{"spec":{"resources":{"requests":{"storage":"ten"}}}}]}}"#,
                &["spec.volumeClaimTemplates[0].spec.resources.requests.storage"],
            ),
            (
                "batch/v1",
                "CronJob",
                r#"{"spec":{"jobTemplate":{"spec":{"template":{"spec":{"containers":[{"resources":{"limits":{"cpu":"1x"}}}]}}}}}}"#,
                &["spec.jobTemplate.spec.template.spec.containers[0].resources.limits.cpu"],
            ),
            (
                "v1",
                "Service",
                r#"{"spec":{"ports":[{"port":99999,"targetPort":"80","nodePort":0},{"port":80,"targetPort":0,"name":"Web"},{"port":1.0,"targetPort":"http"}]}}"#,
                &["spec.ports[0].port", "spec.ports[0].targetPort", "spec.ports[1].name"],
            ),
            (
                "networking.k8s.io/v1",
                "Ingress",
                r#"{"spec":{"defaultBackend":{"service":{"port":{"number":0}}},"rules":[{"http":{"paths":[{"backend":{"service":{"port":{"number":"80"}}}}]}}]}}"#,
                &["spec.defaultBackend.service.port.number", "spec.rules[0].http.paths[0].backend.service.port.number"],
            ),
            (
                "v1",
                "ResourceQuota",
                r#"{"spec":{"hard":{"pods":"many","requests.cpu":"1","limits.cpu":true}}}"#,
                &["spec.hard.pods", "spec.hard[\"limits.cpu\"]"],
            ),
            (
                "v1",
                "LimitRange",
                r#"{"spec":{"limits":[{"max":{"cpu":"1 core"},"default":{"cpu":"1"}}]}}"#,
                &["spec.limits[0].max.cpu"],
            ),
            ("v1", "PersistentVolume", r#"{"spec":{"capacity":{"storage":"1GB"}}}"#, &["spec.capacity.storage"]),
            (
                "autoscaling/v2",
                "HorizontalPodAutoscaler",
                r#"{"spec":{"metrics":[{"pods":{"target":{"averageValue":"half"}}}]}}"#,
                &["spec.metrics[0].pods.target.averageValue"],
            ),
            (
                "admissionregistration.k8s.io/v1",
                "ValidatingWebhookConfiguration",
                r#"{"webhooks":[{"clientConfig":{"caBundle":"${CA}"}},{"clientConfig":{"caBundle":""}}]}"#,
                &["webhooks[0].clientConfig.caBundle"],
            ),
            (
                "certificates.k8s.io/v1",
                "CertificateSigningRequest",
                r#"{"spec":{"request":"-----BEGIN"}}"#,
                &["spec.request"],
            ),
            // The same in a kind of others means nothing.
            ("serving.knative.dev/v1", "Service", r#"{"spec":{"ports":[{"port":99999}]}}"#, &[]),
        ];
        for (api_version, kind, json, paths) in cases {
            assert_eq!(wrong_in(api_version, kind, json), paths, "{kind}");
        }
    }

    #[test]
    fn findings_are_bounded() {
        let port = r#"{"containerPort":0},"#.repeat(5 * MOST);
        let json = format!(r#"{{"spec":{{"containers":[{{"ports":[{}]}}]}}}}"#, port.trim_end_matches(','));
        assert_eq!(wrong_in("v1", "Pod", &json).len(), MOST);
    }
}
