//! Takes over the sockets that PID 1 holds for us.
//!
//! The one place with `unsafe`: systemd passes open descriptors as bare numbers, and turning a number into an owned
//! socket is a promise that only the protocol (`sd_listen_fds(3)`) can give, not the type system.
#![allow(unsafe_code)]

use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixListener;

use nix::sys::socket::{AddressFamily, SockaddrLike, SockaddrStorage, getsockname};

use crate::peer::listener::Listeners;

/// Why the sockets could not be taken over.
#[derive(Debug, thiserror::Error)]
pub enum InheritError {
    /// The environment that systemd sets is broken.
    #[error("cannot read which sockets systemd passed (LISTEN_FDS)")]
    Environment(#[source] std::io::Error),
    /// A descriptor that is no listening socket of a kind we serve.
    #[error(
        "systemd passed descriptor {fd}, which is neither a TCP nor a unix socket; see ListenStream= in keyholder.socket"
    )]
    Kind {
        /// Its number.
        fd: i32,
    },
    /// A socket that cannot be used.
    #[error("socket {fd} from systemd cannot be used")]
    Socket {
        /// Its number.
        fd: i32,
        /// What the kernel says.
        #[source]
        source: std::io::Error,
    },
}

/// Takes over what systemd passed to this process; nothing if it was not started through the socket unit. Sockets are
/// told apart by their family, so that their order in the unit does not matter. Call it once, before anything else
/// opens descriptors.
pub fn sockets() -> Result<Listeners, InheritError> {
    let mut sockets = Listeners::default();
    for fd in sd_notify::listen_fds().map_err(InheritError::Environment)? {
        // SAFETY: the numbers come from LISTEN_FDS with our own pid in LISTEN_PID: systemd opened them for this
        // process, nobody else in it knows of them, and this runs once.
        let owned = unsafe { OwnedFd::from_raw_fd(fd) };
        let broken = |source: std::io::Error| InheritError::Socket { fd, source };
        let address: SockaddrStorage =
            getsockname(owned.as_fd().as_raw_fd()).map_err(|errno| broken(errno.into()))?;
        match address.family() {
            Some(AddressFamily::Inet | AddressFamily::Inet6) => {
                sockets.tcp.push(TcpListener::from(owned));
            }
            Some(AddressFamily::Unix) => {
                sockets.unix.push(UnixListener::from(owned));
            }
            _ => return Err(InheritError::Kind { fd }),
        }
    }
    Ok(sockets)
}
