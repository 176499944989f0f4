//! Another wall clock for the processes of a node. The lab shares its kernel's with the machine, which nobody may set; so they are
//! shown one by a library that stands before libc's functions.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::harness::Lab;

/// Where the library is on a node.
const CLOCK: &str = "/usr/local/lib/clock.so";
/// The same for a unit that is to have that clock.
pub(crate) const DROP_IN: &str = "[Service]\nEnvironment=LD_PRELOAD=/usr/local/lib/clock.so\n";

/// What else tells the time tells what `clock_gettime` does.
const OTHERS: &str = r#"
#include <sys/time.h>
int gettimeofday(struct timeval *at, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"#;

/// Builds the library around a `clock_gettime` in C, and puts it into the nodes.
pub(crate) fn install(lab: &Lab, nodes: &[&str], clock_gettime: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let library = dir.path().join("clock.so");
    let mut cc = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-x", "c", "-", "-o"])
        .arg(&library)
        .stdin(Stdio::piped())
        .spawn()
        .expect("cc, which the build needs as well");
    let source = format!("{clock_gettime}{OTHERS}");
    cc.stdin.take().expect("a pipe").write_all(source.as_bytes()).expect("cc reads");
    assert!(cc.wait().expect("cc ends").success());
    for node in nodes {
        lab.lab(&["cp", library.to_str().expect("a plain path"), &format!("{node}:{CLOCK}")]);
    }
}
