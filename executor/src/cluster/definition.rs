//! Waiting until a CustomResourceDefinition is served (D16): what follows could not be written before.
//!
//! Established is necessary and not sufficient: the API server announces it before its discovery knows the kind, and other
//! replicas lag (case 23). So both are looked at.

use http::{Request, StatusCode};
use kube::client::Body;
use serde::Deserialize;
use tokio::time::{Duration, Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{Cluster, Target, discovery, object::Condition};
use crate::{
    answers::{
        classify::{Unanswered, Verdict},
        failure::{Failure, Reason},
    },
    mask::Unmasked,
};

/// Pauses between looks: most definitions are served within 100 ms.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

#[derive(Default, Deserialize)]
#[serde(default)]
struct Definition {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    deletion_timestamp: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Spec {
    group: String,
    names: Names,
    #[serde(deserialize_with = "super::null_as_default")]
    versions: Vec<Version>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Names {
    kind: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Version {
    name: String,
    served: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    /// Null in the first moments of a definition.
    #[serde(deserialize_with = "super::null_as_default")]
    conditions: Vec<Condition>,
}

impl Definition {
    /// What the API server says of it meanwhile, such as a `caBundle` that somebody has yet to fill in (case 284).
    fn why_not_established(&self, render: impl Fn(&Unmasked) -> String) -> String {
        let said = self.condition("Established", "False").into_iter();
        let said = said.chain(self.condition("NonStructuralSchema", "True"));
        let said = said.filter(|condition| !condition.message.is(""));
        let said: Vec<_> = said.map(|it| format!("{}: {}", render(&it.reason), render(&it.message))).collect();
        match said.is_empty() {
            true => "it is not established".into(),
            false => format!("it is not established ({})", said.join("; ")),
        }
    }

    fn condition(&self, kind: &str, status: &str) -> Option<&Condition> {
        self.status.conditions.iter().find(|condition| condition.kind == kind && condition.status == status)
    }
}

/// Waits until the cluster serves what the definition `name` defines, or says that it never will. `stop` ends the wait: then
/// nobody can tell.
pub(crate) async fn served(
    cluster: &Cluster,
    api_version: &str,
    name: &str,
    stop: &CancellationToken,
    deadline: Instant,
) -> Result<(), Verdict> {
    let wait = until_served(cluster, api_version, name, deadline);
    match stop.run_until_cancelled(wait).await {
        Some(served) => served.map_err(Verdict::Refused),
        None => {
            let text =
                format!("{name} was stored on cluster {}; the run was stopped before it was served", cluster.name);
            Err(Verdict::Unknown(Failure::new(Reason::Cancelled, text)))
        }
    }
}

async fn until_served(cluster: &Cluster, api_version: &str, name: &str, deadline: Instant) -> Result<(), Failure> {
    let path = format!("{}/customresourcedefinitions/{name}", discovery::root(api_version));
    let target = Target {
        method: "GET",
        resource: "customresourcedefinitions",
        api_version,
        kind: "CustomResourceDefinition",
        name,
        ..Target::default()
    };
    let began = Instant::now();
    // What is known of its kinds may be from before it was written. Its name is `plural.group`.
    if let Some((_, group)) = name.split_once('.') {
        cluster.discovery.forget_group(group);
    }
    let mut pause = FIRST_PAUSE;
    let mut not_yet = String::new();
    loop {
        let request = Request::get(&path).body(Body::empty());
        let request = request.map_err(|error| Failure::new(Reason::ManifestInvalid, error.to_string()))?;
        not_yet = match cluster.send(request, &target, deadline).await {
            // The end of the step's time says less than what was seen before it.
            Err(Unanswered::Silent(_)) if !not_yet.is_empty() => not_yet,
            Err(why) => why.to_string(),
            Ok(reply) if reply.status != StatusCode::OK => format!("the API server answered {}", reply.status),
            Ok(reply) => {
                let definition: Definition = serde_json::from_slice(&reply.body)
                    .map_err(|_| Failure::new(Reason::UnexpectedAnswer, "what it answered is not a definition"))?;
                match look(cluster, &definition, deadline).await? {
                    None => return Ok(()),
                    Some(why) => why,
                }
            }
        };
        let next = Instant::now() + pause;
        if next >= deadline {
            return Err(Failure::new(
                Reason::DefinitionNotServed,
                format!(
                    "{name} was stored on cluster {} but is not served after {:.1?}: {not_yet}",
                    cluster.name,
                    began.elapsed()
                ),
            ));
        }
        sleep_until(next).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Why the definition is not served yet, or none if it is.
async fn look(cluster: &Cluster, definition: &Definition, deadline: Instant) -> Result<Option<String>, Failure> {
    let Cluster { name, .. } = cluster;
    if definition.metadata.deletion_timestamp.is_some() {
        let text = format!("the definition is being deleted on cluster {name}; deploy again when it is gone");
        return Err(Failure::new(Reason::BeingDeleted, text));
    }
    if let Some(condition) = definition.condition("NamesAccepted", "False") {
        let text = format!(
            "cluster {name} stored the definition but will not serve it: {}",
            cluster.render(&condition.message)
        );
        return Err(Failure::new(Reason::DefinitionRejected, text));
    }
    if definition.condition("Established", "True").is_none() {
        return Ok(Some(definition.why_not_established(|text| cluster.render(text))));
    }
    let Spec { group, names, versions } = &definition.spec;
    for version in versions.iter().filter(|version| version.served) {
        let api_version = format!("{group}/{}", version.name);
        // An answer from before this moment may be from before the definition was there.
        let now = Instant::now();
        if cluster.find(&api_version, &names.kind, now, deadline).await.is_err() {
            return Ok(Some(format!("discovery does not know {} of {api_version}", names.kind)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mask::Secrets;

    #[test]
    fn why_a_definition_is_not_established_is_told_in_the_api_servers_words() {
        let text = r#"{"status":{"conditions":[{"type":"Established","status":"False","reason":"InvalidCABundle",
            "message":"The conversion webhook's caBundle is invalid"}]}}"#;
        let definition: Definition = serde_json::from_str(text).unwrap();
        let wanted = "it is not established (InvalidCABundle: The conversion webhook's caBundle is invalid)";
        let render = |text: &Unmasked| Secrets::default().render(text);
        assert_eq!(definition.why_not_established(render), wanted);
        assert_eq!(Definition::default().why_not_established(render), "it is not established");
    }

    #[test]
    fn definition_of_the_first_moment_is_readable() {
        let text =
            r#"{"metadata":{},"spec":{"group":"a","names":{"kind":"B"},"versions":null},"status":{"conditions":null}}"#;
        let definition: Definition = serde_json::from_str(text).unwrap();
        assert!(definition.condition("Established", "True").is_none());
        assert!(definition.spec.versions.is_empty());
    }
}
