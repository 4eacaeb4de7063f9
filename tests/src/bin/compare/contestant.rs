//! Who is compared.

use std::{fmt, str::FromStr};

use anyhow::anyhow;
use serde::{Deserialize, Serialize};

use switchyard_tests::sandbox::Tool;

/// One who applies objects, in one setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Contestant {
    /// A bare loop of PATCHes, which nobody can beat.
    Floor,
    /// Plan and Execute over gRPC.
    Switchyard,
    /// The same with every span exported.
    SwitchyardTraced,
    /// `kubectl apply --server-side`.
    Kubectl,
    /// Helm with its rate limit out of the way.
    Helm,
    /// Flux's library, unlimited, 16 at once.
    Flux,
    /// The applier of cli-utils, unlimited.
    CliUtils,
    /// `kubectl apply`, as most people type it.
    KubectlDefault,
    /// Helm without a flag.
    HelmDefault,
    /// Flux's library as its controllers set it up.
    FluxDefault,
    /// The applier of cli-utils as it comes.
    CliUtilsDefault,
}

impl Contestant {
    /// Everybody, those at their best first.
    pub(crate) const ALL: [Self; 11] = [
        Self::Floor,
        Self::Switchyard,
        Self::SwitchyardTraced,
        Self::Kubectl,
        Self::Helm,
        Self::Flux,
        Self::CliUtils,
        Self::KubectlDefault,
        Self::HelmDefault,
        Self::FluxDefault,
        Self::CliUtilsDefault,
    ];

    /// Returns the name on the command line and in the names of namespaces.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Switchyard => "switchyard",
            Self::SwitchyardTraced => "switchyard-traced",
            Self::Kubectl => "kubectl",
            Self::Helm => "helm",
            Self::Flux => "flux",
            Self::CliUtils => "cli-utils",
            Self::KubectlDefault => "kubectl-default",
            Self::HelmDefault => "helm-default",
            Self::FluxDefault => "flux-default",
            Self::CliUtilsDefault => "cli-utils-default",
        }
    }

    /// Returns what tables call it.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Floor => "floor (bare loop, 64 in flight)",
            Self::Switchyard => "**Switchyard**",
            Self::SwitchyardTraced => "**Switchyard**, all spans exported",
            Self::Kubectl => "kubectl apply --server-side",
            Self::Helm => "Helm 4, no rate limit",
            Self::Flux => "Flux ssa, no rate limit, 16 at once",
            Self::CliUtils => "cli-utils, no rate limit",
            Self::KubectlDefault => "kubectl apply (default)",
            Self::HelmDefault => "Helm 4 (default)",
            Self::FluxDefault => "Flux ssa (default: 50/s, 4 at once)",
            Self::CliUtilsDefault => "cli-utils (default: 5/s)",
        }
    }

    /// Tells whether this is a setting that people get without asking. Such settings are slow by design, so they are measured
    /// with few objects.
    pub(crate) fn is_default_setting(self) -> bool {
        matches!(self, Self::KubectlDefault | Self::HelmDefault | Self::FluxDefault | Self::CliUtilsDefault)
    }

    /// Returns the program of others that is needed.
    pub(crate) fn tool(self) -> Option<Tool> {
        match self {
            Self::Floor | Self::Switchyard => None,
            Self::SwitchyardTraced => Some(Tool::Jaeger),
            Self::Kubectl | Self::KubectlDefault => Some(Tool::Kubectl),
            Self::Helm | Self::HelmDefault => Some(Tool::Helm),
            Self::Flux | Self::FluxDefault => Some(Tool::FluxApply),
            Self::CliUtils | Self::CliUtilsDefault => Some(Tool::CliUtilsApply),
        }
    }
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Contestant {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        Self::ALL.into_iter().find(|contestant| contestant.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            anyhow!("nobody is called `{text}`; there are {names}")
        })
    }
}
