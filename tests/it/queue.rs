//! The preflight against real servers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // clippy sees tests only where #[test] stands

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use keyholder::queue::{Finding, Level, QueueError, preflight};
use tempfile::TempDir;

use crate::redis_server::{Port, Redis};

const DEADLINE: Duration = Duration::from_secs(10);

impl Redis {
    fn look(&self, userinfo: &str) -> Result<Vec<Finding>, QueueError> {
        look(&self.url(userinfo))
    }
}

fn look(url: &str) -> Result<Vec<Finding>, QueueError> {
    look_within(url, DEADLINE)
}

fn look_within(url: &str, deadline: Duration) -> Result<Vec<Finding>, QueueError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(preflight(url, deadline))
}

fn not_ok(findings: Vec<Finding>) -> Vec<(Level, String)> {
    findings.into_iter().filter(|f| f.level != Level::Ok).map(|f| (f.level, f.text)).collect()
}

#[test]
fn a_fit_server_has_nothing_to_complain_about() {
    let redis = Redis::start(&["--appendonly", "yes", "--maxmemory-policy", "noeviction"]);
    let findings = redis.look("").unwrap();
    assert!(
        findings[0].text.starts_with("Redis ") || findings[0].text.starts_with("Valkey "),
        "{findings:?}"
    );
    assert!(findings.iter().any(|finding| finding.text.contains("BLMOVE")));
    assert_eq!(not_ok(findings), []);
}

#[test]
fn a_server_that_may_lose_tasks_is_found_out() {
    let redis = Redis::start(&["--appendonly", "no", "--maxmemory-policy", "allkeys-lru"]);
    let bad = not_ok(redis.look("").unwrap());
    assert!(
        matches!(&bad[..], [(Level::Error, a), (Level::Warn, b)]
        if a.contains("allkeys-lru") && b.contains("append-only")),
        "{bad:?}"
    );
}

#[test]
fn clusters_and_replicas_are_refused() {
    let cluster = Redis::start(&["--cluster-enabled", "yes", "--appendonly", "yes"]);
    let bad = not_ok(cluster.look("").unwrap());
    assert!(matches!(&bad[..], [(Level::Error, text)] if text.contains("Redis Cluster")), "{bad:?}");

    let master = cluster.port().to_string();
    let replica = Redis::start(&["--replicaof", "127.0.0.1", &master, "--appendonly", "yes"]);
    let bad = not_ok(replica.look("").unwrap());
    assert!(bad.iter().any(|(_, text)| text.contains("master (127.0.0.1)")), "{bad:?}");
}

#[test]
fn a_password_is_needed_used_and_never_shown() {
    let redis = Redis::start(&["--requirepass", "hunter2", "--appendonly", "yes"]);
    assert_eq!(not_ok(redis.look(":hunter2@").unwrap()), []);
    for userinfo in ["", ":hunter3@", "me:hunter2@"] {
        let error = redis.look(userinfo).unwrap_err();
        assert!(matches!(error, QueueError::Denied { .. }), "{error:?}");
        for shown in [error.to_string(), format!("{error:?}")] {
            assert!(!shown.contains("hunter"), "{shown}");
            assert!(shown.contains(&redis.port().to_string()), "{shown}");
        }
    }
}

#[test]
fn a_user_with_few_rights_gets_the_rest_checked() {
    let redis = Redis::start(&[
        "--user", "few", "on", ">pw", "~*", "-@all", "+ping", "+client", "+select", "+command",
    ]);
    let bad = not_ok(redis.look("few:pw@").unwrap());
    assert!(matches!(&bad[..], [(Level::Warn, text)] if text.contains("INFO")), "{bad:?}");
}

#[test]
fn what_is_no_server_is_an_error_in_time() {
    // Nobody there.
    let port = Port::new();
    let error = look(&format!("redis://u:secret@{}", port.address())).unwrap_err();
    assert!(
        matches!(error, QueueError::Unreachable { .. }) && !error.to_string().contains("secret"),
        "{error}"
    );

    // Somebody who says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://127.0.0.1:{}", silent.local_addr().unwrap().port());
    let began = Instant::now();
    let error = look_within(&url, Duration::from_millis(100)).unwrap_err();
    assert!(matches!(error, QueueError::Late { .. } | QueueError::Unreachable { .. }), "{error}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());

    // Somebody who speaks something else.
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://127.0.0.1:{}", other.local_addr().unwrap().port());
    let speaker = std::thread::spawn(move || {
        let (mut stream, _) = other.accept().unwrap();
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\x1b[2J\r\n\r\n");
    });
    let error = look(&url).unwrap_err();
    assert!(matches!(error, QueueError::Unreachable { .. }), "{error:?}");
    assert!(!error.to_string().contains('\x1b'));
    speaker.join().unwrap();

    for url in
        ["", "http://x", "unix:///run/redis.sock", "redis://", "redis://x:99999", "redis://u:secret@:x"]
    {
        let error = look(url).unwrap_err();
        assert!(matches!(error, QueueError::Url { .. }) && !error.to_string().contains("secret"), "{error}");
    }
}

#[test]
fn tls_is_spoken_and_its_certificate_checked() {
    const TRUSTED: &str = "KEYHOLDER_TEST_TLS_URL";
    if let Ok(url) = std::env::var(TRUSTED) {
        assert_eq!(not_ok(look(&url).unwrap()), []);
        return;
    }
    let files = TempDir::new().unwrap();
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let write = |name: &str, text: String| {
        let path = files.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let cert = write("cert.pem", own.cert.pem());
    let key = write("key.pem", own.signing_key.serialize_pem());
    let args = ["--port", "0", "--tls-cert-file", &cert, "--tls-key-file", &key, "--tls-ca-cert-file", &cert];
    let args = [&args[..], &["--tls-auth-clients", "no", "--appendonly", "yes"]].concat();
    let redis = Redis::start_at("--tls-port", &args);
    assert!(Path::new(redis.dir()).exists());
    let url = format!("rediss://localhost:{}", redis.port());

    let error = look(&url).unwrap_err();
    assert!(matches!(error, QueueError::Unreachable { .. }), "an unknown certificate: {error:?}");
    let plain = look_within(&redis.url(""), Duration::from_secs(2)).unwrap_err();
    assert!(!matches!(plain, QueueError::Denied { .. }), "{plain:?}");

    // The host's list of authorities is read from the environment, which a test cannot change for itself alone.
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "queue::tls_is_spoken_and_its_certificate_checked", "--nocapture"])
        .env("SSL_CERT_FILE", &cert)
        .env(TRUSTED, &url)
        .status()
        .unwrap();
    assert!(status.success());
}
