//! The edge to PID 1 through its public face, on whatever host this is: with systemd and a bus, with systemd and no bus,
//! or in a container with neither. It must come to an answer in each, and touch nothing.

use std::path::Path;
use std::time::Duration;

use keyholder::judge::{LoadState, Observation};
use keyholder::systemd::{self, BusState, NotStartable, RelaunchError, SystemdEvent};
use keyholder::vocabulary::UnitName;
use tokio::sync::{mpsc, watch};

const LIMIT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_unit_that_does_not_exist_is_told_and_relaunched_nowhere() {
    // `sd_booted(3)`: the directory exists if systemd is PID 1.
    let booted = Path::new("/run/systemd/system").exists();
    let unit: UnitName = "keyholder-test-of-a-unit-that-is-not-there.service".parse().unwrap();
    let (_units, list) = watch::channel(vec![unit.clone()]);
    let (to, mut events) = mpsc::channel(8);
    let systemd = systemd::start(list, to);

    let mut bus = None;
    let observation = loop {
        match tokio::time::timeout(LIMIT, events.recv()).await.unwrap().unwrap() {
            SystemdEvent::Bus(state) => bus = Some(state),
            SystemdEvent::Host(_) | SystemdEvent::Door { .. } => {}
            SystemdEvent::Observed { unit: seen, observation } => {
                assert_eq!(seen, unit);
                break observation;
            }
        }
    };
    let relaunch = systemd.relaunch(&unit, LIMIT).await;
    assert!(relaunch.took < 2 * LIMIT);
    if booted {
        let Observation::Unit(snapshot) = observation else { panic!("not observed: {observation:?}") };
        assert_eq!(snapshot.load, LoadState::NotFound);
        assert_eq!(relaunch.result, Err(RelaunchError::NotStartable(NotStartable::NotFound)));
        assert_eq!(relaunch.break_glass, bus != Some(BusState::Connected));
        assert_eq!(systemd.host_state().await.is_ok(), bus == Some(BusState::Connected));
    } else {
        assert!(matches!(bus, Some(BusState::Lost(_))), "{bus:?}");
        assert!(matches!(observation, Observation::Failed(_)), "{observation:?}");
        assert!(matches!(relaunch.result, Err(RelaunchError::Bus(_))), "{relaunch:?}");
        assert!(relaunch.break_glass);
        assert!(systemd.host_state().await.is_err());
    }
}
