//! What this host knows of its own ways out: routes, interfaces, link addresses, and whether its own rules let packets pass. All
//! of it is read from files, so that it needs no capability and no netlink socket.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// The most that is read of one file, in bytes: a router's tables are long, and not read here.
const MAX_FILE: u64 = 1 << 20;
/// A port that is asked by UDP; whether somebody listens there does not matter.
pub(super) const PORT: u16 = 7433;

/// Where packets to an address leave this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) interface: String,
    /// The router that they are given to; none if the address is on the link itself.
    pub(super) gateway: Option<IpAddr>,
}

/// What the kernel's ARP table says of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ArpEntry {
    /// It has a link address for it. It may be as old as a minute.
    Known,
    /// Nobody answers for it.
    Unanswered,
}

impl ArpEntry {
    pub(super) fn known(self) -> bool {
        self == Self::Known
    }
}

fn read(path: &str) -> Option<String> {
    use std::io::Read as _;
    let mut text = String::new();
    fs::File::open(path).ok()?.take(MAX_FILE).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The way to an address; none if there is no route or it cannot be read.
pub(super) fn route(to: IpAddr) -> Option<Route> {
    match to {
        IpAddr::V4(to) => route4(&read("/proc/net/route")?, to),
        IpAddr::V6(to) => route6(&read("/proc/net/ipv6_route")?, to),
    }
}

/// This host's default gateway.
pub(super) fn gateway() -> Option<IpAddr> {
    let four = || Some((route4(&read("/proc/net/route")?, Ipv4Addr::UNSPECIFIED)?).gateway);
    let six = || Some((route6(&read("/proc/net/ipv6_route")?, Ipv6Addr::UNSPECIFIED)?).gateway);
    four().flatten().or_else(|| six().flatten())
}

/// The ARP entry of an address of the link; none if there is none, or it is an IPv6 address.
pub(super) fn link(of: IpAddr) -> Option<ArpEntry> {
    arp(&read("/proc/net/arp")?, of)
}

/// How many packets were to be sent again and could not be.
pub(super) fn sent_in_vain() -> Option<u64> {
    counter(&read("/proc/net/netstat")?, "TCPRetransFail")
}

/// Why packets to an address do not leave this host, if that can be seen.
pub(super) fn fault(to: IpAddr) -> Option<String> {
    if let Some(Route { interface, .. }) = route(to)
        && let Some(fault) = interface_fault(&interface)
    {
        return Some(fault);
    }
    refused(to).map(|why| format!("this host does not send to it: {why}"))
}

/// What this host's own stack says when it sends a datagram there; none if it is sent. The other side's answer is not waited for.
fn refused(to: IpAddr) -> Option<std::io::Error> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let sent = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.set_nonblocking(true)?;
        socket.connect(SocketAddr::new(to, PORT))?;
        socket.send(&[])
    });
    // Refused by the other side is not refused here; and a full buffer says nothing.
    sent.err().filter(|error| {
        !matches!(error.kind(), std::io::ErrorKind::ConnectionRefused | std::io::ErrorKind::WouldBlock)
    })
}

/// What is wrong with an interface.
fn interface_fault(name: &str) -> Option<String> {
    // A name of the kernel's own file; it is used as a path all the same.
    if name.contains('/') || name.starts_with('.') {
        return None;
    }
    let of = |what: &str| fs::read_to_string(format!("/sys/class/net/{name}/{what}"));
    match of("carrier") {
        Ok(carrier) if carrier.trim() == "0" => {
            Some(format!("interface {name} of this host has no carrier (cable, switch)"))
        }
        // The kernel does not say whether an interface that is down has a carrier.
        Err(error) if error.raw_os_error() == Some(nix::libc::EINVAL) => {
            Some(format!("interface {name} of this host is down"))
        }
        Ok(_) | Err(_) => None,
    }
}

fn route4(table: &str, to: Ipv4Addr) -> Option<Route> {
    let to = u32::from(to);
    let address = |hex: &str| Some(u32::from_be(u32::from_str_radix(hex, 16).ok()?));
    let routes = table.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_whitespace();
        let interface = fields.next()?.to_owned();
        let (net, gateway) = (address(fields.next()?)?, address(fields.next()?)?);
        let flags = u32::from_str_radix(fields.next()?, 16).ok()?;
        let metric: u32 = fields.nth(2)?.parse().ok()?;
        let mask = address(fields.next()?)?;
        // Up, and not a route that rejects.
        (flags & 1 == 1 && flags & 0x200 == 0 && to & mask == net).then(|| {
            let gateway = (flags & 2 == 2).then(|| IpAddr::V4(Ipv4Addr::from(gateway)));
            (mask.count_ones(), std::cmp::Reverse(metric), Route { interface, gateway })
        })
    });
    routes.max_by_key(|(length, metric, _)| (*length, *metric)).map(|(_, _, route)| route)
}

