//! A task that does nothing, to see whether tasks arrive. A lane answers it itself: it runs nothing for it, so anybody
//! may send one, signed or not, and its name is in no catalog.

use std::time::Duration;

use super::error::QueueError;
use super::front::Front;
use super::keys::QueueName;
pub use crate::vocabulary::CANARY_ID;
use crate::vocabulary::{NodeName, TaskId};

/// What a canary asks for.
pub const CANARY: &str = "keyholder.canary";

/// A canary that is not sent yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CanaryTask {
    /// Its id.
    pub id: String,
    /// Its bytes.
    pub raw: Vec<u8>,
}

impl CanaryTask {
    /// A new one, from this node. `None` if the kernel has no random numbers.
    pub fn new(from: &NodeName) -> Option<Self> {
        let now = jiff::Timestamp::now();
        // It says when it was made, so that whoever looks for its traces knows from when on to look.
        let made_ms = now.as_millisecond().try_into().unwrap_or_default();
        let id = format!("{CANARY_ID}{}", TaskId::fresh(made_ms).ok()?.as_str());
        let at = format!("{now:.3}");
        let task = serde_json::json!({
            "id": id, "action": CANARY, "params": {}, "by": format!("keyholder@{from}"), "issued_at": at,
        });
        Some(Self { raw: task.to_string().into_bytes(), id })
    }
}

/// Sends one canary through a queue and waits for its answer; `None` if there is none within that time, and then it is
/// still in the queue. Its id can be proved afterwards, like that of any task.
///
/// # Errors
/// Any [`QueueError`], and then nothing is known.
pub async fn canary_once(
    url: &str,
    queue: &QueueName,
    from: &NodeName,
    within: Duration,
) -> Result<(String, Option<Vec<u8>>), QueueError> {
    let mut front = Front::connect(url).await?;
    let Some(bird) = CanaryTask::new(from) else {
        return Err(QueueError::Unreachable { url: super::error::mask(url), why: "no random id".to_owned() });
    };
    front.push(queue, &bird.raw).await?;
    let answer = front.wait(queue, &bird.id, &bird.raw, within, |_| {}).await?;
    Ok((bird.id, answer))
}
