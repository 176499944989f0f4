//! The way into journald.
//!
//! `tracing-journald` blocks while journald does not read and throws its errors away. So it is used as the subscriber of
//! one thread only, the one that runs [`emit`](super::emit), and its constructor, which does report errors, is the
//! probe before each batch.

use std::io;

use tracing::dispatcher::{Dispatch, with_default};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Registry;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;

use super::event::Priority;
use super::sink::{NumberedRecord, Sink};
use crate::vocabulary::{NodeName, printable};

/// Nobody else's events may come this way: the filter asks for exactly this target, which also tells every other
/// call site of `tracing` in the process (zbus has many) once and for all that nobody listens.
const TARGET: &str = "keyholder";

/// journald through its native protocol.
pub(super) struct Journald {
    node: NodeName,
    dispatch: Option<Dispatch>,
}

impl Journald {
    /// Not connected yet: a journald that comes up later is found by the first [`Sink::ready`] after it.
    pub(super) fn new(node: NodeName) -> Self {
        Self { node, dispatch: None }
    }
}

impl Sink for Journald {
    fn ready(&mut self) -> io::Result<()> {
        let layer = tracing_journald::layer()?;
        if self.dispatch.is_none() {
            let layer = layer.with_field_prefix(None).with_syslog_identifier("keyholder".to_owned());
            let ours = filter_fn(|meta| meta.target() == TARGET).with_max_level_hint(LevelFilter::DEBUG);
            self.dispatch = Some(Dispatch::new(Registry::default().with(layer).with(ours)));
        }
        Ok(())
    }

    fn write(&mut self, line: &NumberedRecord) {
        if let Some(dispatch) = &self.dispatch {
            with_default(dispatch, || event(line, &self.node));
        }
    }
}

/// A record as one journal entry. An empty `Option` leaves its field out; the node's own name makes a journal that
/// was collected from several hosts readable.
fn event(line: &NumberedRecord, node: &NodeName) {
    let record = &line.record;
    let pin = record.pin.map(|pin| pin.to_string());
    let req_id = record.req_id.map(|id| id.to_string());
    // One entry is one line, whatever a peer wrote into its reason.
    let (text, by, subject) = (printable(&record.text), printable(&record.by), printable(&record.subject));
    macro_rules! event {
        ($level:ident) => {
            tracing::event!(
                target: TARGET,
                tracing::Level::$level,
                MESSAGE_ID = record.event.message_id(),
                KEYHOLDER_EVENT = record.event.name(),
                KEYHOLDER_NODE = node.as_str(),
                KEYHOLDER_BY = &*by,
                KEYHOLDER_SUBJECT = (!subject.is_empty()).then_some(&*subject),
                KEYHOLDER_VERB = record.verb,
                KEYHOLDER_REQ_ID = req_id.as_deref(),
                KEYHOLDER_PIN = pin.as_deref(),
                KEYHOLDER_SEQ = line.seq,
                message = &*text,
            )
        };
    }
    // The levels that tracing-journald turns into these priorities: INFO is 5, DEBUG is 6.
    match record.priority {
        Priority::Error => event!(ERROR),
        Priority::Warning => event!(WARN),
        Priority::Notice => event!(INFO),
        Priority::Info => event!(DEBUG),
    }
}
