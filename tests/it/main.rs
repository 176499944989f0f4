//! Integration tests.

mod door;
