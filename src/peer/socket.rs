//! What is set on every TCP socket of the protocol, whichever side it is on.

use std::os::fd::AsFd;

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

/// How much of a frame one packet carries, in bytes. With the headers of IP and TCP it is at most as long as what every link
/// must carry for IPv6, so that a link in the middle that silently drops what is longer does not hold up a report.
const SEGMENT: u32 = 1220;
/// How long such a packet is over IPv4, in bytes.
pub(super) const PACKET: u32 = SEGMENT + 20 + 20;

/// Bounds the packets of a connection in both directions. It counts for what is connected or accepted afterwards, and one side
/// is enough: it announces it to the other.
pub(super) fn small_packets(socket: &impl AsFd) {
    // A kernel that refuses sends packets as long as the interface takes, as without this.
    let _ = setsockopt(socket, sockopt::TcpMaxSeg, &SEGMENT);
}

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

#[cfg(test)]
mod tests {
    use nix::sys::socket::getsockopt;
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    /// The segment sizes of both ends of a connection.
    async fn segments(client: bool, server: bool) -> [u32; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        if client {
            small_packets(&socket);
        }
        if server {
            small_packets(&listener);
        }
        let connected = socket.connect(listener.local_addr().unwrap()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        [&connected, &accepted].map(|end| getsockopt(end, sockopt::TcpMaxSeg).unwrap())
    }

    #[tokio::test]
    async fn one_side_is_enough_to_keep_the_packets_of_both_small() {
        assert!(segments(false, false).await.iter().all(|size| *size > 10_000), "loopback takes large ones");
        for (client, server) in [(true, false), (false, true), (true, true)] {
            let sizes = segments(client, server).await;
            assert!(sizes.iter().all(|size| *size <= SEGMENT), "{sizes:?}");
        }
    }
}
