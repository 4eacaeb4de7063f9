//! What processes use, as the kernel counts it.

use std::{collections::BTreeMap, fs, path::PathBuf, time::Duration};

/// The processor time of some processes at one moment, by thread.
#[derive(Debug, Clone, Default)]
pub struct Clock(BTreeMap<PathBuf, Duration>);

impl Clock {
    /// Looks at processes.
    pub fn of(pids: &[u32]) -> Self {
        let folders = pids.iter().filter_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).ok());
        let threads = folders.flatten().flatten().filter_map(|thread| {
            let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
            let nanoseconds = text.split_whitespace().next()?.parse().ok()?;
            Some((thread.path(), Duration::from_nanos(nanoseconds)))
        });
        Self(threads.collect())
    }

    /// Returns what they have used since. A thread that ended in between is left out; servers keep theirs.
    pub fn since(&self, earlier: &Self) -> Duration {
        let used =
            |(thread, now): (_, &Duration)| now.saturating_sub(earlier.0.get(thread).copied().unwrap_or_default());
        self.0.iter().map(used).sum()
    }
}

/// Returns the most memory that a process had resident at once, in bytes, since [`forget_peak`].
pub fn peak(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or_default() * 1024
}

/// Has the kernel begin anew to look for the peak.
pub fn forget_peak(pid: u32) {
    // Where this is not permitted the peak is that of the process's whole life.
    fs::write(format!("/proc/{pid}/clear_refs"), "5").ok();
}

/// Returns the time that all processors together have been busy since the machine began.
pub fn busy() -> Duration {
    /// Of the kernel's clock for this file; fixed where Linux runs on common processors.
    const TICKS: f64 = 100.0;
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let first = text.lines().next().unwrap_or_default();
    let fields: Vec<f64> = first.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal
    let ticks: f64 = [0, 1, 2, 5, 6, 7].iter().filter_map(|&field| fields.get(field)).sum();
    Duration::from_secs_f64(ticks / TICKS)
}
