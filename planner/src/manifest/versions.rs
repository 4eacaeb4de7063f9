//! API versions that never were.

/// The versions that a group of Kubernetes itself ever had, from 1.0 to 1.37, if the one of this apiVersion is not among them.
///
/// Alpha versions come and go with each release, so they are left to the cluster, as are groups that somebody else may define.
pub fn instead_of(api_version: &str) -> Option<&'static [&'static str]> {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    if group.is_empty() && version == "v1" || version.contains("alpha") {
        return None;
    }
    let known: &[&str] = match group {
        "" => &["v1"],
        "admissionregistration.k8s.io"
        | "apiextensions.k8s.io"
        | "apiregistration.k8s.io"
        | "authentication.k8s.io"
        | "authorization.k8s.io"
        | "batch"
        | "certificates.k8s.io"
        | "coordination.k8s.io"
        | "discovery.k8s.io"
        | "events.k8s.io"
        | "networking.k8s.io"
        | "node.k8s.io"
        | "policy"
        | "rbac.authorization.k8s.io"
        | "scheduling.k8s.io"
        | "storage.k8s.io" => &["v1", "v1beta1"],
        "apps" => &["v1", "v1beta2", "v1beta1"],
        "autoscaling" => &["v2", "v1", "v2beta2", "v2beta1"],
        "extensions" => &["v1beta1"],
        "flowcontrol.apiserver.k8s.io" => &["v1", "v1beta3", "v1beta2", "v1beta1"],
        "resource.k8s.io" => &["v1", "v1beta2", "v1beta1"],
        _ => return None,
    };
    (!known.contains(&version)).then_some(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_never_were_are_known() {
        for was in
            ["v1", "apps/v1beta2", "batch/v2alpha1", "policy/v1beta1", "ex.io/v7", "certificates.k8s.io/v1alpha1"]
        {
            assert_eq!(instead_of(was), None, "{was}");
        }
        for never in ["v2", "apps/v2", "batch/V1", "networking.k8s.io/v2", "extensions/v1", "autoscaling/v3"] {
            assert!(instead_of(never).is_some(), "{never}");
        }
    }
}
