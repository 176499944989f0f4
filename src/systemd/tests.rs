//! The task as a whole where there is no bus; with one it is tested on real nodes, as a mock of systemd proves nothing.

use std::path::Path;

use super::*;
use crate::systemd::systemctl::tests::{fake, fake_with};

const LIMIT: Duration = Duration::from_secs(20);

const RUNNING: &str = "Id=w.service\nLoadState=loaded\nActiveState=active\nSubState=running\nJob=\n\
    InvocationID=00000000000000000000000000000001\n";

struct Stage {
    systemd: Systemd,
    events: mpsc::Receiver<SystemdEvent>,
    units: watch::Sender<Vec<UnitName>>,
}

impl Stage {
    /// A host whose bus is at a path where nothing is.
    fn without_bus(dir: &Path, systemctl: std::path::PathBuf) -> Self {
        let (units, list) = watch::channel(vec![unit()]);
        let (to, events) = mpsc::channel(1);
        let bus = format!("unix:path={}", dir.join("bus").display());
        Self { systemd: start_at(hub::Endpoints { bus, systemctl }, list, to), events, units }
    }

    async fn next(&mut self) -> SystemdEvent {
        tokio::time::timeout(LIMIT, self.events.recv()).await.unwrap().unwrap()
    }

    async fn observed(&mut self) -> Observation {
        loop {
            if let SystemdEvent::Observed { observation, .. } = self.next().await {
                return observation;
            }
        }
    }
}

fn unit() -> UnitName {
    "w.service".parse().unwrap()
}

#[tokio::test]
async fn without_a_bus_the_loss_is_told_once_and_systemctl_observes() {
    let dir = tempfile::tempdir().unwrap();
    let systemctl = fake_with(dir.path(), RUNNING, "", "");
    let mut stage = Stage::without_bus(dir.path(), systemctl);
    assert!(matches!(stage.next().await, SystemdEvent::Bus(BusState::Lost(_))));
    let Observation::Unit(seen) = stage.observed().await else { panic!("not observed") };
    assert!(seen.invocation.is_some());
    std::fs::write(dir.path().join("unit"), RUNNING.replace("active", "failed")).unwrap();
    let SystemdEvent::Observed { observation: Observation::Unit(seen), .. } = stage.next().await else {
        panic!("something else than the change was told")
    };
    assert_eq!(seen.active, crate::judge::ActiveState::Failed);
    stage.systemd.look(&unit());
    assert!(matches!(stage.next().await, SystemdEvent::Observed { .. }));
}

#[tokio::test]
async fn where_nothing_works_every_unit_is_unknown_once_and_a_relaunch_fails_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let systemctl = fake(dir.path(), "echo 'Failed to connect to bus' >&2; exit 1\n");
    let mut stage = Stage::without_bus(dir.path(), systemctl);
    let Observation::Failed(why) = stage.observed().await else { panic!("observed") };
    assert_eq!(why, "systemctl show failed: Failed to connect to bus");
    let relaunch = stage.systemd.relaunch(&unit(), Duration::from_secs(1)).await;
    assert!(matches!(relaunch.result, Err(RelaunchError::Bus(_))), "{relaunch:?}");
    assert!(relaunch.break_glass && relaunch.took < LIMIT);
    // The relaunch asks for a look of its own: that is the one more answer.
    assert!(matches!(stage.observed().await, Observation::Failed(_)));
    let more = tokio::time::timeout(Duration::from_millis(2500), stage.events.recv()).await;
    assert!(more.is_err(), "{more:?}");
}

#[tokio::test]
async fn only_watched_units_are_relaunched() {
    let dir = tempfile::tempdir().unwrap();
    let systemctl = fake_with(dir.path(), RUNNING, &RUNNING.replace("01\n", "02\n"), "");
    let stage = Stage::without_bus(dir.path(), systemctl);
    let other: UnitName = "ssh.service".parse().unwrap();
    let relaunch = stage.systemd.relaunch(&other, LIMIT).await;
    assert_eq!(relaunch.result, Err(RelaunchError::NotWatched));
    stage.units.send(vec![other.clone()]).unwrap();
    assert!(stage.systemd.relaunch(&other, LIMIT).await.result.is_ok(), "the new list counts at once");
    assert_eq!(stage.systemd.relaunch(&unit(), LIMIT).await.result, Err(RelaunchError::NotWatched));
}

#[tokio::test]
async fn the_task_ends_when_nobody_listens() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::without_bus(dir.path(), fake_with(dir.path(), RUNNING, "", ""));
    drop(stage.events);
    tokio::time::timeout(LIMIT, stage.systemd.asks.closed()).await.unwrap();
    let relaunch = stage.systemd.relaunch(&unit(), Duration::from_secs(1)).await;
    assert!(relaunch.break_glass, "even then there is the other way");
}

#[tokio::test]
async fn without_a_bus_nothing_but_a_relaunch_is_done() {
    let dir = tempfile::tempdir().unwrap();
    let mut stage = Stage::without_bus(dir.path(), fake_with(dir.path(), RUNNING, "", ""));
    assert!(matches!(stage.next().await, SystemdEvent::Bus(BusState::Lost(_))));
    let gone = |result: Result<(), ActError>| assert!(matches!(result, Err(ActError::Bus(_))), "{result:?}");
    gone(stage.systemd.signal(&unit(), 10, false).await);
    gone(stage.systemd.reload(&unit(), LIMIT).await);
    gone(stage.systemd.stop(&unit(), LIMIT).await);
    gone(stage.systemd.restart_other(&unit(), LIMIT).await.map(drop));
    assert!(stage.systemd.watchdog(&unit()).await.is_err());
    let witness = dir.path().join("witness");
    let argv = vec!["/usr/bin/touch".to_owned(), witness.display().to_string()];
    let command = crate::vocabulary::Command { argv, user: "root".to_owned(), timeout: LIMIT };
    let end = stage.systemd.run(&command, "test").await;
    assert!(matches!(end.exit, CommandExit::NotStarted(why) if why.contains("bus is gone")));
    assert!(!witness.exists(), "it was run as a child");
}
