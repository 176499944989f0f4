//! Calling an address, and what it means when that fails: whether the other host said something, whether the fault is on this
//! host or on the way, or whether there was nothing but silence.
//!
//! The kernel gives the same number for different things (`EHOSTUNREACH` is an unanswered ARP request as well as a reject by the
//! other host's own firewall). The error queue of the socket tells who sent the ICMP message.

use std::io::IoSliceMut;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{
    self, AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, SockaddrStorage, recvmsg,
    setsockopt, sockopt,
};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::socket::small_packets;

pub(super) mod local;
pub mod probe;

/// Why a call led nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NoWay {
    /// The host refuses the connection: it is up, and nothing listens there.
    Refused,
    /// The host answers by an ICMP message of its own: it is up, and its firewall rejects the call.
    Rejected(String),
    /// The fault arose on this host, or a firewall on the way said so: it says nothing about the other host.
    CutOff(String),
    /// Nobody answered for it.
    Silent(String),
}

/// An ICMP error that belongs to one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Icmp {
    kind: u8,
    code: u8,
    /// Who sent it; none if the kernel does not say.
    from: Option<IpAddr>,
}

/// Calls an address until `by`; from `from` where this host has that.
pub(super) async fn dial(to: SocketAddr, from: Option<IpAddr>, by: Instant) -> Result<TcpStream, NoWay> {
    let called = call(to, from);
    let lost = lost_here(Instant::now());
    tokio::pin!(called, lost);
    let mut in_vain = None;
    let ended = timeout_at(by, async {
        loop {
            tokio::select! {
                ended = &mut called => return ended,
                seen = &mut lost, if in_vain.is_none() => in_vain = Some(seen),
            }
        }
    });
    let silent = match ended.await {
        Ok(Err(NoWay::Silent(why))) => why,
        Ok(ended) => return ended,
        Err(_) => "no answer in time".to_owned(),
    };
    Err(match local::fault(to.ip()).or_else(|| in_vain.flatten()) {
        Some(fault) => NoWay::CutOff(fault),
        None => NoWay::Silent(silent),
    })
}

/// Looks whether this host's own rules drop what it sends again: a SYN is sent again after one second, and the kernel counts
/// what could not be sent. The time is short, so that other connections are seldom counted with it.
async fn lost_here(began: Instant) -> Option<String> {
    sleep_until(began + Duration::from_millis(900)).await;
    let before = local::sent_in_vain()?;
    sleep_until(began + Duration::from_millis(1300)).await;
    (local::sent_in_vain()? > before)
        .then(|| "packets that this host sends are dropped on this host: look at its firewall".to_owned())
}

async fn call(to: SocketAddr, from: Option<IpAddr>) -> Result<TcpStream, NoWay> {
    let here = |error: Errno| NoWay::CutOff(error.desc().to_owned());
    let bound = from.filter(|from| from.is_ipv4() == to.is_ipv4()).and_then(|from| {
        let socket = stream(to).ok()?;
        socket::bind(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(from, 0))).ok()?;
        Some(socket)
    });
    let socket = match bound {
        Some(socket) => socket,
        None => stream(to).map_err(here)?,
    };
    let begun = socket::connect(socket.as_raw_fd(), &SockaddrStorage::from(to));
    let own = local_address(&socket);
    let stream = TcpStream::from_std(std::net::TcpStream::from(socket))
        .map_err(|error| NoWay::CutOff(error.to_string()))?;
    let (error, at_once) = match begun {
        Ok(()) => (None, true),
        Err(Errno::EINPROGRESS) => {
            stream.writable().await.map_err(|error| NoWay::CutOff(error.to_string()))?;
            let ended = stream.take_error().map_err(|error| NoWay::CutOff(error.to_string()))?;
            (ended.and_then(|error| error.raw_os_error()).map(Errno::from_raw), false)
        }
        Err(error) => (Some(error), true),
    };
    let Some(error) = error else {
        // From here on an ICMP message must not end the connection.
        let _ = told_of_errors(&stream, to, false);
        return Ok(stream);
    };
    Err(meaning(error, at_once, icmp(&stream), to.ip(), own))
}

fn stream(to: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket::socket(family, SockType::Stream, flags, None)?;
    told_of_errors(&socket, to, true)?;
    small_packets(&socket);
    Ok(socket)
}

fn told_of_errors(socket: &impl std::os::fd::AsFd, to: SocketAddr, on: bool) -> Result<(), Errno> {
    if to.is_ipv4() {
        setsockopt(socket, sockopt::Ipv4RecvErr, &on)
    } else {
        setsockopt(socket, sockopt::Ipv6RecvErr, &on)
    }
}

