//! How it is with this host, as far as the supervisor depends on it: PID 1, the bus, the door, the fleet file in force.

use std::time::Duration;

use crate::journal::Priority;
use crate::judge::Host;
use crate::vocabulary::Moment;

/// What brings back a socket that somebody has stopped. Started by itself it is refused while the service runs, which brings it up
/// when it starts.
pub const OPEN_THE_DOOR: &str = "systemctl enable keyholder.socket && systemctl restart keyholder.service";

/// How long a host may stay in systemd's `starting` before its workers count as dead all the same: a unit that hangs
/// at boot must not blind the supervisor for ever.
const BOOT_AT_MOST: Duration = Duration::from_secs(300);
/// How long PID 1 may leave unread what it is told before it counts as hanging.
const PID1_PATIENCE: Duration = Duration::from_secs(2);
/// What is said then.
const PID1_HANGS: &str = "PID 1 does not answer: until it does, nothing on this host can be seen, started or stopped, by systemctl neither; if it stays so, only a reset of the host helps";

/// A change that belongs into the record: how urgent it is, and a sentence.
pub(super) type Change = (Priority, String);

/// This host. Each method that takes something in answers what has changed by it, if anything has.
pub(super) struct OwnHost {
    state: Host,
    since: Moment,
    /// Until when nothing is decided, because this process was away and what it knows is old.
    catching_up: Option<Moment>,
    bus_lost: Option<String>,
    /// PID 1 does not read what it is told, so it hangs.
    pid1_hangs: bool,
    /// Somebody has stopped the socket that PID 1 holds for us.
    door_shut: bool,
    /// Why the last reload was refused, while the old fleet file is kept.
    reload_refused: Option<String>,
}

impl OwnHost {
    pub(super) fn new(now: Moment) -> Self {
        Self {
            state: Host::Running,
            since: now,
            catching_up: None,
            bus_lost: None,
            pid1_hangs: false,
            door_shut: false,
            reload_refused: None,
        }
    }

    pub(super) fn state(&self) -> Host {
        self.state
    }

    /// systemd says what the host does; true if that is news.
    pub(super) fn enter(&mut self, state: Host, now: Moment) -> bool {
        if state == self.state {
            return false;
        }
        (self.state, self.since) = (state, now);
        true
    }

    /// Whether it has been booting for longer than its workers are to wait for that.
    pub(super) fn boots_for_too_long(&self, now: Moment) -> bool {
        self.state == Host::Starting && now.since(self.since) >= BOOT_AT_MOST
    }

    /// The bus came or went.
    pub(super) fn bus(&mut self, lost: Option<String>) -> Option<Change> {
        if lost.is_some() == self.bus_lost.is_some() {
            return None;
        }
        let change = match &lost {
            Some(why) if self.pid1_hangs => (Priority::Warning, format!("{PID1_HANGS} ({why})")),
            Some(why) => (Priority::Warning, bus_lost(why)),
            None => (Priority::Notice, "the system bus is back".to_owned()),
        };
        self.bus_lost = lost;
        Some(change)
    }

    /// For how long PID 1 has not read what it is told. True if it hangs now, false if it hangs no longer.
    pub(super) fn pid1(&mut self, unread_for: Option<Duration>) -> Option<bool> {
        let hangs = match unread_for {
            Some(time) => self.pid1_hangs || time >= PID1_PATIENCE,
            None => false,
        };
        (std::mem::replace(&mut self.pid1_hangs, hangs) != hangs).then_some(hangs)
    }

    /// PID 1 holds the door no longer, or again. Of a host that goes down nobody wants to hear it.
    pub(super) fn door(&mut self, shut: bool) -> Option<Change> {
        if shut == self.door_shut || self.state == Host::Stopping {
            return None;
        }
        self.door_shut = shut;
        Some(if shut {
            (Priority::Warning, door_shut())
        } else {
            (Priority::Notice, "PID 1 holds the door again".to_owned())
        })
    }

    /// The fleet file was read again; the text is why it was refused.
    pub(super) fn reloaded(&mut self, refused: Option<String>) {
        self.reload_refused = refused;
    }

    pub(super) fn reload_refused(&self) -> Option<String> {
        self.reload_refused.clone()
    }

