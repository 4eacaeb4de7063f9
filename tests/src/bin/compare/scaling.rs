//! How time grows with components and clusters, and what a slow cluster does to fast ones.

use std::{collections::BTreeMap, fmt::Write as _, path::Path, time::Duration};

use anyhow::Context as _;

use super::{
    IN_FLIGHT,
    contestant::Contestant,
    entrant::{Entrant, Place, Spent},
    samples::{Phases, Spread},
    svg::{self, Line, Panel, Scale},
    table::Table,
};
use switchyard_tests::{
    fault::{Fault, Proxy, Rule},
    programs::{Program, Running},
    sandbox::{Cluster, ControlPlane, Folder, Jaeger, Tool, Toolbox},
    work::{Shape, Work},
};

/// Numbers of components, smallest first.
const COMPONENTS: [usize; 4] = [20, 200, 1000, 5000];
/// Components where memory is what is looked at.
const MEMORY: usize = 5000;
/// A chain of more would only take longer, in proportion.
const LONGEST_CHAIN: usize = 1000;
/// Numbers of clusters.
const CLUSTERS: [usize; 4] = [1, 2, 4, 8];
/// Components where clusters are what is counted.
const EACH: usize = 200;
/// Fast clusters beside the slow one.
const FAST: usize = 4;
/// What the slow one takes to answer a write.
const SLOW: Duration = Duration::from_secs(5);
/// What the fast ones are accompanied by. A fifth that is as fast shows what it costs that there is a fifth at all, since all of
/// them share one machine.
const BESIDE: [&str; 3] = ["alone", "beside a fifth", "beside a fifth that answers in 5 s"];
/// Components there: two to three rounds of the slow cluster's writes in flight.
const BESIDE_SLOW: usize = 80;

/// What was measured. Times are in seconds.
#[derive(Debug, Default)]
pub(super) struct Figures {
    rounds: usize,
    /// By what was run and the number of components.
    components: BTreeMap<(&'static str, usize), Vec<f64>>,
    /// By whether it was the floor and the number of clusters.
    clusters: BTreeMap<(bool, usize), Vec<f64>>,
    /// When the last of the fast clusters was done, by [`BESIDE`].
    fast: [Vec<f64>; BESIDE.len()],
    /// When their runs had begun.
    fast_began: [Vec<f64>; BESIDE.len()],
    /// How far the chain of so many was when, in each round.
    chain: BTreeMap<usize, Vec<Phases>>,
    /// When the slow one was done.
    slow: Vec<f64>,
    /// The executor's own time between two writes of a chain.
    between: Vec<f64>,
    /// The most memory of the executor with the most components, in bytes, in each round: with a caller who keeps up, and with one
    /// who reads nothing before all is done.
    peaks: [Vec<f64>; 2],
    /// The size of what they are deployed from.
    manifests: usize,
}

/// Everything that is needed for a run.
struct Ground<'a> {
    floor: &'a Path,
    planner: Running,
    planner_url: String,
    planner_pid: u32,
    tools: Toolbox,
    jaeger: Jaeger,
    folder: Folder,
}

/// Measures, in so many rounds.
pub(super) async fn measure(rounds: usize, floor: &Path) -> anyhow::Result<Figures> {
    let mut planner = Program::Planner.prepare().start().await?;
    let (planner_url, planner_pid) = (planner.url(), planner.process().id());
    let tools = Toolbox::pinned(&[Tool::Jaeger]).await?;
    let jaeger = Jaeger::start().await?;
    let ground = Ground { floor, planner, planner_url, planner_pid, tools, jaeger, folder: Folder::new("scaling")? };
    let mut figures = Figures { rounds, ..Figures::default() };
    eprintln!("time over the number of components ...");
    ground.components(&mut figures).await.context("over the number of components")?;
    eprintln!("time over the number of clusters ...");
    ground.clusters(&mut figures).await.context("over the number of clusters")?;
    ground.planner.stop().await;
    Ok(figures)
}

