//! The programs of the sandbox: found where people have them, else built from pinned Go modules.
//!
//! The order is `KUBEBUILDER_ASSETS` (what the Go world's own tests use), `PATH`, then a build. A program that is found
//! must say a version that will do: an etcd from a distribution that is too old would start and then refuse our flags.

use std::{
    collections::BTreeMap,
    env, fmt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    str::FromStr,
    sync::{Mutex, PoisonError},
};

use anyhow::{Context as _, anyhow};

use super::gobuild::{self, Recipe};

/// A program that the sandbox knows how to find or build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tool {
    /// The database behind the API servers.
    Etcd,
    /// The Kubernetes API server.
    KubeApiserver,
    /// The API server of Kubernetes 1.27, the oldest that is tested, always built from its pinned module.
    KubeApiserver127,
    /// The API server of Kubernetes 1.30, always built from its pinned module.
    KubeApiserver130,
    /// Removes namespaces, collects garbage, makes Deployments into pods.
    KubeControllerManager,
    /// Gives pods a node.
    KubeScheduler,
    /// The command line client, as a peer to measure against.
    Kubectl,
    /// Jaeger v2, where traces go.
    Jaeger,
    /// A gRPC client for the command line.
    Grpcurl,
    /// Nodes and pods that only pretend.
    Kwok,
    /// Helm 4, which installs charts.
    Helm,
    /// Lints the contract and finds breaking changes in it.
    Buf,
    /// Our own reference adapter, always built from its source here.
    Adapter,
    /// Flux's way to apply, as a peer to measure against: a program of ours around its library.
    FluxApply,
    /// The same around the applier of cli-utils.
    CliUtilsApply,
    /// An OCI registry for charts, always built from its source here.
    Registry,
    /// Go's readers of YAML and JSON, the judge of ours: always built from its source here.
    YamlJudge,
}

/// What is known about a tool: how to recognise a good one, and how to build it.
struct Facts {
    name: &'static str,
    version_args: &'static [&'static str],
    /// The lowest major and minor version that will do; none when any will, and the program need not say one.
    at_least: Option<(u32, u32)>,
    recipe: Recipe,
}

/// Reported by the Kubernetes programs; without it `/version` is nonsense, and clients decide by it.
const KUBERNETES_VERSION: &str = "-X k8s.io/component-base/version.gitVersion=v1.37.2 \
     -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37";
/// This one has two places: what it prints, and what `/version` answers.
const KUBERNETES_1_27_VERSION: &str = "-X k8s.io/component-base/version.gitVersion=v1.27.16 \
     -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=27 \
     -X k8s.io/client-go/pkg/version.gitVersion=v1.27.16 \
     -X k8s.io/client-go/pkg/version.gitMajor=1 -X k8s.io/client-go/pkg/version.gitMinor=27";
const KUBERNETES_1_30_VERSION: &str = "-X k8s.io/component-base/version.gitVersion=v1.30.14 \
     -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=30";

impl Tool {
    /// Every tool, in the order of their names.
    pub const ALL: [Self; 17] = [
        Self::Adapter,
        Self::Buf,
        Self::CliUtilsApply,
        Self::Etcd,
        Self::FluxApply,
        Self::Grpcurl,
        Self::Helm,
        Self::Jaeger,
        Self::KubeApiserver,
        Self::KubeApiserver127,
        Self::KubeApiserver130,
        Self::KubeControllerManager,
        Self::KubeScheduler,
        Self::Kubectl,
        Self::Kwok,
        Self::Registry,
        Self::YamlJudge,
    ];

