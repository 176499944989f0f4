use super::*;

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 10));
const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 40));
const ROUTER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

#[test]
fn an_error_says_who_is_at_fault() {
    let icmp = |code, from| Some(Icmp { kind: 3, code, from: Some(from) });
    let cut = |text: &str| NoWay::CutOff(text.to_owned());
    let silent = |text: &str| NoWay::Silent(text.to_owned());
    for (error, at_once, said, expected) in [
        // A word of its kernel proves the host alive.
        (Errno::ECONNREFUSED, false, None, NoWay::Refused),
        (Errno::ECONNREFUSED, true, None, NoWay::Refused),
        (Errno::ECONNRESET, false, None, NoWay::Refused),
        // What arises here says nothing about it.
        (Errno::ENETUNREACH, true, None, cut("Network is unreachable")),
        (Errno::EHOSTUNREACH, true, None, cut("No route to host")),
        (Errno::EPERM, true, None, cut("Operation not permitted")),
        (Errno::EACCES, true, None, cut("Permission denied")),
        (Errno::EACCES, false, None, cut("Permission denied")),
        (Errno::EADDRNOTAVAIL, true, None, cut("Cannot assign requested address")),
        (Errno::ENETDOWN, true, None, cut("Network is down")),
        (Errno::EINVAL, true, None, cut("Invalid argument")),
        // Nobody answered.
        (Errno::ETIMEDOUT, false, None, silent("Connection timed out")),
        (Errno::EHOSTUNREACH, false, None, silent("No route to host")),
        // The same number, and another sender each time.
        (
            Errno::EHOSTUNREACH,
            false,
            icmp(13, PEER),
            NoWay::Rejected("administratively prohibited (ICMP)".to_owned()),
        ),
        (
            Errno::EHOSTUNREACH,
            false,
            icmp(10, PEER),
            NoWay::Rejected("administratively prohibited (ICMP)".to_owned()),
        ),
        (Errno::ECONNREFUSED, false, icmp(3, PEER), NoWay::Rejected("port unreachable (ICMP)".to_owned())),
        (Errno::EHOSTUNREACH, false, icmp(1, PEER), NoWay::Rejected("host unreachable (ICMP)".to_owned())),
        (Errno::EHOSTUNREACH, false, icmp(1, OWN), silent("nobody answers for its link address")),
        (
            Errno::ECONNREFUSED,
            true,
            icmp(3, OWN),
            cut("a rule of this host rejects it: port unreachable (ICMP)"),
        ),
        (
            Errno::EHOSTUNREACH,
            false,
            icmp(13, OWN),
            cut("a rule of this host rejects it: administratively prohibited (ICMP)"),
        ),
        (Errno::EHOSTUNREACH, false, icmp(1, ROUTER), silent("192.0.2.1 says: host unreachable (ICMP)")),
        (
            Errno::EHOSTUNREACH,
            false,
            icmp(13, ROUTER),
            cut("192.0.2.1 on the way says: administratively prohibited (ICMP)"),
        ),
    ] {
        let found = meaning(error, at_once, said, PEER, Some(OWN));
        assert_eq!(found, expected, "{error} {at_once} {said:?}");
    }
}

#[test]
fn ipv6_is_understood_as_well() {
    let [peer, own]: [IpAddr; 2] = ["2001:db8::10", "2001:db8::40"].map(|text| text.parse().unwrap());
    let said = |code, from| {
        meaning(Errno::EHOSTUNREACH, false, Some(Icmp { kind: 1, code, from: Some(from) }), peer, Some(own))
    };
    assert_eq!(said(3, own), NoWay::Silent("nobody answers for its link address".to_owned()));
    assert_eq!(said(1, peer), NoWay::Rejected("administratively prohibited (ICMP)".to_owned()));
    assert!(matches!(said(1, own), NoWay::CutOff(_)));
}

#[tokio::test]
async fn a_host_that_listens_or_refuses_is_told_from_an_address_that_this_host_has_no_way_to() {
    let by = || Instant::now() + Duration::from_secs(5);
    let door = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let to = door.local_addr().unwrap();
    assert!(dial(to, None, by()).await.is_ok());
    drop(door);
    assert!(matches!(dial(to, None, by()).await, Err(NoWay::Refused)));
    // A broadcast address takes no connections: the kernel refuses before anything is sent.
    let nowhere = SocketAddr::from(([255, 255, 255, 255], 7433));
    assert!(matches!(dial(nowhere, None, by()).await, Err(NoWay::CutOff(_))));
}
