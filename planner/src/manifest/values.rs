//! Values that no API server takes, whatever else is in the object: they are said at planning, by their field.

use crate::document::{Map, Node, Path, Value};

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

/// Where quantities stand in an object of a kind of Kubernetes itself that are none.
pub(super) fn wrong_quantities(configuration: &Map<'_>, api_version: &str, kind: &str) -> Vec<Path> {
    let template: &[&str] = match (api_version, kind) {
        ("v1", "Pod" | "PersistentVolumeClaim") => &[],
        ("apps/v1", "Deployment" | "DaemonSet" | "ReplicaSet" | "StatefulSet")
        | ("batch/v1", "Job")
        | ("v1", "ReplicationController") => &["template", "spec"],
        ("batch/v1", "CronJob") => &["jobTemplate", "spec", "template", "spec"],
        _ => return Vec::new(),
    };
    let Some(spec) = configuration.get("spec").and_then(|spec| spec.get(template)) else { return Vec::new() };
    let path = Path::root().key("spec").keys(template);
    let mut wrong = Vec::new();
    resources(spec, &path, &mut wrong);
    for field in ["containers", "initContainers"] {
        let containers = spec.get(&[field]).and_then(Node::as_list).unwrap_or_default();
        for (index, container) in containers.iter().enumerate() {
            resources(container, &path.clone().key(field).index(index), &mut wrong);
        }
    }
    wrong
}

/// What `resources` of a container or a claim asks for.
fn resources(holder: &Node<'_>, path: &Path, wrong: &mut Vec<Path>) {
    for field in ["limits", "requests"] {
        let Some(Value::Map(map)) = holder.get(&["resources", field]).map(|node| &node.value) else { continue };
        for entry in map.iter() {
            let fits = match &entry.node.value {
                Value::String(text) | Value::Number(text) => is_quantity(text),
                Value::Null => true,
                _ => false,
            };
            // More of one object than anybody reads are not looked for.
            if !fits && wrong.len() < 100 {
                wrong.push(path.clone().keys(&["resources", field, &entry.key]));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
