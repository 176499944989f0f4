//! What the modules and libraries under the supervisor warn about becomes evidence, too, instead of vanishing.

use std::fmt::{self, Write as _};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::set_global_default;
use tracing::{Event as Warning, Level, Subscriber};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

use super::{Event, Priority, Record, Recorder};
use crate::vocabulary::{clipped, printable};

/// The longest text of one warning, in characters.
const LONGEST: usize = 500;

/// Takes warnings and errors of `tracing` down from here on, in the whole process. Recording never blocks. A second call
/// changes nothing.
pub fn take_warnings(recorder: Recorder) {
    // It fails only if somebody was first, and then warnings are taken down already.
    let _ = set_global_default(Registry::default().with(Bridge(recorder).with_filter(LevelFilter::WARN)));
}

struct Bridge(Recorder);

impl<S: Subscriber> Layer<S> for Bridge {
    fn on_event(&self, warning: &Warning<'_>, _: Context<'_, S>) {
        let mut text = Text(String::new());
        warning.record(&mut text);
        let metadata = warning.metadata();
        let priority = if *metadata.level() == Level::ERROR { Priority::Error } else { Priority::Warning };
        let text = clipped(&printable(&text.0), LONGEST).into_owned();
        self.0.record(Record::local(Event::Degraded, priority, metadata.target(), text));
    }
}

/// The message and the fields of a warning in one line.
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " ({name}: {value:?})"),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use tracing::subscriber::with_default;

    use super::*;

    #[test]
    fn warnings_become_records_and_chatter_does_not() {
        let (to, from) = sync_channel(8);
        let layer = Bridge(Recorder::new(to)).with_filter(LevelFilter::WARN);
        with_default(Registry::default().with(layer), || {
            tracing::info!("chatter");
            tracing::warn!(unit = "x\u{1b}[31m.service", "it is odd");
        });
        let record = from.try_recv().unwrap();
        assert_eq!((record.event, record.priority), (Event::Degraded, Priority::Warning));
        assert!(record.text.starts_with("it is odd (unit: "), "{}", record.text);
        assert!(!record.text.contains('\u{1b}'));
        assert!(from.try_recv().is_err());
    }
}
