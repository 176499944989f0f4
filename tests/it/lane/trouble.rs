//! What becomes of tasks, good and bad.