impl Ground<'_> {
    async fn components(&self, figures: &mut Figures) -> anyhow::Result<()> {
        let control_plane = ControlPlane::builder().start().await?;
        let cluster = control_plane.first();
        let clusters = [self.known(cluster)?];
        for round in 0..figures.rounds {
            for objects in COMPONENTS {
                let all = [
                    ("floor, 64 in flight", Contestant::Floor, Shape::Flat, IN_FLIGHT),
                    ("fan", Contestant::Switchyard, Shape::Fan, 0),
                    ("layered", Contestant::Switchyard, Shape::Layered, 0),
                    ("floor, one by one", Contestant::Floor, Shape::Flat, 1),
                    ("chain", Contestant::Switchyard, Shape::Chain, 0),
                ];
                for (name, who, shape, in_flight) in turned(all, round) {
                    let one_by_one = shape == Shape::Chain || in_flight == 1;
                    if one_by_one && objects > LONGEST_CHAIN {
                        continue;
                    }
                    let work =
                        Work { namespace: format!("{}-{in_flight}-{objects}-{round}", shape.name()), objects, shape };
                    let spent = self.run(who, &work, &[cluster], &clusters, in_flight).await?;
                    eprintln!("round {}: {name} of {objects}: {:.3} s", round + 1, spent.seconds);
                    figures.components.entry((name, objects)).or_default().push(spent.seconds);
                    if shape == Shape::Fan && objects == MEMORY {
                        figures.peaks[0].push(spent.peak as f64);
                    }
                    if shape == Shape::Chain {
                        figures.chain.entry(objects).or_default().extend(spent.phases);
                    }
                }
            }
        }
        for round in 0..figures.rounds {
            let work = Work { namespace: format!("unread-{round}"), objects: MEMORY, shape: Shape::Fan };
            let place = self.place(&clusters, 0);
            let admin = cluster.client().await?;
            work.prepare(&admin).await?;
            let mut entrant = Entrant::enter(Contestant::Switchyard, &place).await?;
            figures.peaks[1].push(entrant.apply_unread(&work, &place).await? as f64);
            entrant.leave().await;
            work.verify(&admin).await?;
            work.clear(&admin).await?;
            figures.manifests = work.lines().len();
        }
        let work = Work { namespace: "traced".to_owned(), objects: EACH, shape: Shape::Chain };
        let spent = self.run(Contestant::SwitchyardTraced, &work, &[cluster], &clusters, 0).await?;
        figures.between = spent.between;
        Ok(())
    }

    async fn clusters(&self, figures: &mut Figures) -> anyhow::Result<()> {
        let most = CLUSTERS.into_iter().max().unwrap_or_default();
        let builder = (0..most).fold(ControlPlane::builder(), |builder, number| builder.cluster(&format!("c{number}")));
        let control_plane = builder.start().await?;
        let all: Vec<&Cluster> = control_plane.clusters().iter().collect();
        let known: Vec<_> = all.iter().map(|cluster| self.known(cluster)).collect::<anyhow::Result<_>>()?;
        for round in 0..figures.rounds {
            for number in CLUSTERS {
                let both = [("floor", Contestant::Floor), ("switchyard", Contestant::Switchyard)];
                for (name, who) in turned(both, round) {
                    let work =
                        Work { namespace: format!("{name}-{number}-{round}"), objects: EACH, shape: Shape::Flat };
                    let spent = self.run(who, &work, &all[..number], &known[..number], IN_FLIGHT).await?;
                    eprintln!("round {}: {name} on {number} clusters: {:.3} s", round + 1, spent.seconds);
                    figures.clusters.entry((who == Contestant::Floor, number)).or_default().push(spent.seconds);
                }
            }
            let fifth = Proxy::before(all[FAST]).await?;
            let mut five = known[..FAST].to_vec();
            let kubeconfig = fifth.kubeconfig().to_string();
            five.push((all[FAST].name().to_owned(), self.folder.write("fifth", &kubeconfig)?, kubeconfig));
            for (index, known) in [&known[..FAST], &five, &five].into_iter().enumerate() {
                let is_slow = index == BESIDE.len() - 1;
                if is_slow {
                    fifth.add(Rule::patch("/configmaps/", Fault::Delay(SLOW)));
                }
                let work =
                    Work { namespace: format!("slow-{index}-{round}"), objects: BESIDE_SLOW, shape: Shape::Flat };
                let spent = self.run(Contestant::Switchyard, &work, &all[..known.len()], known, 0).await?;
                let ended = |cluster: &&Cluster| spent.clusters.get(cluster.name()).copied();
                figures.fast[index].push(all[..FAST].iter().filter_map(ended).fold(0.0, f64::max));
                figures.fast_began[index].extend(spent.phases.map(|it| it.started));
                figures.slow.extend(ended(&all[FAST]).filter(|_| is_slow));
            }
            eprintln!("round {}: slow cluster beside fast ones: done", round + 1);
        }
        Ok(())
    }

    fn known(&self, cluster: &Cluster) -> anyhow::Result<(String, std::path::PathBuf, String)> {
        let text = cluster.kubeconfig_admin().to_string();
        Ok((cluster.name().to_owned(), self.folder.write(&format!("{}.yaml", cluster.name()), &text)?, text))
    }

    fn place(&self, known: &[(String, std::path::PathBuf, String)], in_flight: usize) -> Place<'_> {
        Place {
            clusters: known.to_vec(),
            floor: self.floor,
            in_flight,
            tools: &self.tools,
            jaeger: Some(&self.jaeger),
            folder: &self.folder,
            planner: &self.planner_url,
            planner_pid: self.planner_pid,
        }
    }

    /// Has somebody do work on clusters, once, and proves that it was done.
    async fn run(
        &self,
        who: Contestant,
        work: &Work,
        clusters: &[&Cluster],
        known: &[(String, std::path::PathBuf, String)],
        in_flight: usize,
    ) -> anyhow::Result<Spent> {
        let place = self.place(known, in_flight);
        let mut admins = Vec::with_capacity(clusters.len());
        for cluster in clusters {
            let admin = cluster.client().await?;
            work.prepare(&admin).await?;
            cluster.collect_garbage().await?;
            admins.push(admin);
        }
        let mut entrant = Entrant::enter(who, &place).await?;
        let spent = entrant.apply(work, &place, false).await.with_context(|| format!("{who} failed"))?;
        entrant.leave().await;
        for admin in &admins {
            work.verify(admin).await?;
            work.clear(admin).await?;
        }
        Ok(spent)
    }
}

