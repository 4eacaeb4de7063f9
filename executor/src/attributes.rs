//! Names of span attributes, beyond those that both services share. The `k8s.*` names follow the OpenTelemetry semantic
//! conventions where these have one.

pub(crate) const CLUSTER: &str = "k8s.cluster.name";
pub(crate) const NAMESPACE: &str = "k8s.namespace.name";
pub(crate) const OBJECT_NAME: &str = "k8s.object.name";
pub(crate) const OBJECT_KIND: &str = "k8s.object.kind";
pub(crate) const API_VERSION: &str = "k8s.object.api_version";
pub(crate) const URL: &str = "url.full";
pub(crate) const METHOD: &str = "http.request.method";
pub(crate) const STATUS_CODE: &str = "http.response.status_code";
pub(crate) const RESEND_COUNT: &str = "http.request.resend_count";
pub(crate) const AUDIT_ID: &str = "k8s.audit.id";
/// UIDs of the flow schema and the priority level that an API server put a request into (API priority and fairness).
pub(crate) const FLOW_SCHEMA: &str = "k8s.apf.flow_schema.uid";
pub(crate) const PRIORITY_LEVEL: &str = "k8s.apf.priority_level.uid";
pub(crate) const RUN_ID: &str = "switchyard.run.id";
/// What the caller named the run, as `key=value` pairs, comma-separated.
pub(crate) const LABELS: &str = "switchyard.run.labels";
pub(crate) const REQUEST_ID: &str = "switchyard.request.id";
pub(crate) const PLAN_ID: &str = "switchyard.plan.id";
pub(crate) const DESIGN_ID: &str = "switchyard.design.id";
pub(crate) const DESIGN_NAME: &str = "switchyard.design.name";
pub(crate) const STEP_ID: &str = "switchyard.step.id";
pub(crate) const COMPONENT: &str = "switchyard.component.name";
pub(crate) const CHART: &str = "switchyard.chart";
pub(crate) const RELEASE: &str = "switchyard.helm.release";
/// What was done about a chart, or why it was not.
pub(crate) const CHART_NOTE: &str = "switchyard.chart.note";
pub(crate) const OUTCOME: &str = "switchyard.outcome";

/// The HTTP method of a request that a span names as Kubernetes does.
pub(crate) fn method(verb: &'static str) -> &'static str {
    match verb {
        "LIST" | "WATCH" => "GET",
        method => method,
    }
}

/// What is there to be said: an attribute that is empty is left out.
pub(crate) fn said(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}