    /// Returns the program's name, as typed on a command line.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    // The seconds are a cold build on two cores. Of the Kubernetes programs the first that is built pays for all.
    fn facts(self) -> Facts {
        let facts = |name, version_args, at_least, module, package, ldflags, cold_seconds| Facts {
            name,
            version_args,
            at_least,
            recipe: Recipe { name, module, package, ldflags, cold_seconds },
        };
        let kubernetes = |name, version_args, minor, package, seconds| {
            facts(name, version_args, Some((1, minor)), "kubernetes", package, KUBERNETES_VERSION, seconds)
        };
        match self {
            // Debian 12 has 3.4, which cannot be traced.
            Self::Etcd => facts("etcd", &["--version"], Some((3, 5)), "etcd", "go.etcd.io/etcd/server/v3", "", 20),
            Self::KubeApiserver => {
                kubernetes("kube-apiserver", &["--version"], 33, "k8s.io/kubernetes/cmd/kube-apiserver", 245)
            }
            Self::KubeApiserver127 => facts(
                "kube-apiserver-1.27",
                &[],
                None,
                "kubernetes-1.27",
                "k8s.io/kubernetes/cmd/kube-apiserver",
                KUBERNETES_1_27_VERSION,
                330,
            ),
            Self::KubeApiserver130 => facts(
                "kube-apiserver-1.30",
                &[],
                None,
                "kubernetes-1.30",
                "k8s.io/kubernetes/cmd/kube-apiserver",
                KUBERNETES_1_30_VERSION,
                330,
            ),
            Self::KubeControllerManager => kubernetes(
                "kube-controller-manager",
                &["--version"],
                33,
                "k8s.io/kubernetes/cmd/kube-controller-manager",
                60,
            ),
            Self::KubeScheduler => {
                kubernetes("kube-scheduler", &["--version"], 33, "k8s.io/kubernetes/cmd/kube-scheduler", 30)
            }
            Self::Kubectl => kubernetes("kubectl", &["version", "--client"], 30, "k8s.io/kubernetes/cmd/kubectl", 40),
            // Version 1 had other names for its programs, and one that was built from the module does not say its version.
            Self::Jaeger => {
                facts("jaeger", &["version"], None, "jaeger", "github.com/jaegertracing/jaeger/cmd/jaeger", "", 175)
            }
            Self::Grpcurl => {
                facts("grpcurl", &["--version"], None, "grpcurl", "github.com/fullstorydev/grpcurl/cmd/grpcurl", "", 25)
            }
            Self::Kwok => facts("kwok", &["--version"], Some((0, 6)), "kwok", "sigs.k8s.io/kwok/cmd/kwok", "", 60),
            Self::Helm => {
                facts("helm", &["version", "--short"], Some((4, 0)), "helm", "helm.sh/helm/v4/cmd/helm", "", 95)
            }
            Self::Adapter => facts("adapter", &[], None, "adapter", "switchyard.test/adapter", "", 60),
            Self::FluxApply => facts("flux-apply", &[], None, "flux", "switchyard.test/flux", "", 60),
            Self::CliUtilsApply => {
                facts("cli-utils-apply", &[], None, "cli-utils", "switchyard.test/cli-utils", "", 60)
            }
            Self::Registry => facts("registry", &[], None, "registry", "switchyard.test/registry", "", 15),
            Self::YamlJudge => facts("yaml-judge", &[], None, "yaml", "switchyard.test/yaml", "", 5),
            Self::Buf => facts("buf", &["--version"], Some((1, 50)), "buf", "github.com/bufbuild/buf/cmd/buf", "", 80),
        }
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Tool {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            anyhow!("there is no tool `{text}`; there are {names}")
        })
    }
}

/// Where the tools that were asked for are.
#[derive(Debug, Clone)]
pub struct Toolbox(BTreeMap<Tool, PathBuf>);

impl Toolbox {
    /// Finds the tools, and builds those that are nowhere. Builds are told about on standard error.
    pub async fn get(tools: &[Tool]) -> anyhow::Result<Self> {
        let tools = tools.to_vec();
        tokio::task::spawn_blocking(move || Self::get_blocking(&tools)).await.context("finding the tools panicked")?
    }

    /// Has the tools built from their pinned modules, whatever else of their names is on this machine: for those who compare.
    pub async fn pinned(tools: &[Tool]) -> anyhow::Result<Self> {
        let tools = tools.to_vec();
        let build = move || {
            let recipes: Vec<Recipe> = tools.iter().map(|tool| tool.facts().recipe).collect();
            let built = gobuild::build(&recipes)?;
            Ok(Self(tools.into_iter().zip(built).collect()))
        };
        tokio::task::spawn_blocking(build).await.context("building the tools panicked")?
    }

