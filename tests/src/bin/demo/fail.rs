//! A component that fails, and what has to come of it.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    core::v1::ConfigMap,
};
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};
use switchyard_proto::v1::{self, Outcome as Ending, Verdict, plan_step::Route};

use super::{
    design::Component,
    screen::{Paint, Screen},
    summary::verdict_word,
    wait::wait,
    world::World,
};
use switchyard_tests::client::{Outcome, PlanParts};

/// Named by the policy beside the component, to find out when it has come into force.
const PROBE: &str = "switchyard-demo-probe";
/// It takes about a second.
const IN_FORCE: Duration = Duration::from_secs(30);

/// A component that is going to fail.
#[derive(Debug)]
pub(crate) struct Failing {
    name: String,
    how: How,
}

#[derive(Debug)]
enum How {
    /// A policy on the last cluster refuses the object. The design is as it was.
    Policy,
    /// The object holds something that no API server takes: in clusters of other people we install no policies.
    Spoilt,
}

impl Failing {
    /// Sees to it that the component will fail, and says how.
    pub(crate) async fn prepare(component: Component, world: &World, screen: &mut Screen) -> anyhow::Result<Self> {
        let name = component.display_name.clone();
        let how = match world.ground.last_cluster() {
            Some(cluster) => {
                let client = cluster.client().await?;
                let text = format!("putting a policy into force on {}", cluster.name());
                wait(screen, &text, refuse(client, &component)).await??;
                let text = format!(
                    "To be seen failing: a policy on {} refuses {} {name}; elsewhere it is welcome.",
                    cluster.name(),
                    component.kind()
                );
                screen.line(format!("\n  {}", screen.paint(Paint::Wary, text)))?;
                How::Policy
            }
            None => {
                let text = format!("To be seen failing: {name} gets a label that no API server takes.");
                screen.line(format!("\n  {}", screen.paint(Paint::Wary, text)))?;
                How::Spoilt
            }
        };
        Ok(Self { name, how })
    }

    /// Changes the plan, if that is how it shall fail.
    pub(crate) fn spoil(&self, mut plan: PlanParts) -> anyhow::Result<PlanParts> {
        let Self { name, how: How::Spoilt } = self else { return Ok(plan) };
        let is_it = |step: &&mut v1::PlanStep| step.component.as_ref().is_some_and(|component| component.name == *name);
        let step = plan.steps.iter_mut().find(is_it).with_context(|| format!("the plan has no step for {name}"))?;
        let Some(Route::Direct(direct)) = &mut step.route else { bail!("{name} is not applied directly") };
        let mut manifest: Value = serde_json::from_str(&direct.manifest)?;
        manifest["metadata"]["labels"]["switchyard-demo"] = "no label may hold spaces".into();
        direct.manifest = manifest.to_string();
        Ok(plan.resealed())
    }
}

/// Has a cluster refuse one component, and waits until it does.
async fn refuse(client: Client, component: &Component) -> anyhow::Result<()> {
    let (kind, name) = (component.kind(), &component.display_name);
    let policy: ValidatingAdmissionPolicy = serde_json::from_value(json!({
        "metadata": { "name": "switchyard-demo" },
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": [{
                "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["CREATE", "UPDATE"],
            }]},
            "validations": [{
                "expression": format!(
                    "object.metadata.name != '{PROBE}' && !(object.kind == '{kind}' && object.metadata.name == '{name}')"
                ),
                "message": format!("the demo wants {name} to fail here"),
            }],
        },
    }))?;
    let binding: ValidatingAdmissionPolicyBinding = serde_json::from_value(json!({
        "metadata": { "name": "switchyard-demo" },
        "spec": { "policyName": "switchyard-demo", "validationActions": ["Deny"] },
    }))?;
    let context = "failed to install the policy that makes a component fail";
    Api::all(client.clone()).create(&PostParams::default(), &policy).await.context(context)?;
    Api::all(client.clone()).create(&PostParams::default(), &binding).await.context(context)?;

    let mut probe = ConfigMap::default();
    probe.metadata.name = Some(PROBE.to_owned());
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let deadline = Instant::now() + IN_FORCE;
    while maps.create(&dry_run, &probe).await.is_ok() {
        if Instant::now() >= deadline {
            bail!("the policy that makes {name} fail was not in force after {IN_FORCE:?}");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Says whether the run came out as it was meant to, in a sentence either way.
pub(crate) fn check(plan: &PlanParts, outcome: &Outcome, failing: Option<&Failing>) -> Result<String, String> {
    let meant = match failing {
        Some(_) => Verdict::Partial,
        None => Verdict::Succeeded,
    };
    if outcome.verdict() != meant {
        let (meant, is) = (verdict_word(meant), verdict_word(outcome.verdict()));
        return Err(format!("the run should have {meant} as its verdict and has {is}"));
    }
    let Some(Failing { name, .. }) = failing else {
        return Ok("as it was meant to be: every component is on every cluster".to_owned());
    };
    let ending = |name: &str| outcome.result(name).map_or(Ending::Unspecified, |result| result.outcome());
    if ending(name) != Ending::Failed {
        return Err(format!("{name} should have failed"));
    }
    if let Some(other) = dependents(plan, name).into_iter().find(|dependent| ending(dependent) != Ending::Withheld) {
        return Err(format!("{other} depends on {name} and should have been withheld"));
    }
    let ended = |how: Ending| {
        let names: Vec<&str> =
            plan.names().into_iter().filter(|&other| other != name && ending(other) == how).collect();
        names.join(", ")
    };
    let with_it = match ended(Ending::Failed).as_str() {
        "" => String::new(),
        // They ran after it and needed it all the same, such as what lies in a namespace.
        others => format!(", and {others} for want of it"),
    };
    let withheld = match ended(Ending::Withheld).as_str() {
        "" => "nothing was withheld, because nothing declares that it depends on it".to_owned(),
        names => format!("{names} withheld on every cluster"),
    };
    Ok(format!("as it was meant to be: {name} failed{with_it}; {withheld}; the rest is on every cluster"))
}

/// Names the components that depend on one, however far.
fn dependents<'a>(plan: &'a PlanParts, name: &str) -> BTreeSet<&'a str> {
    let mut ids: BTreeSet<&str> = plan.step(name).map(|step| step.id.as_str()).into_iter().collect();
    let mut names = BTreeSet::new();
    // The plan's order has dependencies first, so that one pass is enough.
    for step in &plan.steps {
        if step.depends_on.iter().any(|id| ids.contains(id.as_str())) {
            ids.insert(&step.id);
            names.extend(plan.name(&step.id));
        }
    }
    names
}