fn route6(table: &str, to: Ipv6Addr) -> Option<Route> {
    let to = u128::from(to);
    let address = |hex: &str| u128::from_str_radix(hex, 16).ok();
    let routes = table.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [net, length, _, _, gateway, metric, _, _, flags, interface] = fields.as_slice() else {
            return None;
        };
        let length = u32::from_str_radix(length, 16).ok().filter(|length| *length <= 128)?;
        let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
        let flags = u32::from_str_radix(flags, 16).ok()?;
        let metric = u32::from_str_radix(metric, 16).ok()?;
        (flags & 1 == 1 && flags & 0x200 == 0 && to & mask == address(net)?).then(|| {
            let gateway = address(gateway).filter(|gateway| *gateway != 0);
            let gateway = gateway.map(|gateway| IpAddr::V6(Ipv6Addr::from(gateway)));
            (length, std::cmp::Reverse(metric), Route { interface: (*interface).to_owned(), gateway })
        })
    });
    let best = routes.max_by_key(|(length, metric, _)| (*length, *metric)).map(|(_, _, route)| route);
    best.filter(|route| route.interface != "lo")
}

fn arp(table: &str, of: IpAddr) -> Option<ArpEntry> {
    table.lines().skip(1).find_map(|line| {
        let mut fields = line.split_whitespace();
        let address: IpAddr = fields.next()?.parse().ok()?;
        let flags = u32::from_str_radix(fields.nth(1)?.trim_start_matches("0x"), 16).ok()?;
        // Complete, and nobody wrote it by hand.
        let known = flags & 2 == 2 && flags & 4 == 0;
        let unanswered = flags & 2 == 0;
        (address == of && (known || unanswered)).then_some(if known {
            ArpEntry::Known
        } else {
            ArpEntry::Unanswered
        })
    })
}

/// One counter of a file in which a line of names precedes each line of values.
fn counter(text: &str, name: &str) -> Option<u64> {
    let lines: Vec<&str> = text.lines().collect();
    lines.chunks_exact(2).find_map(|pair| {
        let [names, values] = pair else { return None };
        let mut both = names.split_whitespace().zip(values.split_whitespace());
        both.find(|(found, _)| *found == name).and_then(|(_, value)| value.parse().ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTES: &str = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
        eth0\t00000000\t010200C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n\
        eth1\t00000000\t010210C0\t0003\t0\t0\t50\t00000000\t0\t0\t0\n\
        eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
        *\t090200C0\t00000000\t0201\t0\t0\t0\tFFFFFFFF\t0\t0\t0\n";
    const ARP: &str = "IP address       HW type     Flags       HW address            Mask     Device\n\
        192.0.2.10       0x1         0x2         02:00:00:00:00:0a     *        eth0\n\
        192.0.2.20       0x1         0x0         00:00:00:00:00:00     *        eth0\n\
        192.0.2.30       0x1         0x6         02:00:00:00:00:1e     *        eth0\n";

    #[test]
    fn the_longest_prefix_and_then_the_smallest_metric_is_the_way() {
        let way = |to: [u8; 4]| route4(ROUTES, to.into());
        assert_eq!(way([192, 0, 2, 10]), Some(Route { interface: "eth0".into(), gateway: None }));
        let gateway = Some(IpAddr::from([192, 16, 2, 1]));
        assert_eq!(way([198, 51, 100, 1]), Some(Route { interface: "eth1".into(), gateway }));
        assert_eq!(way([0, 0, 0, 0]).and_then(|way| way.gateway), gateway, "the default gateway");
        assert_eq!(route4("", Ipv4Addr::LOCALHOST), None);
        assert_eq!(route4("x\ny z\n", Ipv4Addr::LOCALHOST), None, "what cannot be read is no route");
    }

    #[test]
    fn ipv6_routes_are_read_as_well() {
        let zero = "0".repeat(32);
        let table = format!(
            "20010db8000000000000000000000000 40 {zero} 00 {zero} 00000100 00000001 00000000 00000001     eth0\n\
             {zero} 00 {zero} 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003     eth0\n\
             {zero} 00 {zero} 00 {zero} ffffffff 00000001 00000000 00200200       lo\n"
        );
        let way = route6(&table, "2001:db8::9".parse().unwrap());
        assert_eq!(way, Some(Route { interface: "eth0".into(), gateway: None }));
        let way = route6(&table, Ipv6Addr::UNSPECIFIED).and_then(|way| way.gateway);
        assert_eq!(way, Some("fe80::1".parse().unwrap()));
    }

    #[test]
    fn an_arp_entry_is_known_unanswered_or_not_there() {
        let of = |last: u8| arp(ARP, IpAddr::from([192, 0, 2, last]));
        assert_eq!(of(10), Some(ArpEntry::Known));
        assert_eq!(of(20), Some(ArpEntry::Unanswered));
        assert_eq!(of(30), None, "one that was written by hand says nothing");
        assert_eq!(of(40), None);
    }

    #[test]
    fn a_counter_is_found_by_its_name() {
        let text = "TcpExt: A TCPRetransFail B\nTcpExt: 1 42 3\nIpExt: TCPRetransFail\nIpExt: x\n";
        assert_eq!(counter(text, "TCPRetransFail"), Some(42));
        assert_eq!(counter(text, "C"), None);
        assert_eq!(counter("TcpExt: A\n", "A"), None);
    }
}
