//! The executor that is attacked: its memory, and whether it serves others meanwhile.

use std::{
    fs,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use switchyard_proto::v1::{
    ListRunsRequest, Operation, PlanHeader, PlanStep, PlanTrailer, execute_request::Part,
    executor_service_client::ExecutorServiceClient,
};
use switchyard_service::status::{Reason, reason_of};
use switchyard_tests::{
    client::Client,
    programs::{Program, Running},
};
use tonic::{Status, transport::Channel};

/// What may be held whatever was sent, in bytes, and how many times as much as was sent.
const AT_LEAST: usize = 64_000_000;
const TIMES: usize = 30;
/// Far beyond what any case may take: a fault is to end the executor and not the machine.
const LIMIT: u64 = 3 << 30;
/// How soon others are served, and how many attempts that may take on a machine that does other things too.
const SOON: Duration = Duration::from_secs(1);
const ATTEMPTS: usize = 10;
/// A case that hangs is a failure.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Victim {
    running: Running,
    /// Memory before anything was sent, in bytes.
    before: usize,
    pub(super) client: Client,
}

impl Victim {
    pub(super) async fn start(flags: &[&str]) -> Self {
        let preparation = Program::Executor.prepare().arg("--run-lock").arg("process").arg("--adapter-allow=*:*");
        let mut running =
            flags.iter().fold(preparation, |preparation, flag| preparation.arg(flag)).start().await.unwrap();
        let pid = Pid::from_raw(running.process().id() as i32);
        prlimit(pid, Resource::Data, Rlimit { current: Some(LIMIT), maximum: Some(LIMIT) }).unwrap();
        let client = Client::connect(&running.url(), &running.url()).await.unwrap();
        let mut victim = Self { running, before: 0, client };
        victim.serves_others().await;
        victim.before = victim.peak();
        victim
    }

    pub(super) fn address(&self) -> std::net::SocketAddr {
        self.running.address()
    }

    pub(super) fn url(&self) -> String {
        self.running.url()
    }

    pub(super) fn pid(&mut self) -> u32 {
        self.running.process().id()
    }

    pub(super) fn log(&self) -> String {
        self.running.log()
    }

    /// Most memory that the process has ever had, in bytes.
    fn peak(&mut self) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
    }

    /// Holds the process to what it may take for so many bytes.
    #[track_caller]
    pub(super) fn took_little(&mut self, sent: usize, what: &str) {
        let took = self.peak() - self.before;
        let may = AT_LEAST + TIMES * sent;
        eprintln!("{what}: {took} bytes for {sent}");
        assert!(took <= may, "{what}: {took} bytes were taken for {sent} bytes; at most {may} are to be");
    }

    /// Whoever comes now, over a connection of their own, is served at once.
    pub(super) async fn serves_others(&self) {
        let mut took = Vec::new();
        for _ in 0..ATTEMPTS {
            let began = Instant::now();
            let served = async {
                let channel = Channel::from_shared(self.url()).unwrap().connect().await.unwrap();
                let mut executor = ExecutorServiceClient::new(channel.clone());
                executor.list_runs(ListRunsRequest::default()).await.unwrap();
                // The cluster is none of the executor's: the whole plan was taken in to find that out.
                let (parts, _) = plan(&["unknown"], Vec::new());
                let status = refusal(&self.client, parts).await;
                assert_eq!(reason_of(&status), Some(Reason::ClusterUnusable), "{status:?}");
            };
            tokio::time::timeout(PATIENCE, served).await.expect("others are served");
            took.push(began.elapsed());
            if began.elapsed() < SOON {
                return;
            }
        }
        panic!("others were served after {took:?}");
    }
}

/// Sends the parts and reads how they are refused.
pub(super) async fn refusal(client: &Client, parts: Vec<Part>) -> Status {
    let refused = async { client.open(parts).await?.finish().await.map(|outcome| format!("{outcome:?}")) };
    tokio::time::timeout(PATIENCE, refused).await.expect("the request is answered").expect_err("the request is refused")
}

/// The messages of a whole plan, and their size.
pub(super) fn plan(clusters: &[&str], steps: Vec<PlanStep>) -> (Vec<Part>, usize) {
    let mut header = PlanHeader {
        operation: Operation::Deploy.into(),
        clusters: clusters.iter().map(|&name| name.to_owned()).collect(),
        step_count: steps.len() as u32,
        ..PlanHeader::default()
    };
    header.plan_id = switchyard_proto::digest::plan_id(&header, &steps);
    let trailer = PlanTrailer { plan_id: header.plan_id.clone(), step_count: header.step_count };
    let mut parts = vec![Part::Header(header)];
    parts.extend(steps.into_iter().map(Part::Step));
    parts.push(Part::Trailer(trailer));
    let size = parts.iter().map(Part::encoded_len).sum();
    (parts, size)
}
