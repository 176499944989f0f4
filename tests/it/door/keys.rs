//! `keyholder key` as a person runs it, against a real door.

use std::path::Path;
use std::process::Output;

use assert_cmd::Command;
use keyholder::vocabulary::Pin;
use serde_json::Value;

use super::house::{House, Key, name};

struct Inbox {
    dir: tempfile::TempDir,
}

impl Inbox {
    /// `ai-core`'s configuration: `mars` at this door, ourselves with these pins.
    fn of(house: &House, ours: &[Pin]) -> Self {
        let inbox = Self { dir: tempfile::tempdir().unwrap() };
        let pins: Vec<String> = ours.iter().map(|pin| format!("\"{pin}\"")).collect();
        let fleet = format!(
            "version: 1\nnodes:\n  mars:\n    address: {}\n    pins: [\"{}\"]\n    watched_by: [ai-core]\n    workers:\n      \
             write: {{ unit: write.service }}\n  ai-core:\n    address: 127.0.0.2:7433\n    pins: [{}]\n\
             grants:\n  - {{ from: ai-core, on: mars, workers: [\"*\"], verbs: [status] }}\n",
            house.address,
            house.key.pin,
            pins.join(", ")
        );
        std::fs::write(inbox.path().join("fleet.yaml"), fleet).unwrap();
        inbox
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Runs the command beside the door, which lives on this thread's runtime.
    async fn key(&self, args: &[&str]) -> Output {
        let mut command = Command::cargo_bin("keyholder").unwrap();
        command.arg("key").args(args).arg("--key-dir").arg(self.path());
        if matches!(args.first(), Some(&"probe" | &"switch")) {
            command.args(["--node", "ai-core", "--fleet"]).arg(self.path().join("fleet.yaml"));
        }
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    async fn pin(&self, args: &[&str]) -> Pin {
        let output = self.key(&[&["show"], args].concat()).await;
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim_end().parse().unwrap()
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn accept(house: &House, pins: &[Pin]) {
    house.edit_fleet(|fleet| {
        fleet.nodes.get_mut(&name("ai-core")).unwrap().pins = pins.iter().copied().collect();
    });
}

#[tokio::test]
async fn a_key_is_made_shown_and_never_overwritten() {
    let house = House::open().await;
    let inbox = Inbox::of(&house, &[house.peer.pin]);
    let missing = inbox.key(&["show"]).await;
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing).contains("keyholder key generate"), "{}", text(&missing));
    let made = inbox.key(&["generate"]).await;
    assert!(made.status.success(), "{}", text(&made));
    let pin = inbox.pin(&[]).await;
    assert_eq!(String::from_utf8_lossy(&made.stdout).trim_end(), pin.to_string());
    let again = inbox.key(&["generate"]).await;
    assert_eq!(again.status.code(), Some(1));
    assert_eq!(inbox.pin(&[]).await, pin);
    let json: Value = serde_json::from_slice(&inbox.key(&["show", "--json"]).await.stdout).unwrap();
    assert_eq!((&json["pin"], &json["algorithm"]), (&Value::from(pin.to_string()), &Value::from("Ed25519")));
    std::process::Command::new("chmod").arg("0644").arg(inbox.path().join("key.pem")).status().unwrap();
    assert!(text(&inbox.key(&["show"]).await).contains("chmod 0600"));
}

#[tokio::test]
async fn a_key_is_changed_once_every_peer_accepts_it() {
    let house = House::open().await;
    let inbox = Inbox::of(&house, &[house.peer.pin]);
    assert!(inbox.key(&["generate"]).await.status.success());
    let old = inbox.pin(&[]).await;

    let refused = inbox.key(&["probe"]).await;
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused));
    assert!(text(&refused).contains(&format!("add {old} to the pins of ai-core")), "{}", text(&refused));

    accept(&house, &[old]);
    let accepted = inbox.key(&["probe", "--json"]).await;
    assert!(accepted.status.success(), "{}", text(&accepted));
    let json: Value = serde_json::from_slice(&accepted.stdout).unwrap();
    assert_eq!((&json[0]["node"], &json[0]["answered"]["same_fleet"]), (&"mars".into(), &false.into()));

    assert!(text(&inbox.key(&["switch"]).await).contains("generate --next"));
    assert!(inbox.key(&["generate", "--next"]).await.status.success());
    let next = inbox.pin(&["--next"]).await;
    let early = inbox.key(&["switch"]).await;
    assert_eq!(early.status.code(), Some(1));
    assert!(text(&early).contains("not accepted by mars"), "{}", text(&early));
    assert_eq!(inbox.pin(&[]).await, old);

    accept(&house, &[old, next]);
    assert!(inbox.key(&["probe", "--next"]).await.status.success());
    let inbox = Inbox { dir: moved(inbox, Inbox::of(&house, &[old, next])) };
    let done = inbox.key(&["switch"]).await;
    assert!(done.status.success(), "{}", text(&done));
    assert!(text(&done).contains("systemctl restart keyholder"));
    assert_eq!(inbox.pin(&[]).await, next);
    assert_eq!(inbox.key(&["show", "--next"]).await.status.code(), Some(1));
    assert!(inbox.path().join("key.old.pem").exists());
}

/// The first inbox's keys with the second one's fleet file.
fn moved(keys: Inbox, fleet: Inbox) -> tempfile::TempDir {
    std::fs::rename(fleet.path().join("fleet.yaml"), keys.path().join("fleet.yaml")).unwrap();
    keys.dir
}

#[tokio::test]
async fn a_switch_refuses_while_a_peer_cannot_be_asked_unless_forced() {
    let (key, peer) = House::open().await.close().await;
    let gone = House::with(key, peer).await;
    let inbox = Inbox::of(&gone, &[gone.peer.pin]);
    gone.close().await;
    for args in [&["generate"][..], &["generate", "--next"]] {
        assert!(inbox.key(args).await.status.success());
    }
    let next = inbox.pin(&["--next"]).await;
    let refused = inbox.key(&["switch"]).await;
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused).contains("nothing listens there"), "{}", text(&refused));
    assert!(inbox.key(&["switch", "--force"]).await.status.success());
    assert_eq!(inbox.pin(&[]).await, next);
}

#[tokio::test]
async fn a_peer_with_another_key_than_the_fleet_file_says_is_named() {
    let mut house = House::open().await;
    let real = std::mem::replace(&mut house.key, Key::new());
    let inbox = Inbox::of(&house, &[house.peer.pin]);
    assert!(inbox.key(&["generate"]).await.status.success());
    let output = inbox.key(&["probe", "mars"]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains(&real.pin.to_string()), "{}", text(&output));
}
