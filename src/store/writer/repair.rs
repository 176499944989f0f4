//! What the thread does about a database that cannot be used, and what it says about it.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::Writer;
use crate::journal::Priority;
use crate::store::files;
use crate::store::trouble::Trouble;
use crate::vocabulary::{Moment, human};

impl Writer {
    pub(super) fn out_of_trouble(&mut self) {
        if let Some((since, was)) = self.trouble.take() {
            self.shared.say(None);
            let time = human(Moment::now().since(since));
            self.note(
                Priority::Notice,
                format!("the state database is written again after {time} (it was: {was})"),
            );
            self.write();
        }
    }

    pub(super) fn in_trouble(&mut self, trouble: &Trouble) {
        let known = self.trouble.take();
        let mut text = trouble.to_string();
        self.try_again = Instant::now();
        match trouble {
            // SQLite has rolled back and can go on; and a full disk can still be read.
            Trouble::Full(_) => self.try_again += self.settings.retry,
            Trouble::Damaged { .. } => {
                self.db = None;
                match files::set_aside(&self.settings.dir) {
                    Ok(to) => {
                        let to = to.display();
                        text = format!(
                            "the state database was damaged and is now {to} ({text}); a new one was begun, and what \
                             only the old one knew of holds and past relaunches is lost"
                        );
                        self.shared.scar(text.clone());
                    }
                    Err(error) => text = format!("{text}; it could not be moved away either ({error})"),
                }
            }
            Trouble::Moved(_) => self.db = None,
            Trouble::ReadOnly(_)
            | Trouble::Locked(_)
            | Trouble::Io { .. }
            | Trouble::Newer { .. }
            | Trouble::Directory { .. } => {
                // A fresh connection is the way to find out that it is over.
                self.db = None;
                self.try_again += self.settings.retry;
            }
        }
        if known.is_some() {
            // What is fixed at once the first time may not spin when that did not help.
            self.try_again = Instant::now() + self.settings.retry;
        }
        if known.as_ref().is_none_or(|(_, said)| *said != text) {
            self.note(Priority::Error, format!("{text}; meanwhile states and records are kept in memory"));
        }
        self.shared.say(Some(text.clone()));
        self.trouble = Some((known.map_or_else(Moment::now, |(since, _)| since), text));
    }

    pub(super) fn tell_losses(&mut self) {
        let lost = self.shared.dropped.load(Ordering::Relaxed) + self.overflowed;
        // What overflows while the disk is away is told once, when it is back.
        if lost > self.told && self.trouble.is_none() {
            let n = lost - self.told;
            self.told = lost;
            self.note(
                Priority::Error,
                format!("{n} records are lost, because more came than could be kept; the audit's numbers have a gap"),
            );
            self.write();
        }
    }

    /// The journal's troubles belong into the audit, which is where one looks when the journal has a hole.
    pub(super) fn watch_journal(&mut self) {
        let now = self.shared.journal.as_ref().and_then(|journal| journal.degraded());
        let text = match (&self.journal, &now) {
            (None, Some(text)) => Some(text.clone()),
            (Some(_), None) => Some("journald follows again".to_owned()),
            (None, None) | (Some(_), Some(_)) => None,
        };
        self.journal = now;
        if let Some(text) = text {
            self.note(Priority::Warning, text);
            self.write();
        }
    }
}
