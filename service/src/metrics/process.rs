//! What is read of the process itself whenever somebody reads the metrics.

use std::{fs, sync::LazyLock, time::Instant};

use opentelemetry::global;
use rustix::time::{ClockId, clock_gettime};

use super::METER;
use crate::tls;

static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Has them read.
pub(super) fn show() {
    LazyLock::force(&BEGAN);
    let meter = global::meter(METER);
    meter
        .f64_observable_counter("process.cpu.time")
        .with_description("Processor time that the process has used")
        .with_unit("s")
        .with_callback(|seconds| {
            let used = clock_gettime(ClockId::ProcessCPUTime);
            seconds.observe(used.tv_sec as f64 + used.tv_nsec as f64 / 1e9, &[]);
        })
        .build();
    meter
        .i64_observable_gauge("process.memory.usage")
        .with_description("Memory that the process holds")
        .with_unit("By")
        .with_callback(|bytes| {
            if let Some(held) = held() {
                bytes.observe(held, &[]);
            }
        })
        .build();
    meter
        .i64_observable_gauge("process.unix.file_descriptor.count")
        .with_description("Files that the process has open")
        .with_callback(|files| {
            if let Ok(open) = fs::read_dir("/proc/self/fd") {
                files.observe(i64::try_from(open.count()).unwrap_or(i64::MAX), &[]);
            }
        })
        .build();
    meter
        .f64_observable_gauge("process.uptime")
        .with_description("How long the process has been running")
        .with_unit("s")
        .with_callback(|seconds| seconds.observe(BEGAN.elapsed().as_secs_f64(), &[]))
        .build();
    meter
        .i64_observable_gauge("switchyard.tls.certificate.expiry")
        .with_description("When the certificate of --tls-cert expires, in seconds since 1970")
        .with_unit("s")
        .with_callback(|expiry| {
            if let Some(at) = tls::expiry() {
                expiry.observe(at, &[]);
            }
        })
        .build();
}

/// Bytes of memory that the process holds, where the kernel says so.
fn held() -> Option<i64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<i64>().ok()? * 1024)
}
