//! What kinds of evidence there are, and how urgent they can be.

/// The kind (`MESSAGE_ID`) of a lane's record that says what became of a task: fixed for good, since people's queries contain
/// it.
pub const EXECUTED: &str = "5f7b6e0c1d8a4b36a2c9d40e7f1832b5";
/// The kind of a record in which a lane speaks of itself.
pub const TRANSITION: &str = "c1a94d7e2f0b4c5d8e6f3a7b90d21c48";

/// What happened. Each kind has a MESSAGE_ID of its own, so that it can be found in the journal for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// The supervisor started, reloaded its configuration or stops.
    Supervisor,
    /// A worker's class changed.
    Observed,
    /// A request was accepted and is about to be carried out.
    Ordered,
    /// A request was refused; nothing was touched.
    Refused,
    /// The supervisor is about to act on a worker.
    Acting,
    /// An act ended, and how.
    Acted,
    /// A person should look: quarantine, a critical worker down, an undeclared stop, an unreachable node.
    Alert,
    /// What people were called for is over.
    AlertEnded,
    /// A peer came, went or cannot be reached.
    Peer,
    /// Something of our own is degraded or whole again: bus, state directory, journal.
    Degraded,
}

impl Event {
    /// Every kind, for whoever must know all of them.
    pub const ALL: [Self; 10] = [
        Self::Supervisor,
        Self::Observed,
        Self::Ordered,
        Self::Refused,
        Self::Acting,
        Self::Acted,
        Self::Alert,
        Self::AlertEnded,
        Self::Peer,
        Self::Degraded,
    ];

    /// The kind with this name, if it is one of ours.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.name() == name)
    }

    /// Its name, as in the audit and in the journal's `KEYHOLDER_EVENT`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Supervisor => "supervisor",
            Self::Observed => "observed",
            Self::Ordered => "ordered",
            Self::Refused => "refused",
            Self::Acting => "acting",
            Self::Acted => "acted",
            Self::Alert => "alert",
            Self::AlertEnded => "alert-ended",
            Self::Peer => "peer",
            Self::Degraded => "degraded",
        }
    }

    /// Its `MESSAGE_ID`: random once (`journalctl --new-id128`), fixed for good, since people's queries and alerts
    /// contain it.
    pub fn message_id(self) -> &'static str {
        match self {
            Self::Supervisor => "6b385edb03ee46f190c65a203c294239",
            Self::Observed => "9b511fec81a949eab8aac930c09ecc19",
            Self::Ordered => "b6ecaa5ee60242fe879a54b0150c0200",
            Self::Refused => "cb7fdb3e1a0849c0ac50ecd059e50e94",
            Self::Acting => "ce178d4ccbb940ed8961cea0f4722426",
            Self::Acted => "63e2f3d8da4f4e05af33b9bd6c1d6e79",
            Self::Alert => "2bc8adbbffbd4a3baaa809c0a6bf6484",
            Self::AlertEnded => "4d0c9a7be21f4f6d8f53a06b7c1e92d4",
            Self::Peer => "f187dd0425aa440bb40d1e5cf87281eb",
            Self::Degraded => "f787134288d24951832b13da3a1f28b8",
        }
    }
}

/// How urgent a record is, as syslog priorities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// 3: somebody must look.
    Error,
    /// 4: somebody should know.
    Warning,
    /// 5: a normal but significant act.
    Notice,
    /// 6: for the trail.
    Info,
}

impl Priority {
    /// Its number, as in syslog and in the journal's `PRIORITY`.
    pub fn number(self) -> u8 {
        match self {
            Self::Error => 3,
            Self::Warning => 4,
            Self::Notice => 5,
            Self::Info => 6,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn message_ids_and_names_are_distinct_and_well_formed() {
        let ids: BTreeSet<_> = Event::ALL.map(Event::message_id).into();
        let names: BTreeSet<_> = Event::ALL.map(Event::name).into();
        assert_eq!((ids.len(), names.len()), (Event::ALL.len(), Event::ALL.len()));
        for id in ids {
            // journald ignores one that is not exactly this.
            assert!(id.parse::<crate::vocabulary::InvocationId>().is_ok(), "{id}");
        }
    }
}