    /// What is wrong with PID 1, in words.
    pub(super) fn pid1_trouble(&self) -> Option<String> {
        self.pid1_hangs.then(|| PID1_HANGS.to_owned())
    }

    /// The reason why the bus is lost. A bus that is silent because PID 1 hangs is no trouble of its own.
    pub(super) fn bus_trouble(&self) -> Option<&str> {
        self.bus_lost.as_deref().filter(|_| !self.pid1_hangs)
    }

    /// Whether there is no bus, whatever the reason.
    pub(super) fn is_without_bus(&self) -> bool {
        self.bus_lost.is_some()
    }

    /// What is wrong with the door, in words.
    pub(super) fn door_trouble(&self) -> Option<String> {
        self.door_shut.then(door_shut)
    }

    /// Nothing is decided until then.
    pub(super) fn catch_up_until(&mut self, until: Moment) {
        self.catching_up = Some(until);
    }

    pub(super) fn is_catching_up(&self) -> bool {
        self.catching_up.is_some()
    }

    /// Until when nothing is decided; false if that time has just ended, none if there is no such time.
    pub(super) fn still_catching_up(&mut self, now: Moment) -> Result<Moment, bool> {
        match self.catching_up {
            Some(until) if now < until => Ok(until),
            Some(_) => {
                self.catching_up = None;
                Err(true)
            }
            None => Err(false),
        }
    }
}

/// The record's sentence about a bus that is lost.
pub(super) fn bus_lost(why: &str) -> String {
    format!("the system bus is lost ({why}); falling back to systemctl")
}

/// What is said of a door that PID 1 holds no longer. The running supervisor still has it; the next would be started by nobody.
fn door_shut() -> String {
    format!(
        "keyholder.socket is stopped, so that no knock would start this supervisor again: {OPEN_THE_DOOR}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_are_news_and_a_hanging_pid_1_is_the_one_cause() {
        let mut host = OwnHost::new(Moment::from_millis(0));
        assert_eq!(host.bus(None), None);
        assert!(host.bus(Some("closed".to_owned())).is_some_and(|(_, text)| text.contains("systemctl")));
        assert_eq!(host.bus(Some("closed again".to_owned())), None);
        assert_eq!(host.bus_trouble(), Some("closed"));
        assert_eq!(host.pid1(Some(Duration::from_millis(1_999))), None, "a busy PID 1 is none that hangs");
        assert_eq!(host.pid1(Some(Duration::from_secs(2))), Some(true));
        assert_eq!(host.bus_trouble(), None, "the bus is silent because PID 1 is");
        assert!(host.is_without_bus());
        // It has read a little and fallen silent again: that is one hang.
        assert_eq!(host.pid1(Some(Duration::from_millis(1))), None);
        assert_eq!(host.pid1(None), Some(false));
        assert_eq!(host.bus(None).map(|(priority, _)| priority), Some(Priority::Notice));
    }

    #[test]
    fn a_host_that_goes_down_says_nothing_of_its_door() {
        let mut host = OwnHost::new(Moment::from_millis(0));
        assert!(host.door(true).is_some());
        assert_eq!(host.door(true), None);
        assert!(host.door_trouble().is_some());
        assert!(host.door(false).is_some());
        assert!(host.enter(Host::Stopping, Moment::from_millis(1)));
        assert!(!host.enter(Host::Stopping, Moment::from_millis(2)));
        assert_eq!(host.door(true), None);
    }

    #[test]
    fn a_boot_is_waited_for_and_not_for_ever() {
        let mut host = OwnHost::new(Moment::from_millis(0));
        assert!(host.enter(Host::Starting, Moment::from_millis(1_000)));
        assert!(!host.boots_for_too_long(Moment::from_millis(300_999)));
        assert!(host.boots_for_too_long(Moment::from_millis(301_000)));
    }

    #[test]
    fn the_end_of_catching_up_is_said_once() {
        let mut host = OwnHost::new(Moment::from_millis(0));
        let until = Moment::from_millis(2_000);
        assert_eq!(host.still_catching_up(Moment::from_millis(0)), Err(false));
        host.catch_up_until(until);
        assert_eq!(host.still_catching_up(Moment::from_millis(1_999)), Ok(until));
        assert!(host.is_catching_up());
        assert_eq!(host.still_catching_up(until), Err(true));
        assert_eq!(host.still_catching_up(until), Err(false));
    }
}
