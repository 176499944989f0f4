//! The same tests with other servers: what a lane does must not depend on whose Redis it is.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::redis_server::PROGRAM;

/// What `tests/servers` has fetched.
fn server(name: &str) -> PathBuf {
    // target/debug/deps/it-…
    let target = std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned();
    let path = target.join("test-servers").join(name);
    assert!(path.exists(), "{} is missing, and this test needs it: tests/servers fetches it", path.display());
    path
}

/// Runs the tests of these names in a process of its own, with that server.
fn again(server: &Path, names: &[&str], but: &[&str]) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(names).args(but.iter().flat_map(|name| ["--skip", name]));
    // A breeze instead of the storm: the lane is the same, only the server is another.
    let told = command.env(PROGRAM, server).env("KEYHOLDER_KILLS", "16").output().unwrap();
    let text = String::from_utf8_lossy(&told.stdout);
    assert!(told.status.success(), "with {}: {text}", server.display());
    let passed = text.lines().find_map(|line| line.strip_prefix("test result: ok. "));
    println!("with {}: {}", server.display(), passed.unwrap_or_default());
    assert!(passed.is_some_and(|passed| !passed.starts_with('0')), "{text}");
}

#[test]
fn with_valkey_everything_is_the_same() {
    again(
        &server("valkey-server"),
        &[
            "lane::canary::",
            "lane::giving::",
            "lane::kills::",
            "lane::tasks::",
            "lane::trouble::",
            "lane::sentinel::",
            "queue::",
            "detect::",
        ],
        // The wheels' servers are built without TLS.
        &["tls_is_spoken", "a_server_that_wants_a_certificate"],
    );
}

/// The oldest that has `BLMOVE`. It has no patterns for reading only, so the shipped users are not for it.
#[cfg(target_arch = "x86_64")]
#[test]
fn with_the_oldest_redis_that_can_do_it_everything_is_the_same() {
    again(
        &server("redis-server-6.2"),
        &[
            "lane::canary::",
            "lane::giving::",
            "lane::kills::",
            "lane::tasks::",
            "lane::trouble::",
            "lane::sentinel::",
            "detect::",
        ],
        &["every_role_gets_by", "get_by_with_the_users", "a_lane_is_seen_with"],
    );
}
