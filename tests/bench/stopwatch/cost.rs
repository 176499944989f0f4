//! What processes cost while nothing happens.

use std::fs;
use std::path::Path;
use std::time::Duration;

/// One process at one moment.
#[derive(Clone, Copy)]
pub(super) struct Sample {
    /// Resident memory, and the anonymous part of it, in kB.
    pub(super) rss: u64,
    pub(super) anon: u64,
    /// Processor time so far, in microseconds.
    pub(super) cpu: u64,
    /// How often it has woken.
    pub(super) woken: u64,
    pub(super) threads: usize,
}

impl Sample {
    pub(super) fn of(pid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let field = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().trim_end_matches(" kB").parse().unwrap()
        };
        // Ticks of utime and stime are 10 ms each; the scheduler counts in nanoseconds.
        let ran = |task: &Path| -> u64 {
            let stat = fs::read_to_string(task.join("schedstat")).unwrap_or_default();
            stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
        };
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(|task| task.unwrap().path());
        let tasks: Vec<_> = tasks.collect();
        Self {
            rss: field("VmRSS:"),
            anon: field("RssAnon:"),
            cpu: tasks.iter().map(|task| ran(task)).sum::<u64>() / 1_000,
            woken: field("voluntary_ctxt_switches:"),
            threads: tasks.len(),
        }
    }
}

/// Resident kB, anonymous kB, CPU microseconds, wake-ups, threads.
pub(super) fn idle(pid: u32, seconds: u64) {
    let before = Sample::of(pid);
    std::thread::sleep(Duration::from_secs(seconds));
    let after = Sample::of(pid);
    // A thread that came and went within the time has taken its share with it.
    let used = after.cpu.saturating_sub(before.cpu);
    println!("{} {} {used} {} {}", after.rss, after.anon, after.woken - before.woken, after.threads);
}
