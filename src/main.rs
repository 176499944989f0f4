//! `keyholder`: parse, dispatch, exit code; nothing else.

fn main() {}
