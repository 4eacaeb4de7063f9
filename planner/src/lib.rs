//! The planner: design + registry -> plan.
//!
//! The centre is pure: [`plan::plan`] reads a design ([`design`], over [`document`]), asks the [`registry`] who stands behind
//! each component, orders ([`graph`]), routes ([`route`]) and builds objects ([`manifest`]), and answers with a plan or with
//! every problem there is ([`problem`]). Around it lie the contract ([`convert`]) and gRPC ([`service`]). The planner opens
//! no connection and sees no cluster.

pub mod budget;
pub mod convert;
pub mod design;
pub mod document;
pub mod graph;
pub mod manifest;
pub mod plan;
pub mod problem;
pub mod registry;
pub mod route;
pub mod service;
pub mod text;

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use switchyard_service::config::{self, ServeArgs};
use switchyard_service::program;
use switchyard_service::serve::{Drained, Server};
use switchyard_service::shutdown::Shutdown;
use tokio::net::TcpListener;

use crate::document::Limits;
use crate::registry::Registry;
use crate::registry::watch::{self, Shared, Watch};

/// Turns designs into ordered deployment plans.
///
/// Answers to switchyard.v1.PlannerService. Reads designs of every Meshery format, JSON or YAML. Contacts no cluster.
#[derive(Debug, Parser)]
pub struct Args {
    /// What every Switchyard program takes.
    #[command(flatten)]
    pub serve: ServeArgs,

    /// File, or folder of files, that says which registrant stands behind which model.
    ///
    /// In the JSON form of switchyard.v1.Registry (JSON or YAML), or Meshery's own connections, models and components. Read
    /// again when it changes; a broken new version is refused with a log line and the old one stays. Without it the planner
    /// knows one model, kubernetes, which the executor applies itself.
    #[arg(long, env = "SWITCHYARD_REGISTRY", value_name = "PATH")]
    pub registry: Option<PathBuf>,

    /// How long one request may be planned, and how long it may wait for its turn, such as 5s; beyond it is refused.
    #[arg(long, env = "SWITCHYARD_MAX_PLANNING_TIME", value_name = "DURATION", default_value = "5s", value_parser = config::duration)]
    pub max_planning_time: Duration,
}

impl AsRef<ServeArgs> for Args {
    fn as_ref(&self) -> &ServeArgs {
        &self.serve
    }
}

/// Serves on `listener` until `shutdown`, then drains.
pub async fn run(args: Args, listener: TcpListener, shutdown: Shutdown) -> Result<Drained, program::Error> {
    let Args { serve, registry, max_planning_time } = args;
    let watch = match registry {
        Some(path) => Some(Watch::start(path).map_err(|error| program::Error::usage(watch::chain(&error)))?),
        None => None,
    };
    let shared = match &watch {
        Some(watch) => watch.shared(),
        None => Shared::new(Registry::builtin()),
    };
    let limit = serve.max_message_bytes();
    let bounds = service::Bounds { limits: Limits::for_bytes(limit), time: max_planning_time };
    let server = Server::new(&serve, shutdown);
    let planner = service::Planner::new(shared, bounds, server.budget());
    let server = server.add(service::Door::new(planner, limit)).serve(listener);
    match watch {
        None => Ok(server.await?),
        Some(watch) => tokio::select! {
            drained = server => Ok(drained?),
            // Ends only with the runtime, or with a bug that must not go unnoticed: the registry would grow stale.
            () = watch.run() => Err(program::Error::failed("the registry is no longer watched")),
        },
    }
}
