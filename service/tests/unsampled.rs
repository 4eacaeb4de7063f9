//! What a process that exports nothing says of sampling.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::sync::LazyLock;

use http::HeaderMap;
use switchyard_service::{
    config::ServeArgs,
    program::{self, Program},
    telemetry,
};
use tonic::metadata::MetadataMap;
use tracing::Span;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

#[derive(clap::Parser)]
struct Args {
    #[command(flatten)]
    serve: ServeArgs,
}

impl AsRef<ServeArgs> for Args {
    fn as_ref(&self) -> &ServeArgs {
        &self.serve
    }
}

/// Nothing in the environment of a test names an endpoint.
static SET_UP: LazyLock<telemetry::Guard> = LazyLock::new(|| {
    let program = Program { name: "test", version: "0", listen: "127.0.0.1:0" };
    let args: Args = program::parse_from(&program, ["test", "--log", "off"]).unwrap();
    telemetry::init(&program, &args.serve)
});

fn span() -> Span {
    LazyLock::force(&SET_UP);
    tracing::info_span!(target: "switchyard_service", "span")
}

fn goes_out(span: &Span) -> String {
    let mut headers = HeaderMap::new();
    telemetry::inject(span, &mut headers);
    headers["traceparent"].to_str().unwrap().to_owned()
}

fn metadata(traceparent: &str) -> MetadataMap {
    let mut metadata = MetadataMap::new();
    metadata.insert("traceparent", traceparent.parse().unwrap());
    metadata
}

/// An API server records what is marked as sampled, for nobody.
#[test]
fn trace_of_its_own_has_an_id_and_is_not_sampled() {
    let span = span();
    let trace = telemetry::trace_id_of(&span).unwrap();
    let goes_out = goes_out(&span);
    assert!(goes_out.starts_with(&format!("00-{trace}-")) && goes_out.ends_with("-00"), "{goes_out}");
}

#[test]
fn caller_who_records_is_believed() {
    for flags in ["00", "01"] {
        let incoming = metadata(&format!("00-{TRACE}-b7ad6b7169203331-{flags}"));
        let span = span();
        telemetry::set_parent_from_metadata(&span, &incoming);
        let in_plan = span.in_scope(|| telemetry::traceparent_for_plan(&incoming)).unwrap();
        for told in [goes_out(&span), in_plan] {
            assert!(told.starts_with(&format!("00-{TRACE}-")) && told.ends_with(flags), "{told}");
        }
    }
}

/// A plan leaves it open, so that an executor that exports records it; one that does not says so to the API servers.
#[test]
fn plan_leaves_open_whether_it_is_recorded() {
    let names_none = metadata("00-00000000000000000000000000000000-b7ad6b7169203331-00");
    for incoming in [MetadataMap::new(), names_none] {
        let planning = span();
        telemetry::set_parent_from_metadata(&planning, &incoming);
        let in_plan = planning.in_scope(|| telemetry::traceparent_for_plan(&incoming)).unwrap();
        assert!(in_plan.ends_with("-01"), "{in_plan}");
        let running = span();
        telemetry::set_parent_from_plan(&running, &in_plan);
        assert_eq!(telemetry::trace_id_of(&running), telemetry::trace_id_of(&planning));
        assert!(goes_out(&running).ends_with("-00"));
    }
}
