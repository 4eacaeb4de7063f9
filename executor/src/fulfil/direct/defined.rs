//! What can be said in a dry run of an object whose kind the cluster does not serve yet, since its definition comes with the design
//! (L11): the definition's own schema judges it. No cluster is asked but whether the namespace is there.

use std::sync::Arc;

use serde_json::Value;
use switchyard_proto::v1::Change as Told;
use tokio::time::timeout_at;

use super::{done, rehearse::Rehearse};
use crate::{
    answers::{
        classify::{self, Subject, Verdict},
        failure::{Cause, Failure, Reason, first_causes},
    },
    cluster::{
        Change, Cluster,
        apply::Applied,
        discovery::Resource,
        object::{self, Found},
    },
    core::{
        plan,
        target::{ClusterIx, StepIx},
    },
    fulfil::{Attempt, Done, Order},
    present::schema::{Schema, Unusable},
};

/// Findings that stand in the message itself.
const NAMED: usize = 3;

/// Schemas of definitions of the plan, each read once.
pub(super) type Schemas = std::collections::BTreeMap<(StepIx, String), Arc<tokio::sync::OnceCell<Read>>>;

type Read = Result<Arc<Schema>, Unusable>;

impl Rehearse {
    /// Judges an object of a kind that is `missing` by what the design says of the kind.
    pub(super) async fn by_definition(
        &self,
        missing: Verdict,
        (object, at): (&plan::Direct, ClusterIx),
        order: &Order,
    ) -> Attempt {
        let (Some(by), false) = (object.kind_by, self.direct.is_of_an_adapter(order)) else {
            return Attempt::ended(missing);
        };
        let cluster = &*self.direct.sites[at].cluster;
        let subject = self.direct.subject(object, cluster);
        let failure = missing.failure();
        let step = &self.direct.plan.steps[by];
        let component = &step.component.name;
        let Some(definition) = step.object() else { return Attempt::ended(missing) };
        let version = subject.api_version.rsplit('/').next().unwrap_or_default();
        let reading = self.schema(by, version, definition);
        let schema = match timeout_at(order.answer_by, reading).await {
            Ok(Ok(schema)) => schema,
            Ok(Err(Unusable::NotServed)) => {
                let text = format!("component {component} defines kind {}, and not in version {version}", subject.kind);
                return Attempt::ended(Verdict::Refused(Failure { message: text, ..failure.clone() }));
            }
            Ok(Err(Unusable::Unreadable)) => {
                let text = format!("{}, whose schema cannot be read here", failure.message);
                return Attempt::ended(missing.with_message(text));
            }
            Err(_) => return Attempt::ended(missing),
        };
        let subject = Subject { namespace: if schema.is_namespaced() { subject.namespace } else { "" }, ..subject };
        if let Some(verdict) = self.without_namespace(cluster, &subject, object, order).await {
            return Attempt::ended(verdict);
        }
        let (judge, manifest) = (schema, object.manifest.clone());
        let judged = tokio::task::spawn_blocking(move || {
            serde_json::from_slice::<Value>(&manifest).map(|it| judge.judge(&it)).unwrap_or_default()
        });
        let Ok(Ok(causes)) = timeout_at(order.answer_by, judged).await else { return Attempt::ended(missing) };
        if !causes.is_empty() {
            return Attempt::ended(does_not_fit(&subject, component, causes));
        }
        let applied =
            Applied { change: Change::Created, namespace: subject.namespace.to_owned(), ..Applied::default() };
        let note = format!(
            "as checked against the schema of component {component}, since kind {} would only be there in the run; rules of the \
             kind (x-kubernetes-validations) and admission were not tried",
            subject.kind
        );
        let done = Done { change: Told::Created, ..done(&subject, applied, Vec::new()) };
        Attempt { warnings: vec![note], ..Attempt::done(done, 0) }
    }

    async fn schema(&self, by: StepIx, version: &str, definition: &plan::Direct) -> Read {
        let cell = {
            let mut schemas = self.schemas.lock().expect("nothing panics while it holds the lock");
            schemas.entry((by, version.to_owned())).or_default().clone()
        };
        let read = || async {
            let (manifest, version) = (definition.manifest.clone(), version.to_owned());
            // A schema can have megabytes.
            let read = tokio::task::spawn_blocking(move || Schema::of(&manifest, &version).map(Arc::new));
            read.await.unwrap_or(Err(Unusable::Unreadable))
        };
        cell.get_or_init(read).await.clone()
    }

    /// Why the object's namespace would not be there; none if it would, or nobody can tell.
    async fn without_namespace(
        &self,
        cluster: &Cluster,
        subject: &Subject<'_>,
        object: &plan::Direct,
        order: &Order,
    ) -> Option<Verdict> {
        if subject.namespace.is_empty() {
            return None;
        }
        if object.namespace_by.is_none() {
            let name = subject.namespace;
            let namespace = Subject { api_version: "v1", kind: "Namespace", namespace: "", name, ..subject.clone() };
            let resource = Resource { plural: "namespaces".into(), namespaced: false, has_status: false };
            let by = order.answer_by;
            let found = object::read::<object::Bare>(cluster, &namespace, &resource, object::METADATA_ONLY, by).await;
            if !matches!(found, Ok(Found::NotThere)) {
                return None;
            }
        }
        match self.direct.tell(classify::namespace_not_found(subject), subject, object, order) {
            // It comes in the run.
            Verdict::Unknown(_) => None,
            verdict => Some(verdict),
        }
    }
}

/// The verdict on an object that does not fit the schema of its kind.
fn does_not_fit(subject: &Subject<'_>, component: &str, causes: Vec<Cause>) -> Verdict {
    let told = causes.iter().take(NAMED).map(|Cause { field, message, .. }| match field.as_str() {
        "" => message.clone(),
        field => format!("{field}: {message}"),
    });
    let told = told.collect::<Vec<_>>().join("; ");
    let more = if causes.len() > NAMED { format!("; and {} more", causes.len() - NAMED) } else { String::new() };
    let text = format!("{} does not fit the schema of component {component}: {told}{more}", classify::name(subject));
    let causes = first_causes(causes.into_iter());
    Verdict::Refused(Failure { causes, ..Failure::new(Reason::Invalid, text) })
}
