//! Who may come in: kubeconfigs, clients, and what they are permitted.

use std::collections::BTreeMap;

use anyhow::Context as _;
use k8s_openapi::{
    api::{
        core::v1::Namespace,
        rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig as KubeKubeconfig},
};

use super::Cluster;
use crate::sandbox::{
    certs::Authority,
    kubeconfig::{Credential, Kubeconfig},
};

impl Cluster {
    /// Returns the kubeconfig of an administrator, a member of `system:masters`.
    pub fn kubeconfig_admin(&self) -> Kubeconfig {
        self.kubeconfig(Credential::Certificate(self.admin.clone()))
    }

    /// Returns the kubeconfig of a user with a client certificate and at most one group.
    pub fn kubeconfig_for(&self, user: &str, groups: &[&str]) -> anyhow::Result<Kubeconfig> {
        Ok(self.kubeconfig(Credential::Certificate(self.authority.client(user, groups)?)))
    }

    /// Returns the kubeconfig of whoever has this token; nobody, if it was not given to the control plane's builder.
    pub fn kubeconfig_with_token(&self, token: &str) -> Kubeconfig {
        self.kubeconfig(Credential::Token(token.to_owned()))
    }

    /// Returns a kubeconfig whose token no cluster knows.
    pub fn kubeconfig_wrong_token(&self) -> Kubeconfig {
        self.kubeconfig_with_token("this-token-is-not-known")
    }

    /// Returns an administrator's kubeconfig that trusts an authority other than the cluster's.
    pub fn kubeconfig_wrong_authority(&self) -> anyhow::Result<Kubeconfig> {
        let other = Authority::new("another-ca")?;
        let credential = Credential::Certificate(self.admin.clone());
        Ok(Kubeconfig::new().context(&self.name, &self.url(), other.certificate(), credential))
    }

    /// Returns a kubeconfig with the right address and authority, and the given credential.
    pub fn kubeconfig(&self, credential: Credential) -> Kubeconfig {
        Kubeconfig::new().context(&self.name, &self.url(), self.authority.certificate(), credential)
    }

    /// Returns a client with an administrator's rights, for looking and for preparing. It lives in the runtime of the
    /// test that asks, so every test asks for its own.
    pub async fn client(&self) -> anyhow::Result<Client> {
        self.client_as(&self.kubeconfig_admin()).await
    }

    /// Returns a client that uses the given kubeconfig. It gives up at the first failure: assertions want to see it.
    pub async fn client_as(&self, kubeconfig: &Kubeconfig) -> anyhow::Result<Client> {
        let parsed = KubeKubeconfig::from_yaml(&kubeconfig.to_string())?;
        let mut config = Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default()).await?;
        config.default_retry = false;
        Ok(Client::try_from(config)?)
    }

    /// Creates a namespace for one test, named after it and unlike any other, and returns the name.
    pub async fn namespace_for(&self, test: &str) -> anyhow::Result<String> {
        let id = uuid::Uuid::new_v4().simple().to_string();
        let short: String = test.replace('_', "-").chars().take(40).collect();
        let name = format!("{}-{}", short.trim_matches('-'), &id[..8]);
        let labels = BTreeMap::from([("switchyard.test/name".to_owned(), test.chars().take(63).collect())]);
        let metadata = ObjectMeta { name: Some(name.clone()), labels: Some(labels), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        Api::<Namespace>::all(self.client().await?).create(&PostParams::default(), &namespace).await?;
        Ok(name)
    }

    /// Permits a user some verbs on some resources of an API group (`""` is the core group) in every namespace.
    ///
    /// The well-known roles `view`, `edit` and `admin` are of no use here: they are empty until a controller manager has
    /// put them together.
    pub async fn grant(&self, user: &str, verbs: &[&str], group: &str, resources: &[&str]) -> anyhow::Result<()> {
        let (metadata, rules, subjects) = permission(user, verbs, group, resources);
        let role_ref = role_ref("ClusterRole", &metadata);
        let role = ClusterRole { metadata: metadata.clone(), rules: Some(rules), ..ClusterRole::default() };
        let binding = ClusterRoleBinding { metadata, role_ref, subjects: Some(subjects) };
        let client = self.client().await?;
        let context = || format!("failed to grant something to {user}");
        Api::all(client.clone()).create(&PostParams::default(), &role).await.with_context(context)?;
        Api::all(client).create(&PostParams::default(), &binding).await.with_context(context)?;
        Ok(())
    }

    /// Permits a user some verbs on some resources of an API group in one namespace, and nowhere else.
    pub async fn grant_in(
        &self,
        namespace: &str,
        user: &str,
        verbs: &[&str],
        group: &str,
        resources: &[&str],
    ) -> anyhow::Result<()> {
        let (metadata, rules, subjects) = permission(user, verbs, group, resources);
        let role_ref = role_ref("Role", &metadata);
        let role = Role { metadata: metadata.clone(), rules: Some(rules) };
        let binding = RoleBinding { metadata, role_ref, subjects: Some(subjects) };
        let client = self.client().await?;
        let context = || format!("failed to grant something to {user} in {namespace}");
        Api::namespaced(client.clone(), namespace).create(&PostParams::default(), &role).await.with_context(context)?;
        Api::namespaced(client, namespace).create(&PostParams::default(), &binding).await.with_context(context)?;
        Ok(())
    }
}

const RBAC: &str = "rbac.authorization.k8s.io";

/// What a role and its binding are made of: a name that nothing else has, what is permitted, and to whom.
fn permission(
    user: &str,
    verbs: &[&str],
    group: &str,
    resources: &[&str],
) -> (ObjectMeta, Vec<PolicyRule>, Vec<Subject>) {
    let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    let name = format!("sandbox-{}", uuid::Uuid::new_v4().simple());
    let rule = PolicyRule {
        api_groups: Some(texts(&[group])),
        resources: Some(texts(resources)),
        verbs: texts(verbs),
        ..PolicyRule::default()
    };
    let subject =
        Subject { api_group: Some(RBAC.to_owned()), kind: "User".to_owned(), name: user.to_owned(), namespace: None };
    (ObjectMeta { name: Some(name), ..ObjectMeta::default() }, vec![rule], vec![subject])
}

fn role_ref(kind: &str, role: &ObjectMeta) -> RoleRef {
    let name = role.name.clone().unwrap_or_default();
    RoleRef { api_group: Some(RBAC.to_owned()), kind: kind.to_owned(), name }
}
