//! `cargo demo`: a whole deployment before one's eyes, on clusters that exist for as long as it runs.
//!
//! `World` is what runs, `show` what there is to see, each chapter in a module of its own.

use std::{
    io::{self, IsTerminal as _},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::Context as _;
use clap::Parser as _;
use switchyard_proto::v1::PlanRequest;
use tokio::signal::unix::{Signal, SignalKind, signal};

mod design;
mod dry_run;
mod fail;
mod ground;
mod invitation;
mod own;
mod plan;
mod registry;
mod run;
mod screen;
mod summary;
mod table;
mod trace;
mod tree;
mod undeploy;
mod wait;
mod world;

use self::{
    design::Design,
    fail::Failing,
    own::Own,
    screen::{Paint, Screen},
    world::World,
};
use switchyard_tests::client::{Client, TraceParent};

/// How long people have to think again before anything is written to clusters of their own.
const SECOND_THOUGHTS: Duration = Duration::from_secs(5);
/// What a shell says of a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;
/// What a shell says of a program that wrote where nobody reads any more.
const NOBODY_READS: u8 = 141;

/// Shows Switchyard at work: plans an example design, asks what it would do, puts it onto two clusters, reads the whole run back
/// as one trace, and takes the design down again.
///
/// Everything runs on this machine, on ports of its own, and is gone at the end: two Kubernetes clusters without real nodes, an
/// adapter, Jaeger, the planner and the executor. What is missing is built first, once; that takes about eleven minutes on two cores.
#[derive(Debug, clap::Parser)]
#[command(name = "demo", bin_name = "cargo demo", version)]
pub(crate) struct Args {
    /// Take the design down and end right after the run, instead of staying up until Ctrl-C.
    #[arg(long)]
    once: bool,
    /// Use clusters of your own: a kubeconfig, of which --context names what is to be written to.
    #[arg(long, value_name = "F", requires = "context")]
    kubeconfig: Option<PathBuf>,
    /// A context of that kubeconfig; several of them for several clusters.
    #[arg(long, value_name = "C", num_args = 1.., requires = "kubeconfig")]
    context: Vec<String>,
    /// Have this component of the design fail, to see what is withheld because of it.
    #[arg(long, value_name = "COMPONENT")]
    fail: Option<String>,
    /// Take the design down at the end from clusters of your own too. Without it they keep it.
    #[arg(long, requires = "kubeconfig")]
    undeploy: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("demo: no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut screen = Screen::new();
    let ended = runtime.block_on(demo(args, &mut screen));
    // A build that Ctrl-C interrupted would be waited for otherwise. It ends with this process.
    runtime.shutdown_background();
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(error) if nobody_reads(&error) => ExitCode::from(NOBODY_READS),
        Err(error) => {
            screen.clear_away();
            eprintln!("demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn demo(args: Args, screen: &mut Screen) -> anyhow::Result<u8> {
    let Args { once, kubeconfig, context, fail, undeploy } = args;
    let design = Design::example()?;
    // Whatever was misspelt is said before anything is built or started.
    let failing = fail.map(|name| design.component(&name).cloned()).transpose()?;
    let own = kubeconfig.map(|path| Own::read(path, context)).transpose()?;
    let mut signals = Signals::new()?;

    screen.line(screen.paint(Paint::Strong, "Switchyard puts a design onto clusters"))?;
    let started = tokio::select! {
        world = World::start(own, screen) => Some(world?),
        () = signals.next() => None,
    };
    let Some(world) = started else { return Ok(interrupted(screen)) };
    let shown = tokio::select! {
        shown = show(&world, &design, failing, screen) => Some(shown),
        () = signals.next() => None,
    };
    let goes_down = undeploy || !world.is_own();
    let code = match shown {
        Some(Ok(Shown { run_id, as_meant })) => {
            if !once {
                invitation::show(&world, &run_id, goes_down, screen)?;
                signals.next().await;
                screen.line("")?;
            }
            let is_gone = if goes_down {
                tokio::select! {
                    gone = undeploy::show(&world, &design, screen) => gone,
                    // Asked for the second time: at once. What is still there ends with this process.
                    () = signals.next() => return Ok(interrupted(screen)),
                }
            } else {
                screen.line(format!("\n  {}", screen.paint(Paint::Wary, "your clusters keep the design")))?;
                Ok(true)
            };
            is_gone.map(|is_gone| if as_meant && is_gone { 0 } else { 1 })
        }
        Some(Err(error)) => Err(error),
        None => {
            let code = interrupted(screen);
            if world.is_own() {
                eprintln!("demo: what has been put onto your clusters by now stays there");
            }
            Ok(code)
        }
    };
    let stopped = tokio::select! {
        stopped = world.stop(screen) => stopped,
        // What is still there ends with this process.
        () = signals.next() => Ok(()),
    };
    let code = code?;
    stopped?;
    Ok(code)
}

/// What there was to see.
struct Shown {
    run_id: String,
    /// Whether it came out as it was meant to.
    as_meant: bool,
}

/// Shows what there is to see.
async fn show(
    world: &World,
    design: &Design,
    failing: Option<design::Component>,
    screen: &mut Screen,
) -> anyhow::Result<Shown> {
    design.show(screen)?;
    let failing = match failing {
        Some(component) => Some(Failing::prepare(component, world, screen).await?),
        None => None,
    };
    let parent = TraceParent::random();
    let client = Client::connect(&world.planner.url(), &world.executor.url()).await?.traced(parent.clone());
    let clusters = world.cluster_names();

    // People's own clusters have images to fetch, which may take any time.
    let request = design.deploy(&clusters, !world.is_own());
    let planned = client.plan(request.clone()).await.map_err(|status| plan::refused(&status))?;
    plan::show(&planned, screen)?;
    let spoil = |plan| match &failing {
        Some(failing) => failing.spoil(plan),
        None => Ok(plan),
    };
    let planned = spoil(planned)?;

    // A trace of its own: the one that will be shown holds one run.
    let asking = client.clone().traced(TraceParent::random());
    let dry = asking.plan(PlanRequest { dry_run: true, ..request }).await.map_err(|status| plan::refused(&status))?;
    dry_run::show(world, &asking, spoil(dry)?, screen).await?;
    if world.is_own() {
        second_thoughts(world, screen).await?;
    }

    let outcome = run::show("The run", &client, planned.clone(), screen).await?;
    summary::show("The summary", &planned, &outcome, screen)?;
    let as_meant = fail::check(&planned, &outcome, failing.as_ref());
    match &as_meant {
        Ok(text) => screen.done(text)?,
        Err(text) => screen.line(format!("  {} {text}", screen.paint(Paint::Bad, "✗")))?,
    }
    if failing.is_none() && as_meant.is_ok() {
        run::again(&client, planned.clone(), screen).await?;
    }
    trace::show(world, parent.trace_id(), &planned, screen).await?;
    Ok(Shown { run_id: outcome.summary.run_id, as_meant: as_meant.is_ok() })
}

async fn second_thoughts(world: &World, screen: &mut Screen) -> io::Result<()> {
    screen.line("")?;
    for place in &world.places {
        let warning = screen.paint(Paint::Wary, "will be written to:");
        screen.line(format!("  {warning} {} at {}", place.name, place.server))?;
    }
    let text = format!(
        "  It begins in {} seconds; Ctrl-C stops it. What will come of it is said above.",
        SECOND_THOUGHTS.as_secs()
    );
    screen.line(text)?;
    tokio::time::sleep(SECOND_THOUGHTS).await;
    Ok(())
}

fn interrupted(screen: &mut Screen) -> u8 {
    screen.clear_away();
    eprintln!("demo: stopped before its end");
    INTERRUPTED
}

fn nobody_reads(error: &anyhow::Error) -> bool {
    let cause = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
    // A broken pipe to one of our children would be one too, but not while standard output is a terminal.
    !io::stdout().is_terminal() && cause.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Ctrl-C, and what a service manager or a test sends instead.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("failed to listen for signals");
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
