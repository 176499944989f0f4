//! Results that the ledger could not take, as on a full disk: they stay here until it can. What a command did is known then, and
//! to say that its lane died while it ran would not be true.

use super::ledger::{Begun, Known, LedgerError};
use super::result::{Output, TaskResult};
use super::shared::Shared;

/// What is said of a result whose output had no room.
const DROPPED: &str = "its output was not kept: the lane's ledger had no room for it";

/// A result in memory.
#[derive(Debug, Clone)]
pub(super) struct Unstored {
    begun: Begun,
    result: TaskResult,
}

impl Shared {
    /// Takes a result down; without the output if there is no room for that, and in memory if there is no room at all.
    ///
    /// # Errors
    /// As [`Ledger::finish`](super::ledger::Ledger::finish); the result is not lost then.
    pub(super) fn store(&self, hash: &str, begun: &Begun, result: &TaskResult) -> Result<(), LedgerError> {
        let Err(full) = self.ledger.finish(hash, begun, &self.json(result)) else { return Ok(()) };
        tracing::warn!(%full, id = begun.id, "a result was not taken down in full");
        self.ledger.finish(hash, begun, &self.json(&slim(result))).inspect_err(|_| {
            let unstored = Unstored { begun: begun.clone(), result: result.clone() };
            self.unstored.borrow_mut().insert(hash.to_owned(), unstored);
        })
    }

    /// Takes down what could not be taken down before.
    ///
    /// # Errors
    /// As [`store`](Self::store).
    pub(super) fn store_again(&self) -> Result<(), LedgerError> {
        loop {
            let next = self.unstored.borrow_mut().pop_first();
            let Some((hash, Unstored { begun, result })) = next else { return Ok(()) };
            self.store(&hash, &begun, &result)?;
        }
    }

    /// What is known of a task, here and in the ledger.
    ///
    /// # Errors
    /// As [`Ledger::known`](super::ledger::Ledger::known).
    pub(super) fn known(&self, hash: &str) -> Result<Known, LedgerError> {
        if let Some(Unstored { begun, result }) = self.unstored.borrow().get(hash) {
            return Ok(Known::Finished { id: begun.id.clone(), result: Some(self.json(result)) });
        }
        self.ledger.known(hash)
    }
}

/// The same verdict without what the command wrote.
fn slim(result: &TaskResult) -> TaskResult {
    let mut slim = result.clone();
    if let Some(ran) = &mut slim.ran {
        for output in [&mut ran.stdout, &mut ran.stderr] {
            *output = Output { omitted: output.bytes(), ..Output::default() };
        }
        slim.note = Some(slim.note.map_or_else(|| DROPPED.to_owned(), |note| format!("{note}; {DROPPED}")));
    }
    slim
}
