//! `keyholder key` as a person runs it, against a real door.

use std::path::Path;
use std::process::Output;

use assert_cmd::Command;
use keyholder::vocabulary::Pin;
use serde_json::Value;

use super::house::{House, Key, name};

struct Desk {
    dir: tempfile::TempDir,
}

impl Desk {
    /// `ai-core`'s configuration: `mars` at this door, ourselves with these pins.
    fn of(house: &House, ours: &[Pin]) -> Self {
        let desk = Self { dir: tempfile::tempdir().unwrap() };
        let pins: Vec<String> = ours.iter().map(|pin| format!("\"{pin}\"")).collect();
        let fleet = format!(
            "version: 1\nnodes:\n  mars:\n    address: {}\n    pins: [\"{}\"]\n    watched_by: [ai-core]\n    workers:\n      \
             write: {{ unit: write.service }}\n  ai-core:\n    address: 127.0.0.2:7433\n    pins: [{}]\n\
             grants:\n  - {{ from: ai-core, on: mars, workers: [\"*\"], verbs: [status] }}\n",
            house.address,
            house.key.pin,
            pins.join(", ")
        );
        std::fs::write(desk.path().join("fleet.yaml"), fleet).unwrap();
        desk
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
    let desk = Desk::of(&house, &[house.peer.pin]);
    let missing = desk.key(&["show"]).await;
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing).contains("keyholder key generate"), "{}", text(&missing));
    let made = desk.key(&["generate"]).await;
    assert!(made.status.success(), "{}", text(&made));
    let pin = desk.pin(&[]).await;
    assert_eq!(String::from_utf8_lossy(&made.stdout).trim_end(), pin.to_string());
    let again = desk.key(&["generate"]).await;
    assert_eq!(again.status.code(), Some(1));
    assert_eq!(desk.pin(&[]).await, pin);
    let json: Value = serde_json::from_slice(&desk.key(&["show", "--json"]).await.stdout).unwrap();
    assert_eq!((&json["pin"], &json["algorithm"]), (&Value::from(pin.to_string()), &Value::from("Ed25519")));
    std::process::Command::new("chmod").arg("0644").arg(desk.path().join("key.pem")).status().unwrap();
    assert!(text(&desk.key(&["show"]).await).contains("chmod 0600"));
}

#[tokio::test]
async fn a_key_is_changed_once_every_peer_accepts_it() {
    let house = House::open().await;
    let desk = Desk::of(&house, &[house.peer.pin]);
    assert!(desk.key(&["generate"]).await.status.success());
    let old = desk.pin(&[]).await;

    let refused = desk.key(&["probe"]).await;
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused));
    assert!(text(&refused).contains(&format!("add {old} to the pins of ai-core")), "{}", text(&refused));

    accept(&house, &[old]);
    let accepted = desk.key(&["probe", "--json"]).await;
    assert!(accepted.status.success(), "{}", text(&accepted));
    let json: Value = serde_json::from_slice(&accepted.stdout).unwrap();
    assert_eq!((&json[0]["node"], &json[0]["answered"]["same_fleet"]), (&"mars".into(), &false.into()));

    assert!(text(&desk.key(&["switch"]).await).contains("generate --next"));
    assert!(desk.key(&["generate", "--next"]).await.status.success());
    let next = desk.pin(&["--next"]).await;
    let early = desk.key(&["switch"]).await;
    assert_eq!(early.status.code(), Some(1));
    assert!(text(&early).contains("not accepted by mars"), "{}", text(&early));
    assert_eq!(desk.pin(&[]).await, old);

    accept(&house, &[old, next]);
    assert!(desk.key(&["probe", "--next"]).await.status.success());
    let desk = Desk { dir: moved(desk, Desk::of(&house, &[old, next])) };
    let done = desk.key(&["switch"]).await;
    assert!(done.status.success(), "{}", text(&done));
    assert!(text(&done).contains("systemctl restart keyholder"));
    assert_eq!(desk.pin(&[]).await, next);
    assert_eq!(desk.key(&["show", "--next"]).await.status.code(), Some(1));
    assert!(desk.path().join("key.old.pem").exists());
}

/// The first desk's keys with the second one's fleet file.
fn moved(keys: Desk, fleet: Desk) -> tempfile::TempDir {
    std::fs::rename(fleet.path().join("fleet.yaml"), keys.path().join("fleet.yaml")).unwrap();
    keys.dir
}

#[tokio::test]
async fn a_switch_refuses_while_a_peer_cannot_be_asked_unless_forced() {
    let (key, peer) = House::open().await.close().await;
    let gone = House::with(key, peer).await;
    let desk = Desk::of(&gone, &[gone.peer.pin]);
    gone.close().await;
    for args in [&["generate"][..], &["generate", "--next"]] {
        assert!(desk.key(args).await.status.success());
    }
    let next = desk.pin(&["--next"]).await;
    let refused = desk.key(&["switch"]).await;
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused).contains("nothing listens there"), "{}", text(&refused));
    assert!(desk.key(&["switch", "--force"]).await.status.success());
    assert_eq!(desk.pin(&[]).await, next);
}

#[tokio::test]
async fn a_peer_with_another_key_than_the_fleet_file_says_is_named() {
    let mut house = House::open().await;
    let real = std::mem::replace(&mut house.key, Key::new());
    let desk = Desk::of(&house, &[house.peer.pin]);
    assert!(desk.key(&["generate"]).await.status.success());
    let output = desk.key(&["probe", "mars"]).await;
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains(&real.pin.to_string()), "{}", text(&output));
}
