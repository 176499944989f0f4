//! Acts short of a relaunch, within a session.

use zbus::Message;

use super::super::ActError;
use super::super::act::{Act, Next, OperationOrder};
use super::*;

impl Session {
    pub(super) fn act(&mut self, hub: &Hub, wish: OperationOrder) {
        let act = Act::new(wish);
        let known = hub.table.watches(&act.unit);
        // A worker's pipe is restarted and stopped, so is our own unit for a rehearsal, and a command's unit is new; everything
        // else is for workers alone.
        if !known && !act.restarts() && !act.stops_another() && !act.holds() {
            return act.refuse(ActError::NotWatched);
        }
        let id = self.next_order;
        self.next_order += 1;
        if act.restarts() {
            self.send(message::read(&act.unit), Some(Call::ActRead(id)));
            self.send(message::reset_failed(&act.unit), None);
        }
        match act.call() {
            Ok(call) => {
                self.send(Ok(call), Some(Call::Act(id)));
                self.acts.push((id, act));
            }
            Err(error) => act.refuse(ActError::Refused(format!("it cannot be said over D-Bus: {error}"))),
        }
    }

    /// Lets every act take its next step.
    pub(super) fn each_act(&mut self, mut step: impl FnMut(u64, &mut Act) -> Next) {
        if self.acts.is_empty() {
            return;
        }
        let (mut looks, mut over) = (Vec::new(), Vec::new());
        self.acts.retain_mut(|(id, act)| match step(*id, act) {
            Next::Wait => true,
            Next::Look => {
                looks.push((*id, message::read(&act.unit)));
                true
            }
            Next::Finished => {
                if act.holds() {
                    over.push(message::unpin(&act.unit));
                }
                false
            }
        });
        for (id, look) in looks {
            self.send(look, Some(Call::ActRead(id)));
        }
        for unpin in over {
            self.send(unpin, None);
        }
    }

    pub(super) fn act_answered(&mut self, own: u64, message: &Message, failed: bool) {
        self.each_act(|id, act| match id == own {
            true if failed => act.refused(message),
            true => act.accepted(message),
            false => Next::Wait,
        });
    }

    pub(super) fn act_read(&mut self, own: u64, message: &Message, failed: bool) {
        let mut raw = Raw::default();
        // Another look follows, or the deadline.
        if failed || message::all(message, &mut raw).is_err() || !raw.complete() {
            return;
        }
        self.each_act(|id, act| if id == own { act.looked(std::mem::take(&mut raw)) } else { Next::Wait });
    }
}
