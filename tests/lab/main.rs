//! Lab scenarios.
