//! What is set on every TCP socket of the protocol, whichever side it is on.

use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::TcpStream;

/// Idle for this long, then the kernel asks whether the other side is still there, in seconds.
const KEEPALIVE_IDLE: u32 = 5;
/// How often it asks then, in seconds.
const KEEPALIVE_INTERVAL: u32 = 2;
/// How many unanswered questions end the connection.
const KEEPALIVE_COUNT: u32 = 3;
/// How long what was sent may stay unacknowledged, in milliseconds; then the connection is over. Longer than the 5 s that
/// a frame may take, because the kernel also counts a reader that is there and does not read, and of that one the audit
/// trail should say so.
const USER_TIMEOUT: u32 = 8_000;
/// What the kernel may hold for a reader that does not read, in bytes (it doubles this for its bookkeeping).
const SEND_BUFFER: usize = 64 * 1024;

/// Small frames go out at once, and a host that vanished is noticed.
pub(super) fn tune(stream: &TcpStream) {
    // None of these can fail on a connected socket but by its being gone, and the next read says that.
    let _ = stream.set_nodelay(true);
    let _ = setsockopt(stream, sockopt::KeepAlive, &true);
    let _ = setsockopt(stream, sockopt::TcpKeepIdle, &KEEPALIVE_IDLE);
    let _ = setsockopt(stream, sockopt::TcpKeepInterval, &KEEPALIVE_INTERVAL);
    let _ = setsockopt(stream, sockopt::TcpKeepCount, &KEEPALIVE_COUNT);
    let _ = setsockopt(stream, sockopt::TcpUserTimeout, &USER_TIMEOUT);
    let _ = setsockopt(stream, sockopt::SndBuf, &SEND_BUFFER);
}
