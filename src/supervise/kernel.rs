//! What the supervisor has to ask of the kernel in `unsafe` words; the one place with any.
//!
//! Two things leave no other way. systemd passes open descriptors as bare numbers, and turning a number into an owned
//! socket is a promise that only the protocol (`sd_listen_fds(3)`) can give, not the type system. And memory can be given
//! back only by its address.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::ptr::NonNull;

use nix::sys::mman::{MmapAdvise, madvise};
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

/// Ends this process at once, as SIGKILL does: nothing is said, nothing is put in order.
pub fn die() -> ! {
    // If that is refused there is another way to the same end.
    let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGKILL);
    std::process::abort()
}

/// Lets go of the code that only the start or the last act needed: the pages of programs and libraries that are mapped into this process
/// leave its resident set, and what is needed again comes back from the page cache, a minor fault per 64 KiB. Nothing
/// depends on it, so a kernel that refuses is left alone.
pub fn let_go_of_idle_code() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for (start, length) in maps.lines().filter_map(code) {
        let Some(address) = NonNull::new(start as *mut c_void) else { continue };
        // SAFETY: `code` lets pass only private mappings of files that were never writable. Such a page holds what is in the
        // file and nothing else, so dropping it loses nothing: the next access reads it again.
        let _ = unsafe { madvise(address, length, MmapAdvise::MADV_DONTNEED) };
    }
}

/// Where a line of `/proc/self/maps` has code that was mapped from a file: its start and its length. That is a program's
/// executable segment, and its constants: the read-only segment with which the file begins. What is read-only further on
/// was written by the loader first (RELRO) and is no business of ours.
fn code(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (range, rights, offset) = (fields.next()?, fields.next()?, fields.next()?);
    let file = fields.nth(2)?;
    let begins = offset.bytes().all(|digit| digit == b'0');
    if !(rights == "r-xp" || rights == "r--p" && begins) || !file.starts_with('/') {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    Some((start, end.checked_sub(start)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_from_files_is_let_go_of() {
        assert_eq!(code("1000-3000 r-xp 00002000 08:01 17 /usr/bin/keyholder"), Some((0x1000, 0x2000)));
        assert_eq!(code("1000-3000 r--p 00000000 08:01 17 /usr/bin/keyholder"), Some((0x1000, 0x2000)));
        for line in [
            "1000-3000 r--p 00004000 08:01 17 /usr/bin/keyholder",
            "1000-3000 rw-p 00000000 08:01 17 /usr/bin/keyholder",
            "1000-3000 r-xs 00000000 08:01 17 /usr/bin/keyholder",
            "1000-3000 r-xp 00000000 00:00 0 [vdso]",
            "1000-3000 r-xp 00000000 00:00 0",
            "",
        ] {
            assert_eq!(code(line), None, "{line}");
        }
    }

    #[test]
    fn the_process_runs_on_without_its_idle_code() {
        let resident = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find(|line| line.starts_with("RssFile:")).unwrap().to_owned();
            line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
        };
        let before = resident();
        let_go_of_idle_code();
        assert!(resident() < before);
    }
}
