//! Integration tests.

mod systemd;
