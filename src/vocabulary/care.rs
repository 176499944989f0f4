//! How a worker that runs is watched more closely, and what is done short of a relaunch: heartbeats, queues, nudges and
//! receive pipes, as `fleet.yaml` names them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Mode, UnitName};

/// The ways to fall, as the design names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureClass {
    /// A worker whose unit does not run.
    Dead,
    /// A worker that runs while its loop makes no progress.
    Stuck,
    /// A worker that is well while nothing reaches it.
    DeliveryGap,
    /// A node whose host answers and whose supervisor does not.
    SupervisorDead,
    /// A node that does not answer at all: down or cut off.
    Unreachable,
}

impl FailureClass {
    /// The classes of a worker.
    pub const OF_WORKERS: [Self; 3] = [Self::Dead, Self::Stuck, Self::DeliveryGap];
    /// The classes of a node.
    pub const OF_NODES: [Self; 2] = [Self::SupervisorDead, Self::Unreachable];

    /// Its name, as on the command line and in the journal.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dead => "dead",
            Self::Stuck => "stuck",
            Self::DeliveryGap => "delivery-gap",
            Self::SupervisorDead => "supervisor-dead",
            Self::Unreachable => "unreachable",
        }
    }
}

impl fmt::Display for FailureClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What can be done to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Remedy {
    /// Wake its loop: a signal, a reload or a fixed command. Only for one that runs.
    Nudge,
    /// Build its receive pipe again: restart the unit that feeds it, or have it reconnect. Only for one that runs.
    Repipe,
    /// Restart its unit.
    #[default]
    Relaunch,
}

impl Remedy {
    /// Its name, as on the command line and in the journal.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nudge => "nudge",
            Self::Repipe => "repipe",
            Self::Relaunch => "relaunch",
        }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A fixed command from `fleet.yaml`. PID 1 runs it as a transient unit under its own limits; it is never a child of
/// the supervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// The program by its absolute path, and its arguments. No shell.
    pub argv: Vec<String>,
    /// The user it runs as; `nobody` unless the fleet file names another.
    pub user: String,
    /// How long it may take (`RuntimeMaxSec=`).
    pub timeout: Duration,
}

/// Where a worker's loop leaves its sign of life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heartbeat {
    /// A file that it touches. A change of its modification time counts, not its age: the wall clock may step.
    File(PathBuf),
    /// A key that it writes to Redis with a time to live.
    Redis(String),
    /// Its unit's last line in the journal.
    Journal,
    /// A command: exit 0 is a beat, 1 is none, everything else is a failure to observe.
    Command(Command),
    /// systemd's watchdog (`WatchdogSec=`): the last ping.
    Watchdog,
    /// A lane's own count of passes of its loop, from its status file.
    Lane(Mode),
}

/// When a worker counts as stuck, and the gentle remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stuck {
    /// The sign of life.
    pub heartbeat: Heartbeat,
    /// Without a sign for this long it is stuck.
    pub older_than: Duration,
    /// How its loop is woken before it is restarted.
    pub nudge: Option<Nudge>,
}

/// How a loop is woken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nudge {
    /// A signal to its main process.
    Signal(NudgeSignal),
    /// `systemctl reload`.
    Reload,
    /// A command.
    Command(Command),
}

/// The signals that may serve as a nudge: none that ends a process that expects it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NudgeSignal {
    /// SIGHUP.
    Hup,
    /// SIGUSR1.
    Usr1,
    /// SIGUSR2.
    Usr2,
    /// SIGCONT.
    Cont,
    /// SIGALRM.
    Alrm,
}

impl NudgeSignal {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Hup, Self::Usr1, Self::Usr2, Self::Cont, Self::Alrm];

    /// Its name, as in the fleet file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hup => "SIGHUP",
            Self::Usr1 => "SIGUSR1",
            Self::Usr2 => "SIGUSR2",
            Self::Cont => "SIGCONT",
            Self::Alrm => "SIGALRM",
        }
    }

    /// Its number on Linux (x86, ARM, RISC-V; see signal(7)).
    pub const fn number(self) -> i32 {
        match self {
            Self::Hup => 1,
            Self::Usr1 => 10,
            Self::Usr2 => 12,
            Self::Cont => 18,
            Self::Alrm => 14,
        }
    }
}

/// When a worker counts as cut off from its work, and the gentle remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryGap {
    /// The queue whose head has to move.
    pub flow: Flow,
    /// With work waiting and none taken for this long, nothing reaches it.
    pub not_draining_for: Duration,
    /// A no-op task through the real queue, for lanes.
    pub canary: Option<Canary>,
    /// What is rebuilt before it is restarted.
    pub repipe: Option<Repipe>,
}

/// The work that has to flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flow {
    /// A Redis list that the worker takes from, at whichever end its producers do not push.
    Queue {
        /// Its key.
        key: String,
        /// A key that is there while the worker has a job in hand: then a queue that does not drain is no gap.
        busy: Option<String>,
    },
    /// A lane's own queue; a task in flight is progress, too.
    Lane(Mode),
}

/// A no-op task that is sent through a lane from time to time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Canary {
    /// How often.
    pub every: Duration,
    /// How soon its result has to be there while nothing else runs.
    pub within: Duration,
}

/// How a receive pipe is built again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Repipe {
    /// Another unit is the pipe: it is restarted.
    Restart(UnitName),
    /// The worker builds it again on SIGHUP.
    Hangup,
}

/// How a watcher switches an unreachable host on again or off and on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Power {
    /// What the watcher runs on its own host.
    pub command: Command,
    /// How long the node must have been unreachable.
    pub after: Duration,
    /// Whom the watcher has to reach, so that it is not itself the one that is cut off.
    pub witness: Option<Witness>,
}

/// Somebody whose answer shows that a watcher is not cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Witness {
    /// The watcher's own default gateway.
    Gateway,
    /// This address; a TCP port of it, if one is known to answer.
    At(IpAddr, Option<u16>),
}

impl fmt::Display for Witness {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gateway => out.write_str("the watcher's gateway"),
            Self::At(address, None) => write!(out, "{address}"),
            Self::At(address, Some(port)) => write!(out, "{}", SocketAddr::new(*address, *port)),
        }
    }
}
