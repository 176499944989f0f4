//! Integration tests.

mod fleet;
