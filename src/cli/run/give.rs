//! Giving a task to a lane, and waiting for what comes of it.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};

use super::approve::Approving;
use super::plan::Checked;
use crate::catalog::Mode;
use crate::fleet::Fleet;
use crate::lane::approval::APPROVED_FOR;
use crate::lane::{Context, Signer, SignerError, Task, TaskResult};
use crate::peer::identity::IdentityError;
use crate::queue::Front;
use crate::vocabulary::{TaskId, human, printable};

/// How much of who asks and why fits into a task, in bytes ([`crate::lane::Task`]).
const MAX_BY: usize = 200;

/// Who gives tasks.
#[derive(Debug)]
pub(super) struct Giver {
    signer: Option<(Signer, String)>,
    approving: Option<Approving>,
    by: String,
}

impl Giver {
    /// With the key at `path`. Without one only tasks can be given that need no signature.
    ///
    /// # Errors
    /// A key that cannot be used or that no lane would believe, or none where one is needed.
    pub(super) fn new(
        path: &Path,
        by: String,
        fleet: &Fleet,
        steps: &[Checked],
        approving: Option<Approving>,
    ) -> anyhow::Result<Self> {
        let signer = match Signer::load(path) {
            Ok(signer) => {
                let name = signer.name(&fleet.task_keys)?.to_owned();
                Some((signer, name))
            }
            Err(SignerError::File { source: IdentityError::Missing(_), .. })
                if !steps.iter().any(|step| needs(step, fleet)) =>
            {
                None
            }
            Err(error) => return Err(error.into()),
        };
        let end = by.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= MAX_BY).last();
        Ok(Self { signer, approving, by: by.get(..end.unwrap_or(0)).unwrap_or_default().to_owned() })
    }

    /// A task's bytes for the lane that it goes to.
    pub(super) fn write(&self, step: &Checked, id: &TaskId) -> anyhow::Result<Vec<u8>> {
        let task = Task {
            id: id.to_string(),
            action: step.action.to_string(),
            params: step.params.clone(),
            by: self.by.clone(),
            issued_at: format!("{:.3}", jiff::Timestamp::now()),
        };
        let json = serde_json::to_string(&task)?;
        let Some((signer, name)) = &self.signer else { return Ok(json.into_bytes()) };
        let context = Context { node: &step.node, lane: step.lane };
        let mut envelope = signer.sign(json, name, &context);
        if let (true, Some(Approving { approver, name })) = (step.approval, &self.approving) {
            let now = (jiff::Timestamp::now(), APPROVED_FOR);
            envelope = approver.approve(envelope, name, &context, now);
        }
        Ok(serde_json::to_vec(&envelope)?)
    }
}

fn needs(step: &Checked, fleet: &Fleet) -> bool {
    let unsigned = fleet.nodes.get(&step.node).is_some_and(|node| node.insecure_unsigned_write);
    // Only what is signed can be approved.
    step.approval
        || match step.lane {
            Mode::Write => !unsigned,
            Mode::Read => false,
        }
}

/// An id for a task that is given now.
pub(super) fn id() -> anyhow::Result<TaskId> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Ok(TaskId::fresh(now.as_millis().try_into().unwrap_or(u64::MAX))?)
}

/// Waits for a result. Somebody at a terminal sees that it goes on.
///
/// # Errors
/// The server, or a result that is none.
pub(super) async fn wait(
    front: &mut Front,
    step: &Checked,
    (id, task): (&TaskId, &[u8]),
    time: Duration,
    quiet: bool,
) -> anyhow::Result<Option<TaskResult>> {
    let shown = !quiet && io::stderr().is_terminal();
    let mut drawn = Duration::ZERO;
    let queue = step.queue();
    let raw = front
        .wait(&queue, id.as_str(), task, time, |passed| {
            // Nothing for what is over at once; then four times a second.
            if shown && passed.saturating_sub(drawn) >= Duration::from_millis(250) {
                drawn = passed;
                let secs = passed.as_secs();
                let _ = write!(
                    io::stderr(),
                    "\r{} on {}: {secs} s in the {} lane …\x1b[K",
                    step.action,
                    step.node,
                    step.lane
                );
            }
        })
        .await;
    if !drawn.is_zero() {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
    let raw = raw.with_context(|| format!("task {id} was given, and what came of it could not be asked"))?;
    let Some(raw) = raw else { return Ok(None) };
    let result: TaskResult = serde_json::from_slice(&raw).with_context(|| {
        format!("the result of {id} cannot be parsed: does the lane of {} run another version?", step.node)
    })?;
    // Whoever can write to Redis can put another task's result there.
    if (&result.node, result.lane) != (&step.node, step.lane)
        || result.id != id.as_str() && !result.id.starts_with("sha256:")
    {
        bail!(
            "the result of task {id} in Redis is that of task {} of the {} lane of {}: somebody writes results there who is \
             no lane; ask the journal: keyholder prove {id} --node {}",
            printable(&result.id),
            result.lane,
            result.node,
            step.node
        );
    }
    Ok(Some(result))
}

/// What to say when nobody has answered.
pub(super) fn unanswered(step: &Checked, id: &TaskId, time: Duration) -> String {
    format!(
        "task {id}: no result within {}; it stays in the {} lane of {} and is not taken back. See what it waits for: keyholder \
         queue {}",
        human(time),
        step.lane,
        step.node,
        step.node
    )
}
