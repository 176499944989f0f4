//! What things are called in Redis.

use std::fmt;
use std::str::FromStr;

use crate::vocabulary::NodeName;

/// A queue's name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{given:?} is not a queue's name: letters, digits, '-', '_', '.' and ':', at most 200; correct MAINT_QUEUE"
)]
pub struct QueueNameError {
    given: String,
}

/// The list that producers push tasks to. No braces: they would break the hash tag of the keys beside it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueName(String);

impl QueueName {
    /// Where what changes something waits: `tasks:maintenance:<node>`.
    pub fn write(node: &NodeName) -> Self {
        Self(format!("tasks:maintenance:{node}"))
    }

    /// Where what only reads waits: `tasks:maintenance:<node>:read`.
    pub fn read(node: &NodeName) -> Self {
        Self(format!("tasks:maintenance:{node}:read"))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for QueueName {
    type Err = QueueNameError;

    fn from_str(text: &str) -> Result<Self, QueueNameError> {
        let fit = (1..=200).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.:".contains(&b));
        if fit {
            Ok(Self(text.to_owned()))
        } else {
            Err(QueueNameError { given: text.chars().take(80).collect() })
        }
    }
}

/// The keys around one queue `Q`. Each is `{Q}:…`: the whole name is the hash tag, so all of them are in one slot
/// with `Q` itself and a script may use them together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    /// `Q`, a list: producers LPUSH, the oldest is on the right.
    pub queue: String,
    /// A list of the tasks that a lane has taken and not answered yet, byte for byte as they were; newest on the left.
    pub in_flight: String,
    /// A hash: SHA-256 of a task's bytes in hex -> when and by whom it was begun (JSON).
    pub begun: String,
    /// A list of the tasks that cannot be done (JSON), newest on the left.
    pub dead: String,
    /// Which lane owns the queue: its id, a space, and words for people. It expires.
    pub owner: String,
    /// A list of all results (JSON), newest on the left, for who collects them.
    pub results: String,
}

impl Keys {
    /// The keys around `queue`.
    pub fn of(queue: &QueueName) -> Self {
        let key = |what: &str| format!("{{{queue}}}:{what}");
        Self {
            queue: queue.to_string(),
            in_flight: key("inflight"),
            begun: key("begun"),
            dead: key("dead"),
            owner: key("owner"),
            results: key("results"),
        }
    }

    /// Where the result of task `id` is, a string (JSON) that expires.
    pub fn result(&self, id: &str) -> String {
        format!("{{{}}}:result:{id}", self.queue)
    }

    /// Where the seal of that result is: by it the lane knows what it answered itself. A string that expires with it.
    pub fn seal(&self, id: &str) -> String {
        format!("{{{}}}:seal:{id}", self.queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_queue_is_the_hash_tag() {
        let node = "mars".parse().unwrap();
        let keys = Keys::of(&QueueName::read(&node));
        assert_eq!(keys.queue, "tasks:maintenance:mars:read");
        assert_eq!(keys.in_flight, "{tasks:maintenance:mars:read}:inflight");
        assert_eq!(keys.result("7"), "{tasks:maintenance:mars:read}:result:7");
        assert_eq!(QueueName::write(&node).as_str(), "tasks:maintenance:mars");
        for bad in ["", "a{b}", "a b", "ä", "a\n", "*"] {
            assert!(bad.parse::<QueueName>().is_err(), "{bad:?}");
        }
    }
}