impl Figures {
    /// Writes the figures as tables.
    pub(super) fn text(&self) -> String {
        let mut out = format!("### Time to finish, in seconds, {} rounds: min · med · max\n\n", self.rounds);
        let names = ["floor, 64 in flight", "fan", "layered", "floor, one by one", "chain"];
        let mut table =
            Table::new(&["components", names[0], names[1], names[2], names[3], names[4], "chain over floor"]);
        for objects in COMPONENTS {
            let spread = |name| Spread::of(self.components.get(&(name, objects))?.iter().copied());
            let mut row = vec![objects.to_string()];
            row.extend(names.map(|name| spread(name).map_or("–".to_owned(), three)));
            let [chain, floor] = ["chain", "floor, one by one"]
                .map(|name| self.components.get(&(name, objects)).map_or(&[][..], Vec::as_slice));
            row.push(ratio(chain, floor));
            table.row(row);
        }
        writeln!(out, "{}", table.markdown()).expect(GROWS);
        let [planned, began, first, last] = Phases::NAMES;
        let mut table = Table::new(&["chain of", planned, began, first, last]);
        for (objects, phases) in &self.chain {
            let phases = Phases::medians(phases).unwrap_or_default().map(|figure| format!("{figure:.0}"));
            table.row(std::iter::once(objects.to_string()).chain(phases));
        }
        writeln!(out, "{}", table.markdown()).expect(GROWS);
        let mut table =
            Table::new(&["clusters", "floor", "Switchyard", "floor objects/s", "Switchyard objects/s", "of floor"]);
        for number in CLUSTERS {
            let of = |floor| self.clusters.get(&(floor, number)).map_or(&[][..], Vec::as_slice);
            let rate = |spread: Option<Spread>| {
                spread.map_or("–".to_owned(), |spread| format!("{:.0}", (EACH * number) as f64 / spread.median))
            };
            let [floor, ours] = [true, false].map(|floor| Spread::of(of(floor).iter().copied()));
            table.row([
                number.to_string(),
                floor.map_or("–".to_owned(), three),
                ours.map_or("–".to_owned(), three),
                rate(floor),
                rate(ours),
                ratio(of(true), of(false)),
            ]);
        }
        writeln!(out, "{EACH} objects on each cluster:\n\n{}", table.markdown()).expect(GROWS);
        let cell = |spread: Option<Spread>| spread.map_or("–".to_owned(), three);
        let of = |values: &[f64]| Spread::of(values.iter().copied());
        let mut table =
            Table::new(&["four fast clusters", "run began after", "done after", "over alone", "over the row above"]);
        for (index, beside) in BESIDE.into_iter().enumerate() {
            let done = &self.fast[index];
            table.row([
                beside.to_owned(),
                cell(of(&self.fast_began[index])),
                cell(of(done)),
                ratio(done, &self.fast[0]),
                index.checked_sub(1).map_or("–".to_owned(), |above| ratio(done, &self.fast[above])),
            ]);
        }
        let nothing = String::new;
        table.row(["the slow one itself".to_owned(), nothing(), cell(of(&self.slow)), nothing(), nothing()]);
        writeln!(out, "{BESIDE_SLOW} components, none depends on another:\n\n{}", table.markdown()).expect(GROWS);
        let [keeps_up, unread] = [0, 1].map(|index| of(&self.peaks[index]).map_or(0.0, |spread| spread.most / 1e6));
        writeln!(
            out,
            "The most memory of the executor with {MEMORY} components, whose manifests are {:.1} MB: {keeps_up:.0} MB with a caller who \
             keeps up, {unread:.0} MB with one who reads nothing before all of it is done.\n",
            self.manifests as f64 / 1e6,
        )
        .expect(GROWS);
        let mut between = self.between.clone();
        between.sort_by(f64::total_cmp);
        if let Some(last) = between.len().checked_sub(1) {
            let at = |share: f64| between[(last as f64 * share).round() as usize] * 1e6;
            writeln!(
                out,
                "Executor's own time from the end of a write to the start of the next in a chain of {EACH} (spans of one traced run): \
                 median {:.0} µs, p99 {:.0} µs.",
                at(0.5),
                at(0.99),
            )
            .expect(GROWS);
        }
        out
    }

