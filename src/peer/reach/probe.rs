//! Asks around before a silent node is taken for dead: the node's own address once more and by other means, this host's gateway,
//! and the witness that the fleet file names.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{self, AddressFamily, SockFlag, SockProtocol, SockType, SockaddrStorage};
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout};

use super::local::{self, ArpEntry};
use super::{NoWay, dial};
use crate::judge::{PingReply, Probe};
use crate::peer::client::Endpoint;
use crate::vocabulary::Witness;

/// How long all of it may take: a call that is lost here shows after the second SYN.
const TIME: Duration = Duration::from_secs(2);
/// How long an answer to a datagram is waited for.
const DATAGRAM: Duration = Duration::from_millis(1500);

/// Asks everybody at the same time; the answer is there within two seconds.
pub async fn probe(to: Endpoint, witness: Option<Witness>) -> Probe {
    let gateway = async {
        match local::gateway() {
            Some(gateway) => {
                named(&format!("gateway {gateway}"), ask(SocketAddr::new(gateway, local::PORT)).await)
            }
            None => PingReply::Nobody("there is no default gateway".to_owned()),
        }
    };
    let witness = async {
        Some(match witness? {
            Witness::Gateway => match local::gateway() {
                Some(gateway) => {
                    named(&format!("gateway {gateway}"), ask(SocketAddr::new(gateway, local::PORT)).await)
                }
                None => PingReply::None("there is no default gateway".to_owned()),
            },
            Witness::At(address, port) => {
                let to = SocketAddr::new(address, port.unwrap_or(local::PORT));
                named(&address.to_string(), ask(to).await)
            }
        })
    };
    let ((way, node), gateway, witness) = tokio::join!(node(&to), gateway, witness);
    Probe { fault: way, node, gateway, witness }
}

fn named(name: &str, answer: PingReply) -> PingReply {
    match answer {
        PingReply::Came(how) => PingReply::Came(format!("{name}: {how}")),
        PingReply::Link(how) => PingReply::Link(format!("{name}: {how}")),
        PingReply::None(how) => PingReply::None(format!("{name}: {how}")),
        PingReply::Nobody(how) => PingReply::Nobody(format!("{name}: {how}")),
    }
}

/// The fault that was found on the way to the node, and whether it answers.
async fn node(to: &Endpoint) -> (Option<String>, PingReply) {
    let by = Instant::now() + TIME;
    let (called, asked) = tokio::join!(dial(to.address, to.from, by), other_ways(to.address.ip()));
    let fault = match &called {
        Err(NoWay::CutOff(fault)) => Some(fault.clone()),
        Ok(_) | Err(NoWay::Refused | NoWay::Rejected(_) | NoWay::Silent(_)) => None,
    };
    (fault, answer(&called, asked, to.address.ip()))
}

/// Whether an address answers anything at all.
async fn ask(to: SocketAddr) -> PingReply {
    let (called, asked) = tokio::join!(dial(to, None, Instant::now() + TIME), other_ways(to.ip()));
    answer(&called, asked, to.ip())
}

fn answer<T>(called: &Result<T, NoWay>, asked: Option<&'static str>, of: IpAddr) -> PingReply {
    let came = |how: &str| PingReply::Came(how.to_owned());
    match (called, asked) {
        (Ok(_), _) => came("it takes TCP connections"),
        (Err(NoWay::Refused), _) => came("it refuses TCP connections"),
        (Err(NoWay::Rejected(how)), _) => came(how),
        (Err(NoWay::CutOff(_) | NoWay::Silent(_)), Some(how)) => came(how),
        (Err(NoWay::CutOff(why)), None) => PingReply::None(why.clone()),
        (Err(NoWay::Silent(why)), None) => match local::link(of) {
            Some(ArpEntry::Known) => PingReply::Link("it answers ARP and nothing else".to_owned()),
            Some(ArpEntry::Unanswered) => PingReply::None("it does not answer ARP".to_owned()),
            None => PingReply::None(format!("no answer to TCP, UDP and ping ({why})")),
        },
    }
}

/// Asks by UDP and, where this host lets everybody, by ping. Nothing if there was no answer.
async fn other_ways(to: IpAddr) -> Option<&'static str> {
    let (udp, ping) = tokio::join!(timeout(DATAGRAM, udp(to)), timeout(DATAGRAM, ping(to)));
    if let Ok(Some(true)) = udp {
        return Some("it answers that nothing listens on that UDP port");
    }
    matches!(ping, Ok(Some(true))).then_some("it answers a ping")
}

fn any(of: IpAddr) -> IpAddr {
    if of.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// Whether the address itself answers a datagram with a port unreachable, or with a datagram.
async fn udp(to: IpAddr) -> Option<bool> {
    let socket = UdpSocket::bind((any(to), 0)).await.ok()?;
    // Errors of a router, or of this host, come from other addresses; the queue of the socket says from which.
    super::told_of_errors(&socket, SocketAddr::new(to, local::PORT), true).ok()?;
    socket.connect((to, local::PORT)).await.ok()?;
    socket.send(&[]).await.ok()?;
    let mut reply = [0; 64];
    match socket.recv(&mut reply).await {
        Ok(_) => Some(true),
        Err(_) => Some(super::icmp(&socket).and_then(|icmp| icmp.from) == Some(to)),
    }
}

/// Whether it answers an echo request. Without capabilities the kernel allows that to the groups in `net.ipv4.ping_group_range`.
async fn ping(to: IpAddr) -> Option<bool> {
    let (family, protocol, kind) = if to.is_ipv4() {
        (AddressFamily::Inet, SockProtocol::Icmp, 8)
    } else {
        (AddressFamily::Inet6, SockProtocol::IcmpV6, 128)
    };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = socket::socket(family, SockType::Datagram, flags, protocol).ok()?;
    let socket = connected(socket, to).ok()?;
    // The kernel fills in identifier and checksum.
    socket.send(&[kind, 0, 0, 0, 0, 0, 0, 1]).await.ok()?;
    let mut reply = [0; 64];
    Some(socket.recv(&mut reply).await.is_ok())
}

fn connected(socket: OwnedFd, to: IpAddr) -> Result<UdpSocket, Errno> {
    socket::connect(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(to, 0)))?;
    let socket = std::net::UdpSocket::from(socket);
    UdpSocket::from_std(socket)
        .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(nix::libc::EIO)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_of_this_host_answers_whatever_listens_there() {
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(matches!(ask(closed).await, PingReply::Came(_)));
        assert_eq!(udp(closed.ip()).await, Some(true));
    }

    #[test]
    fn what_came_is_told_from_silence() {
        let of = IpAddr::from([203, 0, 113, 9]);
        let silent: Result<(), _> = Err(NoWay::Silent("no answer in time".to_owned()));
        assert!(matches!(answer(&silent, None, of), PingReply::None(_)));
        assert!(matches!(answer(&silent, Some("it answers a ping"), of), PingReply::Came(_)));
        assert!(matches!(answer::<()>(&Err(NoWay::Rejected("x".to_owned())), None, of), PingReply::Came(_)));
        assert!(matches!(answer::<()>(&Err(NoWay::CutOff("x".to_owned())), None, of), PingReply::None(_)));
    }
}
