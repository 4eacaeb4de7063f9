//! What to try while everything is up.

use std::{env, path::Path};

use serde_json::json;

use super::{
    design,
    screen::{Paint, Screen},
    world::World,
};

/// Where a request for the two clusters of ours lies in the repository.
const REQUEST: &str = "tests/examples/shop-request.json";

/// Shows lines to copy; `run_id` is the run that was shown, and `goes_down` whether the design is taken down at the end.
pub(crate) fn show(world: &World, run_id: &str, goes_down: bool, screen: &mut Screen) -> anyhow::Result<()> {
    let (planner, executor) = (world.planner.address(), world.executor.address());
    let grpcurl = typed(&world.grpcurl);
    let write = |name: &str, operation: &str, dry_run: bool| {
        let request = json!({
            "design": {"document": design::TEXT},
            "operation": operation,
            "dry_run": dry_run,
            "clusters": world.cluster_names(),
        });
        world.folder.write(name, &format!("{request:#}\n"))
    };
    let pipe = |request: &Path| {
        format!(
            "{grpcurl} -plaintext -d @ {planner} switchyard.v1.PlannerService/Plan < {} \\\n  \
             | {grpcurl} -plaintext -d @ {executor} switchyard.v1.ExecutorService/Execute",
            typed(request),
        )
    };

    let and_then = if goes_down { ", which takes the design down first; a second one ends at once" } else { "" };
    screen.heading(&format!("All of it stays up until Ctrl-C{and_then}. To try meanwhile, in another terminal:"))?;
    screen.line("")?;
    say(screen, "deploy by hand: what Plan answers is what Execute takes (change the request, and see what changes)")?;
    let request = if world.is_own() {
        write("request.json", "OPERATION_DEPLOY", false)?
    } else {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?.join(REQUEST)
    };
    copy(screen, &pipe(&request))?;
    say(screen, "what taking it down would do, without doing it")?;
    copy(screen, &pipe(&write("dry-run.json", "OPERATION_UNDEPLOY", true)?))?;
    say(screen, "the runs so far, and the one above once more")?;
    copy(screen, &format!("{grpcurl} -plaintext {executor} switchyard.v1.ExecutorService/ListRuns"))?;
    let run = json!({ "run_id": run_id });
    copy(screen, &format!("{grpcurl} -plaintext -d '{run}' {executor} switchyard.v1.ExecutorService/WatchRun"))?;
    say(screen, "what the services can do; no proto file is needed")?;
    copy(screen, &format!("{grpcurl} -plaintext {planner} describe switchyard.v1.PlanRequest"))?;
    say(screen, "the objects on the clusters")?;
    for name in world.cluster_names() {
        let kubectl = format!("kubectl --kubeconfig {} --context {}", typed(&world.kubeconfig), quoted(name));
        copy(screen, &format!("{kubectl} -n shop get configmap,secret,service,deployment,pod,networkpolicy,offer"))?;
    }
    if !goes_down {
        say(screen, "take it down again; only what the demo put there is removed (--undeploy does it at the end)")?;
        copy(screen, &pipe(&write("undeploy.json", "OPERATION_UNDEPLOY", false)?))?;
    }
    Ok(())
}

fn say(screen: &mut Screen, text: &str) -> std::io::Result<()> {
    screen.line(format!("  {}", screen.paint(Paint::Faint, format!("# {text}"))))
}

fn copy(screen: &mut Screen, text: &str) -> std::io::Result<()> {
    text.lines().try_for_each(|line| screen.line(format!("  {line}")))
}

/// A path as it is to be typed here: short, if it lies below the current folder.
fn typed(path: &Path) -> String {
    let here = env::current_dir().ok();
    let short = here.and_then(|here| path.strip_prefix(here).ok()).filter(|path| !path.as_os_str().is_empty());
    quoted(&short.unwrap_or(path).to_string_lossy())
}

fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+=".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_when_a_shell_would_split_them() {
        assert_eq!(quoted("kind-east"), "kind-east");
        assert_eq!(quoted("it's here"), r"'it'\''s here'");
    }
}