    /// Draws them.
    pub(super) fn chart(&self) -> String {
        let median = |values: &Vec<f64>| Spread::of(values.iter().copied()).map_or(0.0, |spread| spread.median);
        let mut of_components: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
        for ((name, objects), values) in &self.components {
            of_components.entry(name).or_default().push((*objects as f64, median(values)));
        }
        let mut of_clusters: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
        for ((floor, number), values) in &self.clusters {
            let name = if *floor { "floor" } else { "Switchyard" };
            of_clusters.entry(name).or_default().push((*number as f64, median(values)));
        }
        let lines = |of: BTreeMap<&str, Vec<(f64, f64)>>| {
            of.into_iter().map(|(label, points)| Line { label: label.to_owned(), points }).collect()
        };
        svg::draw(&[
            Panel::Lines {
                title: "Time over components, one cluster".to_owned(),
                across: "components".to_owned(),
                up: "seconds".to_owned(),
                scale: Scale::Logarithmic,
                lines: lines(of_components),
            },
            Panel::Lines {
                title: format!("Time over clusters, {EACH} components on each"),
                across: "clusters".to_owned(),
                up: "seconds".to_owned(),
                scale: Scale::Logarithmic,
                lines: lines(of_clusters),
            },
        ])
    }
}

const GROWS: &str = "a string grows as needed";

fn three(Spread { least, median, most }: Spread) -> String {
    format!("{least:.2} · {median:.2} · {most:.2}")
}

/// The median of what the rounds give, each by itself, as with rates.
fn ratio(over: &[f64], under: &[f64]) -> String {
    let ratios = over.iter().zip(under).map(|(over, under)| over / under);
    Spread::of(ratios).map_or("–".to_owned(), |ratio| format!("{:.2}", ratio.median))
}

/// The other way round in every other round, so that nobody is always first.
fn turned<T, const N: usize>(mut all: [T; N], round: usize) -> [T; N] {
    if round % 2 == 1 {
        all.reverse();
    }
    all
}
