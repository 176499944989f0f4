//! Programs of the tests' own.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes an executable file by way of a child. A descriptor of ours that is open for writing is for a moment in every child
/// that another test starts meanwhile, and as long as somebody has one the kernel runs no such file ("Text file busy").
pub(crate) fn write(path: &Path, text: &str) {
    let mut child = Command::new("/bin/sh")
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}
