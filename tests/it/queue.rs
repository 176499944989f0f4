//! The preflight against real servers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // clippy sees tests only where #[test] stands

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use keyholder::queue::{Finding, Front, How, Level, QueueError, QueueName, Server, preflight};
use tempfile::TempDir;

use crate::redis_server::{Port, Redis};

const DEADLINE: Duration = Duration::from_secs(10);

impl Redis {
    fn look(&self, userinfo: &str) -> Result<Vec<Finding>, QueueError> {
        look(&self.url(userinfo))
    }

    fn look_at(&self, path: &str) -> Result<Vec<Finding>, QueueError> {
        look(&format!("{}{path}", self.url("")))
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
    assert!(
        matches!(&bad[..], [(Level::Warn, info), (Level::Warn, eval), (Level::Warn, write)]
            if info.contains("INFO") && eval.contains("EVAL") && write.contains("+setrange ~tasks:maintenance:write-probe")),
        "{bad:?}"
    );
}

/// What a lane hears when it connects.
fn lane(url: &str) -> Result<(), QueueError> {
    let queue = QueueName::write(&"mars".parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(Server::new(url, &queue).unwrap().connect(How::Blmove)).map(drop)
}

#[test]
fn an_error_of_the_server_is_told_in_its_own_words_with_the_way_out() {
    let refused = |error: QueueError, words: &[&str]| {
        let said = error.to_string();
        assert!(matches!(error, QueueError::Refused { .. }), "{error:?}");
        assert!(words.iter().all(|word| said.contains(word)), "{said}");
        assert!(!said.contains("cannot be reached") && !said.contains("signalled"), "{said}");
    };
    let redis = Redis::start(&["--rename-command", "CLIENT", ""]);
    refused(lane(&redis.url("")).unwrap_err(), &["ERR unknown command", "CLIENT", "rename-command"]);
    let bad = not_ok(redis.look("").unwrap());
    assert!(bad.iter().any(|(level, text)| *level == Level::Error && text.contains("CLIENT")), "{bad:?}");

    let redis = Redis::start(&["--rename-command", "EVALSHA", "", "--rename-command", "LPUSH", "GIVE"]);
    let bad = not_ok(redis.look("").unwrap());
    for command in ["EVALSHA", "LPUSH"] {
        assert!(bad.iter().any(|(level, text)| *level == Level::Error && text.contains(command)), "{bad:?}");
    }

    let redis = Redis::start(&["--maxclients", "1"]);
    let _held = redis.conn();
    // The server says so before anything is asked.
    for _ in 0..20 {
        refused(lane(&redis.url("")).unwrap_err(), &["max number of clients reached", "maxclients"]);
        refused(redis.look("").unwrap_err(), &["max number of clients reached", "maxclients"]);
    }

    let redis = Redis::start(&[]);
    let queue = QueueName::write(&"mars".parse().unwrap());
    redis::cmd("SET").arg(queue.as_str()).arg("no list").exec(&mut redis.conn()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let front = async { Front::connect(&redis.url("")).await.unwrap().served(&queue).await };
    refused(runtime.block_on(front).unwrap_err(), &["WRONGTYPE", "redis-cli TYPE"]);

    let redis = Redis::start(&["--databases", "2"]);
    refused(redis.look_at("/9").unwrap_err(), &["out of range", "database number"]);
}

#[test]
fn a_socket_of_the_host_is_as_good_as_a_port() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("redis.sock");
    let path = path.to_str().unwrap();
    let args = ["--unixsocket", path, "--requirepass", "hunter2", "--appendonly", "yes"];
    let _redis = Redis::start(&args);
    for scheme in ["unix", "redis+unix"] {
        let url = format!("{scheme}://{path}?pass=hunter2");
        assert_eq!(not_ok(look(&url).unwrap()), []);
        lane(&url).unwrap();
        let error = look(&format!("{scheme}://{path}?pass=hunter3")).unwrap_err();
        assert!(matches!(error, QueueError::Denied { .. }), "{error:?}");
        assert!(!error.to_string().contains("hunter"), "{error}");
    }
    let error = look("unix:///nowhere/redis.sock?pass=hunter2").unwrap_err();
    assert!(matches!(error, QueueError::Unreachable { .. }), "{error:?}");
    assert!(error.to_string().contains("/nowhere/redis.sock"), "{error}");
}

#[test]
fn a_server_that_wants_a_certificate_of_ours_gets_it() {
    let files = TempDir::new().unwrap();
    let write = |name: &str, text: String| {
        let path = files.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert, key) = (write("cert.pem", own.cert.pem()), write("key.pem", own.signing_key.serialize_pem()));
    let other = rcgen::generate_simple_self_signed(["stranger".to_owned()]).unwrap();
    let (strange, strange_key) =
        (write("strange.pem", other.cert.pem()), write("strange-key.pem", other.signing_key.serialize_pem()));
    let args = ["--port", "0", "--tls-cert-file", &cert, "--tls-key-file", &key, "--tls-ca-cert-file", &cert];
    let redis = Redis::start_at("--tls-port", &[&args[..], &["--appendonly", "yes"]].concat());
    let url = format!("rediss://localhost:{}?ca={cert}", redis.port());

    for bad in [url.clone(), format!("{url}&cert={strange}&key={strange_key}")] {
        for error in [look(&bad).unwrap_err(), lane(&bad).unwrap_err()] {
            assert!(matches!(error, QueueError::ClientCertificate { .. }), "{error:?}");
            assert!(error.to_string().contains("`cert` and `key`"), "{error}");
        }
    }
    let good = format!("{url}&cert={cert}&key={key}");
    assert_eq!(not_ok(look(&good).unwrap()), []);
    lane(&good).unwrap();
    for (bad, word) in [
        (format!("{url}&cert={cert}&key={cert}"), "private key"),
        (format!("{url}&cert={key}&key={key}"), "no certificate"),
        (format!("{url}&cert=/nowhere&key={key}"), "/nowhere"),
        (format!("{url}&cert={cert}&key={strange_key}"), "cert.pem"),
    ] {
        let error = look(&bad).unwrap_err();
        assert!(matches!(error, QueueError::TlsFile { .. }), "{error:?}");
        assert!(error.to_string().contains(word), "{error}");
    }
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
    assert!(matches!(error, QueueError::Excess { .. }), "{error:?}");
    assert!(!error.to_string().contains('\x1b'));
    speaker.join().unwrap();

    for url in ["", "http://x", "unix://", "redis://", "redis://x:99999", "redis://u:secret@:x"] {
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
