//! What a person does with grpcurl, without a proto file (S25).

use std::{
    io::Write,
    process::{Command, Stdio},
};

use switchyard_proto::v1;
use switchyard_tests::sandbox::{Tool, Toolbox};

use crate::{design::Design, pair::Pair};

async fn grpcurl() -> std::path::PathBuf {
    Toolbox::get(&[Tool::Grpcurl]).await.unwrap().path(Tool::Grpcurl).unwrap().to_owned()
}

fn answer(command: &mut Command, input: &str) -> String {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

#[tokio::test]
async fn what_plan_prints_can_be_piped_into_execute_as_it_is() {
    let pair = Pair::shared().await;
    let namespace = pair.world.east().namespace_for("piped").await.unwrap();
    let design = Design::new().config_map("piped", &namespace, &[]).config_map("after", &namespace, &["piped"]);
    let request = serde_json::json!({"design": {"document": design.text()}, "clusters": ["east"]}).to_string();
    let grpcurl = grpcurl().await;
    let call = |address: String, method: &str| {
        let mut command = Command::new(&grpcurl);
        command.args(["-plaintext", "-d", "@", &address, method]);
        command
    };
    let plan = answer(&mut call(pair.planner.address().to_string(), "switchyard.v1.PlannerService/Plan"), &request);
    let mut execute = call(pair.executor.address().to_string(), "switchyard.v1.ExecutorService/Execute");
    assert!(answer(&mut execute, &plan).contains("VERDICT_SUCCEEDED"));
    let again = answer(&mut execute, &plan);
    assert_eq!(again.matches("CHANGE_UNCHANGED").count(), 4, "in each step's target and result:\n{again}");
}

#[tokio::test]
async fn both_services_tell_what_they_are_and_how_they_are() {
    let pair = Pair::shared().await;
    let grpcurl = grpcurl().await;
    for (address, service) in [
        (pair.planner.address(), "switchyard.v1.PlannerService"),
        (pair.executor.address(), "switchyard.v1.ExecutorService"),
    ] {
        let address = address.to_string();
        let listed = answer(Command::new(&grpcurl).args(["-plaintext", &address, "list"]), "");
        for wanted in [service, "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"] {
            assert!(listed.contains(wanted), "{listed}");
        }
        let question = serde_json::json!({"service": service}).to_string();
        let health = ["-plaintext", "-d", &question, &address, "grpc.health.v1.Health/Check"];
        assert!(answer(Command::new(&grpcurl).args(health), "").contains("SERVING"));
        let capabilities = format!("{service}/GetCapabilities");
        let told = answer(Command::new(&grpcurl).args(["-plaintext", &address, &capabilities]), "");
        assert!(told.contains(env!("CARGO_PKG_VERSION")) && told.contains("encoded"), "{told}");
        // Codes are described without a proto file, too.
        let codes = ["-plaintext", &address, "describe", "switchyard.v1.ErrorReason"];
        let told = answer(Command::new(&grpcurl).args(codes), "");
        assert!(told.contains("ERROR_REASON_RUN_CONFLICT"), "{told}");
    }
}

/// Contexts are told by name; nothing of what they hold is.
#[tokio::test]
async fn executor_says_what_it_can_reach() {
    let pair = Pair::shared().await;
    let request = v1::ExecutorServiceGetCapabilitiesRequest {};
    let told = pair.client().await.executor().get_capabilities(request).await.unwrap().into_inner();
    assert_eq!(told.contexts, ["east", "west"]);
    assert_eq!((told.max_runs, told.max_in_flight, told.takes_kubeconfigs), (64, 0, true));
    assert_eq!((told.max_message_bytes, told.max_plan_bytes), (16 << 20, 256 << 20));
    for wanted in ["start", "get_run", "step_progress"] {
        assert!(told.features.iter().any(|feature| feature == wanted), "{told:?}");
    }
}

/// An engineer who debugs reads the violations and not their encoding.
#[tokio::test]
async fn the_details_of_a_refusal_are_readable() {
    let pair = Pair::shared().await;
    let grpcurl = grpcurl().await;
    let design = Design::new().config_map("lonely", "default", &["nobody"]);
    let request = serde_json::json!({"design": {"document": design.text()}, "clusters": ["east"]}).to_string();
    let address = pair.planner.address().to_string();
    let output = Command::new(&grpcurl)
        .args(["-plaintext", "-d", &request, &address, "switchyard.v1.PlannerService/Plan"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    for wanted in ["DESIGN_INVALID", "google.rpc.BadRequest", "nobody", "components[0].metadata.dependsOn"] {
        assert!(said.contains(wanted), "{wanted} is not shown:\n{said}");
    }
    assert!(!said.contains("not recognized"), "{said}");
}
