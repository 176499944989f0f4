//! The door under test: real TLS over loopback, a small inbox behind it.

mod authority;
mod clients;
mod flood;
mod follow;
mod hostile;
mod house;
mod keys;
mod orders;
mod records;
mod strangers;
mod streams;
mod supervisor;