fn local_address(socket: &OwnedFd) -> Option<IpAddr> {
    let name: SockaddrStorage = socket::getsockname(socket.as_raw_fd()).ok()?;
    let four = name.as_sockaddr_in().map(|name| IpAddr::V4(name.ip()));
    four.or_else(|| name.as_sockaddr_in6().map(|name| IpAddr::V6(name.ip())))
}

/// The ICMP message that ended a call, if one did.
fn icmp(socket: &impl AsRawFd) -> Option<Icmp> {
    let (mut data, mut room) = ([0; 256], vec![0; 256]);
    let mut slices = [IoSliceMut::new(&mut data)];
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    let message = recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut slices, Some(&mut room), flags).ok()?;
    message.cmsgs().ok()?.find_map(|control| {
        #[allow(clippy::wildcard_enum_match_arm, reason = "a list of the kernel's that grows")]
        match control {
            ControlMessageOwned::Ipv4RecvErr(error, from)
                if error.ee_origin == nix::libc::SO_EE_ORIGIN_ICMP =>
            {
                let from = from.map(|from| IpAddr::V4(Ipv4Addr::from(u32::from_be(from.sin_addr.s_addr))));
                Some(Icmp { kind: error.ee_type, code: error.ee_code, from })
            }
            ControlMessageOwned::Ipv6RecvErr(error, from)
                if error.ee_origin == nix::libc::SO_EE_ORIGIN_ICMP6 =>
            {
                let from = from.map(|from| IpAddr::V6(Ipv6Addr::from(from.sin6_addr.s6_addr)));
                Some(Icmp { kind: error.ee_type, code: error.ee_code, from })
            }
            _ => None,
        }
    })
}

/// What an error of a call means. `at_once`: the kernel said so before anything was sent.
fn meaning(error: Errno, at_once: bool, icmp: Option<Icmp>, to: IpAddr, own: Option<IpAddr>) -> NoWay {
    let Some(Icmp { kind, code, from }) = icmp else {
        let nobody = error == Errno::ETIMEDOUT
            || (!at_once && [Errno::EHOSTUNREACH, Errno::ENETUNREACH].contains(&error));
        return if [Errno::ECONNREFUSED, Errno::ECONNRESET].contains(&error) {
            NoWay::Refused
        } else if nobody {
            NoWay::Silent(error.desc().to_owned())
        } else {
            NoWay::CutOff(error.desc().to_owned())
        };
    };
    let says = words(to, kind, code);
    match from {
        Some(from) if from == to => NoWay::Rejected(says.to_owned()),
        // The kernel's own message about a neighbour that does not answer ARP (or IPv6 neighbour discovery).
        Some(from) if Some(from) == own || from.is_loopback() => {
            if unresolved(to, kind, code) && local::link(to).is_none_or(|link| !link.known()) {
                NoWay::Silent("nobody answers for its link address".to_owned())
            } else {
                NoWay::CutOff(format!("a rule of this host rejects it: {says}"))
            }
        }
        Some(from) if unreachable(to, kind, code) => NoWay::Silent(format!("{from} says: {says}")),
        Some(from) => NoWay::CutOff(format!("{from} on the way says: {says}")),
        None => NoWay::CutOff(says.to_owned()),
    }
}

/// Whether it means that a link address could not be found.
fn unresolved(to: IpAddr, kind: u8, code: u8) -> bool {
    matches!((to.is_ipv4(), kind, code), (true, 3, 1) | (false, 1, 3))
}

/// Whether a router means by it that the host is not there, or no way to it.
fn unreachable(to: IpAddr, kind: u8, code: u8) -> bool {
    matches!((to.is_ipv4(), kind, code), (true, 3, 0 | 1 | 6 | 7) | (false, 1, 0 | 3))
}

fn words(to: IpAddr, kind: u8, code: u8) -> &'static str {
    match (to.is_ipv4(), kind, code) {
        (true, 3, 0 | 6) | (false, 1, 0) => "network unreachable (ICMP)",
        (true, 3, 1 | 7) | (false, 1, 3) => "host unreachable (ICMP)",
        (true, 3, 3) | (false, 1, 4) => "port unreachable (ICMP)",
        (true, 3, 9 | 10 | 13) | (false, 1, 1 | 5 | 6) => "administratively prohibited (ICMP)",
        (true | false, _, _) => "an ICMP error",
    }
}

#[cfg(test)]
mod tests;
