//! `alert`: the hook gets one record, whatever happens, and only a hook of root's is run.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use keyholder::journal::Event;
use keyholder::peer::wire::{AuditLine, Outcome, RefusalCode, Verb, Verdict};
use nix::unistd::geteuid;
use serde_json::{Value, json};

use super::fake::{Fake, told};

struct Hook {
    dir: tempfile::TempDir,
}

impl Hook {
    /// A hook that keeps what it is told.
    fn new(then: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let hook = Self { dir };
        let text =
            format!("#!/bin/sh\n[ $# -eq 0 ] || exit 9\ncat >{}\n{then}\n", hook.told_path().display());
        crate::executable::write(&hook.path(), &text);
        hook
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("alert")
    }

    fn told_path(&self) -> PathBuf {
        self.dir.path().join("told")
    }

    fn chmod(&self, mode: u32) {
        fs::set_permissions(self.path(), PermissionsExt::from_mode(mode)).unwrap();
    }

    fn told(&self) -> Option<Value> {
        let text = fs::read_to_string(self.told_path()).ok()?;
        assert_eq!(text.lines().count(), 1, "{text:?}");
        Some(serde_json::from_str(&text).unwrap())
    }

    fn run(&self, fake: &Fake, seq: &str) -> String {
        let mut command = fake.keyholder(&["alert", seq, "--hook", self.path().to_str().unwrap()]);
        command.env("PATH", "/usr/bin:/bin");
        told(&mut command).replace(self.dir.path().to_str().unwrap(), "DIR")
    }
}

fn line(seq: u64) -> AuditLine {
    AuditLine {
        seq,
        at: "2026-11-29T17:00:00.000Z".to_owned(),
        event: "alert".to_owned(),
        by: "local".to_owned(),
        subject: "mars/write".to_owned(),
        text: "healthy -> dead: signal 9 (KILL)".to_owned(),
        priority: 3,
    }
}

fn house() -> Fake {
    Fake::answering(|request| match request.verb {
        Verb::Audit { last: 50 } => {
            Verdict::Outcome(Outcome::Audit(vec![line(4710), line(4711), line(4712)]))
        }
        Verb::Audit { .. } => Verdict::Outcome(Outcome::Audit((4000..4713).map(line).collect())),
        _ => panic!("{request:?}"),
    })
}

#[test]
fn the_hook_gets_the_record_that_is_meant() {
    if !geteuid().is_root() {
        return; // only root can own a hook
    }
    let (hook, fake) = (Hook::new(""), house());
    for seq in [4711, 4001] {
        assert_eq!(hook.run(&fake, &seq.to_string()), "exit 0\n--- stdout\n--- stderr\n");
        let expected = json!({
            "node": "mars", "seq": seq, "at": "2026-11-29T17:00:00.000Z", "event": "alert", "priority": 3,
            "message_id": Event::Alert.message_id(), "by": "local", "subject": "mars/write",
            "text": "healthy -> dead: signal 9 (KILL)",
        });
        assert_eq!(hook.told(), Some(expected));
    }
}

#[test]
fn a_record_that_cannot_be_read_is_an_alert_all_the_same() {
    if !geteuid().is_root() {
        return;
    }
    let hook = Hook::new("");
    for fake in
        [Fake::refusing(RefusalCode::Internal, "the disk fails"), Fake::outcome(Outcome::Audit(Vec::new()))]
    {
        assert_eq!(hook.run(&fake, "7"), "exit 0\n--- stdout\n--- stderr\n");
        let told = hook.told().unwrap();
        let text = told["text"].as_str().unwrap();
        assert_eq!(
            (&told["seq"], &told["event"], &told["priority"]),
            (&json!(7), &json!("alert"), &json!(3))
        );
        assert!(text.contains("the disk fails") || text.contains("not among the newest"), "{text}");
    }
}

#[test]
fn a_hook_that_others_could_have_written_is_not_run() {
    if !geteuid().is_root() {
        return;
    }
    let (hook, fake) = (Hook::new(""), house());
    hook.chmod(0o775);
    insta::assert_snapshot!("writable", hook.run(&fake, "4711"));
    hook.chmod(0o644);
    insta::assert_snapshot!("not_executable", hook.run(&fake, "4711"));
    assert_eq!(hook.told(), None);
}

#[test]
fn a_hook_that_fails_is_a_failure_and_one_that_does_not_read_is_none() {
    if !geteuid().is_root() {
        return;
    }
    let fake = house();
    insta::assert_snapshot!("fails", Hook::new("exit 3").run(&fake, "4711"));
    let deaf = Hook::new("");
    fs::write(deaf.path(), "#!/bin/sh\nexit 0\n").unwrap();
    assert_eq!(deaf.run(&fake, "4711"), "exit 0\n--- stdout\n--- stderr\n");
}

#[test]
fn only_a_number_names_a_record() {
    let fake = house();
    for bad in ["0", "-1", "x", "1;2", "../1", "18446744073709551616"] {
        let mut command = fake.keyholder(&["alert"]);
        command.arg("--").arg(bad);
        command.assert().code(2);
    }
}
