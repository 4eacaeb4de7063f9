//! Plans the shop and puts it onto the clusters `east` and `west`: `cargo run -p switchyard-tests --example deploy`.

use futures::stream;
use switchyard_proto::v1::{
    Design, ExecuteRequest, PlanRequest, design::Source, execute_request, execute_response::Event,
    executor_service_client::ExecutorServiceClient, plan_response, planner_service_client::PlannerServiceClient,
};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut planner = PlannerServiceClient::connect("http://127.0.0.1:7001").await?;
    let mut executor = ExecutorServiceClient::connect("http://127.0.0.1:7002").await?;

    let document = std::fs::read_to_string("tests/examples/shop.yaml")?;
    // As bytes, so that a planner that is newer than these protos loses nothing on the way.
    let request = PlanRequest {
        design: Some(Design { source: Some(Source::Document(document)) }),
        clusters: vec!["east".into(), "west".into()],
        encoded: true,
        ..PlanRequest::default()
    };
    let mut plan = planner.plan(request).await?.into_inner();

    let mut parts = Vec::new();
    while let Some(answer) = plan.message().await? {
        if let Some(plan_response::Part::Encoded(part)) = answer.part {
            parts.push(ExecuteRequest { part: Some(execute_request::Part::Encoded(part)) });
        }
    }

    let mut events = executor.execute(stream::iter(parts)).await?.into_inner();
    while let Some(answer) = events.message().await? {
        match answer.event {
            Some(Event::StepStarted(started)) => println!("{} starts", started.component),
            Some(Event::Summary(summary)) => {
                summary.rows.iter().for_each(|row| println!("{}: {:?} {}", row.component, row.outcome(), row.because));
                println!("{:?}", summary.verdict());
            }
            _ => {}
        }
    }
    Ok(())
}