    /// Does what [`get`](Self::get) does, on this thread.
    pub fn get_blocking(tools: &[Tool]) -> anyhow::Result<Self> {
        static FOUND: Mutex<BTreeMap<Tool, PathBuf>> = Mutex::new(BTreeMap::new());
        // Held for the whole of a build: the tests of one binary ask at the same moment, for the same tools. Who asks for what is
        // there does not wait for it.
        static BUILDING: Mutex<()> = Mutex::new(());
        let found = || FOUND.lock().unwrap_or_else(PoisonError::into_inner);
        let known = found().clone();
        if tools.iter().any(|tool| !known.contains_key(tool)) {
            let _building = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
            let known = found().clone();
            let unknown = tools.iter().copied().filter(|tool| !known.contains_key(tool));
            let (here, missing): (Vec<_>, Vec<_>) =
                unknown.map(|tool| (tool, find(tool))).partition(|(_, path)| path.is_some());
            let recipes: Vec<Recipe> = missing.iter().map(|(tool, _)| tool.facts().recipe).collect();
            let built = missing.into_iter().map(|(tool, _)| tool).zip(gobuild::build(&recipes)?);
            let here = here.into_iter().filter_map(|(tool, path)| Some((tool, path?)));
            found().extend(here.chain(built));
        }
        let known = found();
        Ok(Self(known.iter().filter(|(tool, _)| tools.contains(tool)).map(|(k, v)| (*k, v.clone())).collect()))
    }

    /// Returns the path of a tool, which must have been asked for.
    pub fn path(&self, tool: Tool) -> anyhow::Result<&Path> {
        self.0.get(&tool).map(PathBuf::as_path).with_context(|| format!("{tool} was not asked for"))
    }

    /// Returns a command that runs the tool.
    pub fn command(&self, tool: Tool) -> anyhow::Result<Command> {
        self.path(tool).map(Command::new)
    }
}

fn find(tool: Tool) -> Option<PathBuf> {
    let ours = matches!(tool, Tool::Adapter | Tool::Registry | Tool::FluxApply | Tool::CliUtilsApply | Tool::YamlJudge);
    // Whatever else is called so is not ours; and of the older API servers it is the very version that matters.
    if ours || matches!(tool, Tool::KubeApiserver127 | Tool::KubeApiserver130) {
        return None;
    }
    let facts = tool.facts();
    let assets = env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    assets
        .into_iter()
        .chain(env::split_paths(&path))
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(facts.name))
        .filter(|path| path.is_file())
        .find(|path| will_do(path, &facts))
}

fn will_do(path: &Path, facts: &Facts) -> bool {
    let output = Command::new(path).args(facts.version_args).stdin(Stdio::null()).output();
    let Ok(output) = output else { return false };
    if !output.status.success() {
        return false;
    }
    let Some(least) = facts.at_least else { return true };
    version_in(&String::from_utf8_lossy(&output.stdout)).is_some_and(|version| version >= least)
}

/// Finds the first thing that looks like `1.2` or `v1.2.3` in a program's answer about its version.
fn version_in(text: &str) -> Option<(u32, u32)> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '.').find_map(|word| {
        let mut parts = word.trim_start_matches('v').split('.');
        let major = parts.next()?.parse().ok()?;
        let minor = parts.next()?.parse().ok()?;
        Some((major, minor))
    })
}

/// Returns the major and minor version that a program reports.
pub(crate) fn version_of(tool: Tool, path: &Path) -> Option<(u32, u32)> {
    let output = Command::new(path).args(tool.facts().version_args).stdin(Stdio::null()).output().ok()?;
    version_in(&String::from_utf8_lossy(&output.stdout))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_print() {
        let found = [
            "etcd Version: 3.5.1\nGit SHA: e8732fb5f\nGo Version: go1.16.3",
            "Kubernetes v1.37.2",
            "Client Version: v1.32.4-dispatcher\nKustomize Version: v5.5.0",
            r#"{"gitCommit":"0a1b","gitVersion":"v2.13.0","buildDate":"2025-12-03"}"#,
            "kwok version v0.8.0 go1.26.8 (linux/amd64)",
            "v4.3.1+g1a2b3c4",
            "1.75.0",
            "grpcurl dev build <no version set>",
        ]
        .map(version_in);
        let expected = [
            Some((3, 5)),
            Some((1, 37)),
            Some((1, 32)),
            Some((2, 13)),
            Some((0, 8)),
            Some((4, 3)),
            Some((1, 75)),
            None,
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn every_tool_is_known_by_its_name() {
        for tool in Tool::ALL {
            assert_eq!(tool.name().parse::<Tool>().unwrap(), tool);
        }
    }
}
