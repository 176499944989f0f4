//! What takes the whole machine: `tests/run` runs these one after the other, before those that run side by side.

mod calm;
mod demo;
mod load;
mod soak;
