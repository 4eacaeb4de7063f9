//! How fast plans are carried out, beside a bare loop of the same PATCHes and beside what people use today.
//!
//! Everybody applies the same objects to the same API server, in turns within one run: the machine's own speed moves by more than
//! what is to be seen, so figures are compared within a round and never across runs. Nothing is asserted about time; that
//! everybody did all of the work is.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::Parser as _;

mod bound;
mod contestant;
mod entrant;
mod report;
mod samples;
mod scaling;
mod svg;
mod table;

pub(crate) use contestant::Contestant;
pub(crate) use samples::{Sample, Samples};

use self::entrant::{Entrant, Place};
use switchyard_tests::{
    programs::{self, Program},
    sandbox::{ControlPlane, Folder, Jaeger, Tool, Toolbox},
    usage::{self, Clock},
    work::{Shape, Work},
};

/// Writes of the floor that are in flight: where an API server is at its best.
const IN_FLIGHT: usize = 64;
/// Settings that are slow by design are measured with no more objects than this …
const FEW: usize = 200;
/// … and in no more rounds, because what holds them back does not vary.
const FEW_ROUNDS: usize = 2;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Objects per second, everybody on one cluster.
    Rates,
    /// Time over the number of components and of clusters, and beside a slow cluster.
    Scaling,
    /// Writes in flight over time: a server that is well, one that is throttled, one that restarts.
    Bound,
}

/// The command line of `cargo compare`.
#[derive(Debug, Clone, clap::Parser)]
#[command(name = "cargo compare", about = "Compares Switchyard with a bare loop of PATCHes and with its peers")]
pub(crate) struct Args {
    /// What to measure [default: everything].
    #[arg(value_enum)]
    pub(crate) parts: Vec<Part>,
    /// Numbers of objects.
    #[arg(long, value_delimiter = ',', default_value = "200,1000,5000")]
    pub(crate) objects: Vec<usize>,
    /// Rounds for each number of objects.
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: usize,
    /// Only these contestants [default: all].
    #[arg(long, value_delimiter = ',')]
    pub(crate) only: Vec<Contestant>,
    /// Measure nothing; write tables and charts of rates anew from the samples of an earlier run (`rates.json`).
    #[arg(long, value_name = "SAMPLES")]
    pub(crate) read: Option<PathBuf>,
    /// Where to write tables, charts and samples [default: target/compare].
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    // One thread: a second one gains nothing beside an API server on two cores.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = runtime.context("failed to start").and_then(|runtime| runtime.block_on(run(args)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compare: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> anyhow::Result<()> {
    let out = args.out.clone().unwrap_or_else(|| switchyard_tests::sandbox::target_folder().join("compare"));
    fs::create_dir_all(&out).with_context(|| format!("failed to create {}", out.display()))?;
    if let Some(path) = &args.read {
        let samples = fs::read(path).with_context(|| format!("failed to read {}", path.display()))?;
        let samples = serde_json::from_slice(&samples).with_context(|| format!("{} is odd", path.display()))?;
        write_rates(&samples, &args.objects, &BTreeMap::new(), &out)?;
        println!("written to {}", out.display());
        return Ok(());
    }
    let floor = programs::floor().await?;
    let wanted = |part| args.parts.is_empty() || args.parts.contains(&part);
    if wanted(Part::Rates) {
        rates(&args, &floor, &out).await?;
    }
    if wanted(Part::Scaling) {
        let figures = scaling::measure(args.rounds, &floor).await?;
        let text = figures.text();
        println!("{text}");
        fs::write(out.join("scaling.md"), text)?;
        fs::write(out.join("scaling.svg"), figures.chart())?;
    }
    if wanted(Part::Bound) {
        fs::write(out.join("bound.svg"), bound::watch(&floor).await?.chart())?;
    }
    println!("written to {}", out.display());
    Ok(())
}

async fn rates(args: &Args, floor: &Path, out: &Path) -> anyhow::Result<()> {
    let Args { objects, rounds, only, .. } = args;
    let everybody: Vec<_> = Contestant::ALL.into_iter().filter(|who| only.is_empty() || only.contains(who)).collect();
    let (everybody, missing) = with_tools(everybody).await;
    let mut samples = Samples::default();
    for &objects in objects {
        let series = series(&everybody, objects, *rounds, floor, &mut samples, out);
        series.await.with_context(|| format!("with {objects} objects"))?;
    }
    write_rates(&samples, objects, &missing, out)
}

fn write_rates(
    samples: &Samples,
    objects: &[usize],
    missing: &BTreeMap<Contestant, String>,
    out: &Path,
) -> anyhow::Result<()> {
    let text = report::text(samples, objects, missing);
    println!("{text}");
    fs::write(out.join("rates.md"), text)?;
    fs::write(out.join("rates.svg"), report::chart(samples, objects))?;
    Ok(())
}

/// Gets the programs of others; whose program cannot be had is left out, and told about.
async fn with_tools(everybody: Vec<Contestant>) -> (Vec<Contestant>, BTreeMap<Contestant, String>) {
    let mut missing = BTreeMap::new();
    for &who in &everybody {
        if let Some(tool) = who.tool()
            && let Err(error) = Toolbox::pinned(&[tool]).await
        {
            missing.insert(who, format!("{error:#}"));
        }
    }
    (everybody.into_iter().filter(|who| !missing.contains_key(who)).collect(), missing)
}

