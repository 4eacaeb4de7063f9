//! What is known of the kinds of Kubernetes itself, as of 1.37. The planner sees no cluster, so it knows no others; the executor
//! asks each cluster.

/// Whether a kind is one of Kubernetes' own without a namespace.
pub fn is_cluster_scoped(group: &str, kind: &str) -> bool {
    match group {
        "" => matches!(kind, "ComponentStatus" | "Namespace" | "Node" | "PersistentVolume"),
        "admissionregistration.k8s.io" => matches!(
            kind,
            "MutatingAdmissionPolicy"
                | "MutatingAdmissionPolicyBinding"
                | "MutatingWebhookConfiguration"
                | "ValidatingAdmissionPolicy"
                | "ValidatingAdmissionPolicyBinding"
                | "ValidatingWebhookConfiguration"
        ),
        "apiextensions.k8s.io" => kind == "CustomResourceDefinition",
        "apiregistration.k8s.io" => kind == "APIService",
        "authentication.k8s.io" => matches!(kind, "SelfSubjectReview" | "TokenReview"),
        "authorization.k8s.io" => {
            matches!(kind, "SelfSubjectAccessReview" | "SelfSubjectRulesReview" | "SubjectAccessReview")
        }
        "certificates.k8s.io" => matches!(kind, "CertificateSigningRequest" | "ClusterTrustBundle"),
        "flowcontrol.apiserver.k8s.io" => matches!(kind, "FlowSchema" | "PriorityLevelConfiguration"),
        "gateway.networking.k8s.io" => kind == "GatewayClass",
        "internal.apiserver.k8s.io" => kind == "StorageVersion",
        "networking.k8s.io" => matches!(kind, "IPAddress" | "IngressClass" | "ServiceCIDR"),
        "node.k8s.io" => kind == "RuntimeClass",
        "rbac.authorization.k8s.io" => matches!(kind, "ClusterRole" | "ClusterRoleBinding"),
        "resource.k8s.io" => {
            matches!(kind, "DeviceClass" | "DeviceTaintRule" | "ResourcePoolStatusRequest" | "ResourceSlice")
        }
        "scheduling.k8s.io" => kind == "PriorityClass",
        "storage.k8s.io" => {
            matches!(kind, "CSIDriver" | "CSINode" | "StorageClass" | "VolumeAttachment" | "VolumeAttributesClass")
        }
        "storagemigration.k8s.io" => kind == "StorageVersionMigration",
        _ => false,
    }
}

/// Whether a kind is a list of objects, which an API server answers and nobody can apply. In the groups of Kubernetes itself every
/// kind that is called so is one. Elsewhere it need not be: `AllowList` is a kind of its own.
pub fn is_list(group: &str, kind: &str) -> bool {
    let own = matches!(
        group,
        "" | "admissionregistration.k8s.io"
            | "apiextensions.k8s.io"
            | "apiregistration.k8s.io"
            | "apps"
            | "authentication.k8s.io"
            | "authorization.k8s.io"
            | "autoscaling"
            | "batch"
            | "certificates.k8s.io"
            | "coordination.k8s.io"
            | "discovery.k8s.io"
            | "events.k8s.io"
            | "flowcontrol.apiserver.k8s.io"
            | "internal.apiserver.k8s.io"
            | "networking.k8s.io"
            | "node.k8s.io"
            | "policy"
            | "rbac.authorization.k8s.io"
            | "resource.k8s.io"
            | "scheduling.k8s.io"
            | "storage.k8s.io"
            | "storagemigration.k8s.io"
    );
    own && kind.ends_with("List")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_belongs_to_its_group() {
        assert!(is_cluster_scoped("", "Namespace"));
        assert!(!is_cluster_scoped("apps", "Namespace"));
        assert!(is_cluster_scoped("storage.k8s.io", "VolumeAttributesClass"));
        assert!(is_cluster_scoped("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"));
    }

    #[test]
    fn lists_are_those_of_known_kinds() {
        for (group, kind) in
            [("", "List"), ("", "PodList"), ("apps", "DeploymentList"), ("storage.k8s.io", "CSINodeList")]
        {
            assert!(is_list(group, kind), "{kind}");
        }
        for (group, kind) in [("ex.io", "AllowList"), ("ex.io", "List"), ("", "Pod")] {
            assert!(!is_list(group, kind), "{kind}");
        }
    }
}
