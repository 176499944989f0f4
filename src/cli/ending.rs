//! What an error that ends a command means for its exit code.

use super::drill::Misplaced;
use super::exit::Exit;
use super::link::LinkError;
use super::queue::NotRequeued;
use super::run::{NoSuchNode, NotApproved, PlanRefused};
use crate::lane::{LaneError, SignerError};
use crate::peer::wire::Refusal;
use crate::queue::QueueError;

/// The code for an error that ended a command.
pub fn exit(error: &anyhow::Error) -> Exit {
    if let Some(refusal) = error.downcast_ref::<Refusal>() {
        return refusal.code.into();
    }
    if let Some(LaneError::Guard(_)) = error.downcast_ref::<LaneError>() {
        return Exit::Refused;
    }
    if error.is::<Misplaced>() {
        return Exit::Usage;
    }
    if error.is::<NoSuchNode>() {
        return Exit::NoSuch;
    }
    // No task was submitted.
    if error.is::<PlanRefused>()
        || error.is::<SignerError>()
        || error.is::<NotApproved>()
        || error.is::<NotRequeued>()
    {
        return Exit::Refused;
    }
    match error.downcast_ref::<QueueError>() {
        Some(
            QueueError::Late { .. }
            | QueueError::Unreachable { .. }
            | QueueError::NoMaster { .. }
            | QueueError::Loading { .. },
        ) => return Exit::Unreachable,
        Some(
            QueueError::Url { .. }
            | QueueError::TlsFile { .. }
            | QueueError::ClientCertificate { .. }
            | QueueError::Refused { .. }
            | QueueError::Excess { .. }
            | QueueError::Denied { .. }
            | QueueError::Full { .. }
            | QueueError::ReadOnly { .. },
        ) => return Exit::Failed,
        None => {}
    }
    match error.downcast_ref::<LinkError>() {
        Some(LinkError::Refused(refusal)) => refusal.code.into(),
        Some(LinkError::Forbidden { .. }) => Exit::Refused,
        Some(
            LinkError::Absent { .. }
            | LinkError::Silent { .. }
            | LinkError::NoAnswer { .. }
            | LinkError::Closed { .. }
            | LinkError::Garbage { .. }
            | LinkError::TooLong { .. }
            | LinkError::Io { .. },
        ) => Exit::Unreachable,
        Some(LinkError::Random(_) | LinkError::Name(_)) | None => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::wire::RefusalCode;

    #[test]
    fn a_refusal_keeps_its_code_under_any_context() {
        for (code, wanted) in [
            (RefusalCode::Held, Exit::Refused),
            (RefusalCode::UnknownWorker, Exit::NoSuch),
            (RefusalCode::UnknownNode, Exit::NoSuch),
            (RefusalCode::NoAnswer, Exit::Unreachable),
        ] {
            let error = anyhow::Error::new(Refusal::new(code, "no")).context("refused").context("outer");
            assert_eq!(exit(&error), wanted);
        }
        assert_eq!(exit(&anyhow::anyhow!("anything else")), Exit::Failed);
    }
}