/// All rounds with so many objects, on an API server of their own.
async fn series(
    everybody: &[Contestant],
    objects: usize,
    rounds: usize,
    floor: &Path,
    samples: &mut Samples,
    out: &Path,
) -> anyhow::Result<()> {
    eprintln!("{objects} objects: starting a control plane ...");
    let tools: Vec<Tool> = everybody.iter().filter_map(|who| who.tool()).collect();
    let tools = Toolbox::pinned(&tools).await?;
    let jaeger = if everybody.contains(&Contestant::SwitchyardTraced) { Some(Jaeger::start().await?) } else { None };
    let mut control_plane = ControlPlane::builder().start().await?;
    let etcd = control_plane.etcd().pid();
    let cluster = control_plane.first();
    let admin = cluster.client().await?;
    let folder = Folder::new("compare")?;
    let kubeconfig = cluster.kubeconfig_admin().to_string();
    let mut planner = Program::Planner.prepare().start().await?;
    let (planner_pid, planner_url) = (planner.process().id(), planner.url());
    let place = Place {
        clusters: vec![(cluster.name().to_owned(), folder.write("kubeconfig", &kubeconfig)?, kubeconfig)],
        floor,
        in_flight: IN_FLIGHT,
        tools: &tools,
        jaeger: jaeger.as_ref(),
        folder: &folder,
        planner: &planner_url,
        planner_pid,
    };
    let servers: Vec<u32> = cluster.pids().into_iter().chain([etcd]).collect();
    for round in 0..rounds {
        for who in order(everybody, round) {
            if who.is_default_setting() && (objects > FEW || round >= FEW_ROUNDS) {
                continue;
            }
            let work = Work { namespace: format!("{who}-{round}"), objects, shape: Shape::Fan };
            work.prepare(&admin).await?;
            let mut entrant = Entrant::enter(who, &place).await?;
            for again in [false, true] {
                cluster.collect_garbage().await?;
                let requests = requests(&cluster.metrics().await?);
                let clocks = || (Clock::of(&servers), Clock::of(&[std::process::id()]), usage::busy(), Instant::now());
                let before = clocks();
                let spent = entrant.apply(&work, &place, again).await.with_context(|| format!("{who} failed"))?;
                let after = clocks();
                let server = after.0.since(&before.0);
                let caller = after.1.since(&before.1);
                let own = caller + server + spent.cpu + spent.planning;
                let others = (after.2.saturating_sub(before.2)).saturating_sub(own);
                let others = others.as_secs_f64() / (after.3 - before.3).as_secs_f64() / processors();
                let requests = self::requests(&cluster.metrics().await?) - requests;
                work.verify(&admin).await.with_context(|| format!("{who} did not do the work"))?;
                let each = |time: Duration| time.as_secs_f64() * 1e6 / objects as f64;
                let rate = objects as f64 / spent.seconds;
                eprintln!(
                    "{objects} objects, round {} of {rounds}: {who} {rate:.0}/s{}",
                    round + 1,
                    if again { " again" } else { "" }
                );
                samples.0.push(Sample {
                    who,
                    objects,
                    round,
                    again,
                    rate,
                    requests: requests as f64 / objects as f64,
                    client: each(spent.cpu),
                    planner: each(spent.planning),
                    server: each(server),
                    peak: spent.peak as f64,
                    spans_lost: spent.spans_lost,
                    others,
                    caller: each(caller),
                    phases: spent.phases,
                });
            }
            entrant.leave().await;
            work.clear(&admin).await?;
            // What was measured before something goes wrong is worth keeping.
            fs::write(out.join("rates.json"), serde_json::to_vec_pretty(samples)?)?;
        }
    }
    planner.stop().await;
    Ok(())
}

/// Who works when. The order moves on, so that nobody always follows the same one; and those whose ratio is near one work close
/// together, since the machine's own speed moves within minutes.
fn order(everybody: &[Contestant], round: usize) -> Vec<Contestant> {
    let is_near =
        |who: &Contestant| matches!(who, Contestant::Floor | Contestant::Switchyard | Contestant::SwitchyardTraced);
    let (mut near, mut far): (Vec<_>, Vec<_>) = everybody.iter().copied().partition(is_near);
    for part in [&mut near, &mut far] {
        let turns = round % part.len().max(1);
        part.rotate_left(turns);
    }
    near.extend(far);
    near
}

/// Counts what was asked about objects of the work's kind, in whatever way.
fn requests(metrics: &switchyard_tests::sandbox::Metrics) -> u64 {
    // A counter of requests is a whole number, and far below 2^52.
    metrics.sum("apiserver_request_total", &[("resource", "configmaps")]) as u64
}

fn processors() -> f64 {
    std::thread::available_parallelism().map_or(1, usize::from) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_near_one_another_work_together_and_nobody_always_follows_the_same() {
        use Contestant::{Floor, Flux, Helm, Kubectl, Switchyard};
        let everybody = [Floor, Kubectl, Switchyard, Helm, Flux];
        let orders = [0, 1, 2].map(|round| order(&everybody, round));
        assert_eq!(orders[0], [Floor, Switchyard, Kubectl, Helm, Flux]);
        assert_eq!(orders[1], [Switchyard, Floor, Helm, Flux, Kubectl]);
        assert_eq!(orders[2], [Floor, Switchyard, Flux, Kubectl, Helm]);
        assert_eq!(order(&[Helm], 3), [Helm]);
    }
}
