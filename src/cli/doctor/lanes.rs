//! Tasks that wait where nobody serves: somebody has routed them to a lane that is not up.

use std::time::Duration;

use tokio::time::timeout;

use super::finding::Finding;
use crate::catalog::Mode;
use crate::fleet::Fleet;
use crate::queue::{Front, QueueError, QueueName};
use crate::vocabulary::NodeName;

/// How long all questions together may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// Looks at both queues of every node that is not disabled.
pub(super) fn look(fleet: &Fleet, url: &str) -> Vec<Finding> {
    let asked = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map(|runtime| runtime.block_on(async { timeout(DEADLINE, ask(fleet, url)).await }));
    match asked {
        Ok(Ok(Ok(queues))) => {
            queues.iter().filter_map(|(node, lane, seen)| judge(node, *lane, *seen)).collect()
        }
        // The server is well, and a key of a queue is not, or may not be read.
        Ok(Ok(Err(error @ (QueueError::Refused { .. } | QueueError::Denied { .. })))) => {
            vec![Finding::fail("lanes", error.to_string())]
        }
        // That Redis cannot be asked is a finding already.
        Ok(Ok(Err(_)) | Err(_)) | Err(_) => Vec::new(),
    }
}

type Queues = Vec<(NodeName, Mode, (u64, bool))>;

async fn ask(fleet: &Fleet, url: &str) -> Result<Queues, QueueError> {
    let front = Front::connect(url).await?;
    let mut queues = Vec::new();
    for (node, _) in fleet.nodes.iter().filter(|(_, node)| !node.disabled) {
        for (lane, queue) in [(Mode::Write, QueueName::write(node)), (Mode::Read, QueueName::read(node))] {
            queues.push((node.clone(), lane, front.served(&queue).await?));
        }
    }
    Ok(queues)
}

/// What there is to say about a queue with that many tasks and with or without an owner.
fn judge(node: &NodeName, lane: Mode, (waiting, served): (u64, bool)) -> Option<Finding> {
    match (waiting, served) {
        (0, _) => None,
        (_, true) => None,
        (waiting, false) => {
            let tasks =
                if waiting == 1 { "1 task waits".to_owned() } else { format!("{waiting} tasks wait") };
            let way_out = match lane {
                Mode::Write => format!("keyholder explain {node}/write"),
                Mode::Read => {
                    format!(
                        "start its read lane, or set lanes.read_routing to false on every node (keyholder queue {node})"
                    )
                }
            };
            let text = format!("{tasks} for the {lane} lane of {node}, and nobody serves it");
            Some(Finding::fail("lanes", text).way_out(way_out))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::Level;

    #[test]
    fn only_tasks_that_nobody_serves_are_a_finding() {
        let node = "mars".parse().unwrap();
        for well in [(0, false), (0, true), (9, true)] {
            assert_eq!(judge(&node, Mode::Read, well), None);
        }
        let found = judge(&node, Mode::Read, (2, false)).unwrap();
        assert_eq!(
            (found.level, found.text.as_str()),
            (Level::Fail, "2 tasks wait for the read lane of mars, and nobody serves it")
        );
    }
}
