//! A lane that reaches its server through TLS, believing an authority that nobody else knows.

use std::time::Duration;

use super::rig::Rig;
use crate::redis_server::{Redis, Sentinel};

const ACTIONS: &str = "
  echo:
    mode: read
    argv: [/bin/echo, hello]
";

/// A server whose certificate comes from an authority of the test's own, in `DIR/ca.pem`; it speaks nothing but TLS.
fn server(rig: &Rig) -> Redis {
    let ca_key = rcgen::KeyPair::generate().unwrap();
    let mut ca = rcgen::CertificateParams::new([]).unwrap();
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca = rcgen::CertifiedIssuer::self_signed(ca, ca_key).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
    let cert = rcgen::CertificateParams::new(names).unwrap().signed_by(&key, &ca).unwrap();
    let write = |name: &str, text: String| {
        std::fs::write(rig.path(name), text).unwrap();
        rig.path(name).to_str().unwrap().to_owned()
    };
    let files =
        [write("cert.pem", cert.pem()), write("key.pem", key.serialize_pem()), write("ca.pem", ca.pem())];
    let args = ["--port", "0", "--tls-cert-file", &files[0], "--tls-key-file", &files[1]];
    let args = [&args[..], &["--tls-ca-cert-file", &files[2], "--tls-auth-clients", "no"]].concat();
    Redis::start_at("--tls-port", &args)
}

#[test]
fn a_lane_believes_the_authority_that_it_is_told_and_no_other() {
    let rig = Rig::new(ACTIONS);
    let redis = server(&rig);
    let at = format!("rediss://127.0.0.1:{}", redis.port());
    let ca = |name: &str| format!("{at}?ca={}", rig.path(name).display());

    let doubts = rig.lane_at("write", &at, &[], &[]);
    let said = doubts.wait_for("taking no tasks");
    assert!(said.contains("certificate") && said.contains(&redis.port().to_string()), "{said}");
    assert_eq!(doubts.leave(), Some(0));
    let misses = rig.lane_at("write", &ca("no-such.pem"), &[], &[]);
    misses.wait_for("no-such.pem cannot be used as the certificate authority");
    // It is read at each connecting: no restart when it comes late.
    std::fs::copy(rig.path("ca.pem"), rig.path("no-such.pem")).unwrap();
    misses.wait_for("serving tasks:maintenance:mars at rediss://127.0.0.1");

    // Whoever gives tasks has it from the fleet file.
    let key = std::process::Command::new(env!("CARGO_BIN_EXE_keyholder"))
        .args(["key", "generate", "--task", "--key-dir"])
        .arg(rig.dir.path())
        .output()
        .unwrap();
    let key = String::from_utf8(key.stdout).unwrap();
    let fleet = format!(
        "version: 1\nredis: {{ url: \"{at}\", ca: {} }}\ntask_keys: {{ ada: \"{}\" }}\nnodes:\n  mars: {{ address: \
         \"192.0.2.10:7433\" }}\n",
        rig.path("ca.pem").display(),
        key.trim()
    );
    std::fs::write(rig.path("fleet.yaml"), fleet).unwrap();
    assert_eq!(misses.leave(), Some(0));
    let fleet = rig.path("fleet.yaml").to_str().unwrap().to_owned();
    let lane = rig.lane_at("write", "", &["--fleet", &fleet, "--signer", &nobody()], &[]);
    lane.wait_for("serving");
    let told = std::process::Command::new(env!("CARGO_BIN_EXE_keyholder"))
        .args(["run", "mars", "echo", "--timeout", "20s", "--fleet", &fleet, "--key"])
        .arg(rig.path("task.pem"))
        .env_remove("KEYHOLDER_REDIS")
        .output()
        .unwrap();
    assert_eq!((told.status.code(), &told.stdout[..]), (Some(0), &b"hello\n"[..]), "{told:?}");
}

#[test]
fn sentinels_speak_tls_as_well_and_their_certificate_is_checked_too() {
    let rig = Rig::new(ACTIONS);
    let redis = server(&rig);
    let file = |name: &str| rig.path(name).display().to_string();
    let tls = format!(
        "port 0\ntls-replication yes\ntls-auth-clients no\ntls-cert-file {}\ntls-key-file {}\ntls-ca-cert-file {}\n",
        file("cert.pem"),
        file("key.pem"),
        file("ca.pem")
    );
    let sentinel = Sentinel::start_at("tls-port", redis.port(), 1, Duration::from_secs(5), &tls);
    let url = format!("rediss-sentinel://127.0.0.1:{}/mymaster", sentinel.port());
    let doubts = rig.lane_at("write", &url, &[], &[]);
    let said = doubts.wait_for("taking no tasks");
    assert!(said.contains("certificate"), "{said}");
    assert_eq!(doubts.leave(), Some(0));
    let lane = rig.lane_at("write", &format!("{url}?ca={}", file("ca.pem")), &[], &[]);
    lane.wait_for("serving tasks:maintenance:mars at rediss-sentinel://");
}

fn nobody() -> String {
    format!("nobody=ed25519:{}", "0".repeat(64))
}
