//! What a lane says of itself in a file that whoever looks after it reads. Asking Redis instead would make the supervisor
//! depend on it, and would not tell whether this lane still moves.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{InvocationId, Mode, Moment, NodeName, TaskStatus, printable};

/// The longest such file, in bytes. What is in it is bounded to less.
pub const LANE_STATUS_MAX: usize = 4096;
/// How many of the running tasks are named; the read lane may run more.
pub const LANE_STATUS_TASKS: usize = 8;
/// After how long at most a lane writes its status again, changed or not.
pub const LANE_STATUS_EVERY: Duration = Duration::from_secs(2);
/// The longest text in it, in bytes.
pub const LANE_TEXT_MAX: usize = 400;

/// A lane, by its own word. Its process writes it again at each pass, at most ten times a second, and when what it runs
/// changes. All moments are of this host's kernel; a file of another boot does not exist, because it lies in `/run`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaneStatus {
    /// Which lane.
    pub lane: Mode,
    /// Of which node.
    pub node: NodeName,
    /// Its process.
    pub pid: u32,
    /// The run of its unit, as systemd gave it; none outside systemd.
    pub invocation: Option<InvocationId>,
    /// Whether it has the queue: connected, and its owner.
    pub connected: bool,
    /// Why it has taken no tasks for some seconds; none while it takes them.
    #[serde(default)]
    pub no_tasks: Option<String>,
    /// Which queue it serves.
    pub queue: String,
    /// How many tasks waited there when it last knew, at most some seconds ago; none while it is not connected.
    pub waiting: Option<u64>,
    /// How many tasks it runs.
    pub running: u64,
    /// The oldest of them, at most [`LANE_STATUS_TASKS`], oldest first.
    pub in_flight: Vec<InFlight>,
    /// How many tasks it has answered since its start, the refused ones included.
    pub done: u64,
    /// The last of these.
    pub last: Option<LastTask>,
    /// How often its loop has come round. While a write runs the write lane's loop stands still, rightly.
    pub passes: u64,
    /// When it last did.
    pub pass_at: Moment,
    /// When this was written. A lane that is well writes at least every [`LANE_STATUS_EVERY`], whatever it does.
    pub at: Moment,
}

/// A task that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InFlight {
    /// Its id.
    pub id: String,
    /// Its action.
    pub action: String,
    /// Since when.
    pub since: Moment,
    /// Whether it may be run again if its lane dies in it.
    pub idempotent: bool,
}

/// A task that was answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LastTask {
    /// Its id, or the hash of its bytes.
    pub id: String,
    /// What it asked for, if that could be read. Not necessarily an action that there is.
    pub action: Option<String>,
    /// How it ended.
    pub status: TaskStatus,
    /// When.
    pub at: Moment,
}

impl LaneStatus {
    /// Where the lane of a unit as it is shipped keeps it: its `RuntimeDirectory=`.
    pub fn path(lane: Mode) -> PathBuf {
        PathBuf::from(format!("/run/keyholder-lane-{lane}/{}", Self::FILE))
    }

    /// The file's name.
    pub const FILE: &str = "status.json";

    /// Reads what such a file contains. The lane's user may have written anything into it: what is not exactly this, too
    /// long or not fit for a terminal is not believed at all.
    ///
    /// # Errors
    /// Why it is not believed, in words fit for a terminal.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() > LANE_STATUS_MAX {
            return Err(format!("it has more than {LANE_STATUS_MAX} bytes"));
        }
        let status: Self =
            serde_json::from_slice(bytes).map_err(|error| printable(&error.to_string()).into_owned())?;
        if status.in_flight.len() > LANE_STATUS_TASKS {
            return Err(format!("it names more than {LANE_STATUS_TASKS} tasks"));
        }
        let unfit = |text: &str| text.len() > LANE_TEXT_MAX || printable(text) != text;
        let tasks = status.in_flight.iter().flat_map(|task| [&task.id, &task.action]);
        let last = status.last.iter().flat_map(|last| [Some(&last.id), last.action.as_ref()]).flatten();
        if tasks.chain(last).chain(&status.no_tasks).chain([&status.queue]).any(|text| unfit(text)) {
            return Err("a text in it is too long or not fit for a terminal".to_owned());
        }
        Ok(status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status() -> LaneStatus {
        let task = |n| InFlight {
            id: format!("{n:064}"),
            action: "a".repeat(64),
            since: Moment::from_millis(u64::MAX),
            idempotent: false,
        };
        LaneStatus {
            lane: Mode::Write,
            node: "m".repeat(63).parse().unwrap(),
            pid: u32::MAX,
            invocation: Some(InvocationId::from_bytes([7; 16])),
            connected: true,
            no_tasks: None,
            queue: "q".repeat(200),
            waiting: Some(u64::MAX),
            running: u64::MAX,
            in_flight: (0..LANE_STATUS_TASKS).map(task).collect(),
            done: u64::MAX,
            last: Some(LastTask {
                id: format!("sha256:{}", "0".repeat(64)),
                action: Some("\u{1f511}".repeat(80)),
                status: TaskStatus::Interrupted,
                at: Moment::from_millis(u64::MAX),
            }),
            passes: u64::MAX,
            pass_at: Moment::from_millis(u64::MAX),
            at: Moment::from_millis(u64::MAX),
        }
    }

    #[test]
    fn the_longest_that_a_lane_writes_is_read_back() {
        let json = serde_json::to_vec(&status()).unwrap();
        assert!(json.len() <= LANE_STATUS_MAX, "{}", json.len());
        assert_eq!(LaneStatus::read(&json).unwrap(), status());
    }

    #[test]
    fn nothing_else_is_believed() {
        let with = |change: fn(&mut LaneStatus)| {
            let mut status = status();
            change(&mut status);
            serde_json::to_vec(&status).unwrap()
        };
        let spaced = [serde_json::to_vec(&status()).unwrap(), vec![b' '; LANE_STATUS_MAX]].concat();
        let more = String::from_utf8(with(|_| ())).unwrap().replacen('{', "{\"argv\":[],", 1);
        for bad in [
            with(|status| status.queue = "\x1b[2J".to_owned()),
            with(|status| status.in_flight[3].action = "a\nb".to_owned()),
            with(|status| status.last.as_mut().unwrap().id = "\u{202e}".to_owned()),
            with(|status| status.in_flight.push(status.in_flight[0].clone())),
            with(|status| status.queue = "q".repeat(401)),
            more.into_bytes(),
            spaced,
            b"\xff".to_vec(),
            b"".to_vec(),
            [b"[".repeat(2000)].concat(),
        ] {
            let why = LaneStatus::read(&bad).unwrap_err();
            assert_eq!(printable(&why), why);
        }
    }
}
