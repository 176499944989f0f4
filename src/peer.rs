//! The door: the peer protocol `keyholder/1`, both of its sides.
//!
//! [`listener`] takes connections that PID 1 holds open, [`tls`] decides by key who is behind one, `session` speaks
//! with them, [`admit`] decides what they may ask and puts it on the [`inbox`]. [`watch`] is the other side: it follows
//! the peers that this node watches.

pub mod admit;
pub mod bounds;
mod channel;
pub mod client;
pub mod codec;
mod feed;
mod gate;
pub mod identity;
pub mod inbox;
pub mod listener;
mod orders;
pub mod reach;
mod refusals;
mod replay;
mod session;
mod socket;
pub mod tls;
pub mod watch;
pub mod wire;
