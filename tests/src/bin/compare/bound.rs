//! How many writes the executor keeps in flight, over time: with a server that is well, one that is throttled, and one that restarts.

use std::{path::Path, time::Duration};

use anyhow::Context as _;
use serde_json::json;
use tokio::time::Instant;

use super::{
    IN_FLIGHT,
    contestant::Contestant,
    entrant::{Entrant, Place},
    svg::{self, Line, Panel, Scale},
};
use switchyard_tests::{
    fault::{Canned, Fault, Proxy, Rule},
    programs::Program,
    sandbox::{Cluster, ControlPlane, Folder, Toolbox},
    work::{Shape, Work},
};

/// Components: enough for the bound to find its place and to come back after the trouble.
const COMPONENTS: usize = 5000;
/// When trouble begins.
const CALM: Duration = Duration::from_secs(2);
/// How long a server is throttled.
const THROTTLED: Duration = Duration::from_secs(2);
/// Writes that it takes at once meanwhile; the others are told to come again.
const ROOM: usize = 16;
/// Between two looks at what is in flight.
const TICK: Duration = Duration::from_millis(25);

/// What the server goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    None,
    Throttled,
    Restarted,
}

impl Trouble {
    const ALL: [Self; 3] = [Self::None, Self::Throttled, Self::Restarted];

    fn title(self) -> String {
        let begins = CALM.as_secs();
        match self {
            Self::None => "The server is well".to_owned(),
            Self::Throttled => format!("Throttled from {begins} s to {} s", (CALM + THROTTLED).as_secs()),
            Self::Restarted => format!("Killed and started again at {begins} s"),
        }
    }
}

/// What was seen in each case: seconds from the beginning, and writes in flight.
#[derive(Debug)]
pub(super) struct Seen(Vec<(Trouble, Vec<(f64, f64)>)>);

/// Watches one run a case.
pub(super) async fn watch(floor: &Path) -> anyhow::Result<Seen> {
    let mut planner = Program::Planner.prepare().start().await?;
    let (planner_pid, planner_url) = (planner.process().id(), planner.url());
    let tools = Toolbox::pinned(&[]).await?;
    let folder = Folder::new("bound")?;
    let mut seen = Vec::new();
    for trouble in Trouble::ALL {
        // Of its own, so that every server is equally old.
        let control_plane = ControlPlane::builder().start().await?;
        let cluster = control_plane.first();
        let proxy = Proxy::before(cluster).await?;
        let kubeconfig = proxy.kubeconfig().to_string();
        let place = Place {
            clusters: vec![(cluster.name().to_owned(), folder.write("kubeconfig", &kubeconfig)?, kubeconfig)],
            floor,
            in_flight: IN_FLIGHT,
            tools: &tools,
            jaeger: None,
            folder: &folder,
            planner: &planner_url,
            planner_pid,
        };
        let points = one(trouble, cluster, &proxy, &place).await.with_context(|| trouble.title())?;
        let most = points.iter().map(|point| point.1).fold(0.0, f64::max);
        let end = points.last().map_or(0.0, |point| point.0);
        eprintln!("{}: at most {most} in flight, done after {end:.1} s", trouble.title());
        seen.push((trouble, points));
    }
    planner.stop().await;
    Ok(Seen(seen))
}

async fn one(trouble: Trouble, cluster: &Cluster, proxy: &Proxy, place: &Place<'_>) -> anyhow::Result<Vec<(f64, f64)>> {
    let admin = cluster.client().await?;
    let work = Work { namespace: "bound".to_owned(), objects: COMPONENTS, shape: Shape::Flat };
    work.prepare(&admin).await?;
    let mut entrant = Entrant::enter(Contestant::Switchyard, place).await?;
    let began = Instant::now();
    let mut points = Vec::new();
    {
        let mut run = std::pin::pin!(entrant.apply(&work, place, false));
        let mut disturb = std::pin::pin!(disturb(trouble, cluster, proxy));
        let mut disturbed = false;
        let mut tick = tokio::time::interval(TICK);
        loop {
            tokio::select! {
                spent = &mut run => { spent?; break }
                done = &mut disturb, if !disturbed => { done?; disturbed = true }
                _ = tick.tick() => points.push((began.elapsed().as_secs_f64(), proxy.in_flight() as f64)),
            }
        }
    }
    entrant.leave().await;
    work.verify(&admin).await?;
    Ok(points)
}

async fn disturb(trouble: Trouble, cluster: &Cluster, proxy: &Proxy) -> anyhow::Result<()> {
    tokio::time::sleep(CALM).await;
    match trouble {
        Trouble::None => {}
        Trouble::Throttled => {
            let refusal = Canned::refusal(429, "TooManyRequests", "too many requests", json!({})).retry_after(1);
            proxy.add(Rule::patch("/configmaps/", Fault::Crowd(ROOM, refusal)));
            tokio::time::sleep(THROTTLED).await;
            proxy.clear();
        }
        Trouble::Restarted => {
            cluster.kill_api_server();
            cluster.start_api_server().await?;
        }
    }
    Ok(())
}

impl Seen {
    /// Draws one panel a case.
    pub(super) fn chart(&self) -> String {
        let panels: Vec<_> = self
            .0
            .iter()
            .map(|(trouble, points)| Panel::Lines {
                title: trouble.title(),
                across: "seconds".to_owned(),
                up: "writes in flight".to_owned(),
                scale: Scale::Linear,
                lines: vec![Line { label: "in flight".to_owned(), points: points.clone() }],
            })
            .collect();
        svg::draw(&panels)
    }
}
