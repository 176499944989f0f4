//! Who cannot prove a pinned key: no application byte, no order, exactly one audit record.

use std::sync::Arc;

use keyholder::journal::{Event, Record};
use keyholder::peer::wire::{Outcome, Verb, Verdict};
use tokio::io::AsyncWriteExt;

use super::clients::{presents, rest, tcp, tls, try_hello, try_hello_with, without_certificate};
use super::house::{House, Key, PATIENCE, PEER_ADDRESS, eventually, name};

/// The one record that the attempt left, after a genuine peer was served. Nothing else may have happened.
async fn only_record(house: &House, by: [u8; 4]) -> Record {
    eventually("a record of the refusal", || (!house.refusals().is_empty()).then_some(())).await;
    assert!(house.orders().is_empty());
    assert_eq!(house.state.lock().unwrap().subscriptions, 0);
    let (link, _events) = house.call().await.unwrap();
    let verdict = link.request(&name("mars"), None, Verb::Status {}, "", PATIENCE).await.unwrap();
    assert!(matches!(verdict, Verdict::Outcome(Outcome::Status(_))));
    let refusals = house.refusals();
    assert_eq!(refusals.len(), 1, "{refusals:?}");
    assert_eq!(refusals[0].by, std::net::Ipv4Addr::from(by).to_string());
    refusals[0].clone()
}

async fn refused(house: &House, config: rustls::ClientConfig, reason: &str) {
    assert_eq!(try_hello(house.address, config).await, b"", "an application byte was answered");
    let record = only_record(house, PEER_ADDRESS).await;
    assert!(record.text.contains(reason), "{}", record.text);
}

#[tokio::test]
async fn no_certificate() {
    let house = House::open().await;
    refused(&house, without_certificate(), "no certificate").await;
}

#[tokio::test]
async fn an_unpinned_certificate() {
    let house = House::open().await;
    let stranger = Key::new();
    refused(&house, presents(&stranger, &stranger), &stranger.pin.to_string()).await;
}

#[tokio::test]
async fn the_pinned_certificate_without_its_key() {
    let house = House::open().await;
    refused(&house, presents(&house.peer, &Key::new()), "impostor").await;
}

#[tokio::test]
async fn the_key_of_a_disabled_node() {
    let house = House::open().await;
    house.edit_fleet(|f| f.nodes.get_mut(&name("ai-core")).unwrap().disabled = true);
    assert_eq!(try_hello(house.address, presents(&house.peer, &house.peer)).await, b"");
    house.edit_fleet(|f| f.nodes.get_mut(&name("ai-core")).unwrap().disabled = false);
    let record = only_record(&house, PEER_ADDRESS).await;
    assert!(record.text.contains("not among the pins"), "{}", record.text);
}

#[tokio::test]
async fn a_pin_that_was_removed_does_not_come_back_in_by_resumption() {
    let house = House::open().await;
    let config = Arc::new(presents(&house.peer, &house.peer));
    let mut first = tls(house.address, &config).await.unwrap();
    let hello = keyholder::peer::codec::encode(
        &keyholder::peer::wire::ClientFrame::Hello(super::house::hello("ai-core")),
        4096,
    );
    first.write_all(&hello.unwrap()).await.unwrap();
    // Reading takes in whatever tickets the server sends with its hello.
    tokio::io::AsyncReadExt::read_u32(&mut first).await.unwrap();
    drop(first);
    house.edit_fleet(|f| f.nodes.get_mut(&name("ai-core")).unwrap().pins = [Key::new().pin].into());
    assert_eq!(try_hello_with(house.address, &config).await, b"");
    let second = tls(house.address, &config).await;
    assert!(
        second.is_err()
            || second.is_ok_and(|s| s.get_ref().1.handshake_kind() == Some(rustls::HandshakeKind::Full))
    );
    eventually("a record", || {
        house.refusals().iter().any(|r| r.text.contains("not among the pins")).then_some(())
    })
    .await;
    assert!(house.orders().is_empty());
}

#[tokio::test]
async fn another_application_protocol() {
    let house = House::open().await;
    let mut config = presents(&house.peer, &house.peer);
    config.alpn_protocols = vec![b"h2".to_vec(), b"keyholder/2".to_vec()];
    refused(&house, config, "ALPN").await;
}

#[tokio::test]
async fn no_application_protocol_at_all() {
    let house = House::open().await;
    let mut config = presents(&house.peer, &house.peer);
    config.alpn_protocols = Vec::new();
    refused(&house, config, "ALPN").await;
}

async fn raw(bytes: &[u8], reason: &str) -> Vec<u8> {
    let house = House::open().await;
    let mut stream = tcp(house.address, PEER_ADDRESS).await;
    stream.write_all(bytes).await.unwrap();
    let answer = rest(&mut stream).await;
    let record = only_record(&house, PEER_ADDRESS).await;
    assert!(record.text.contains(reason), "{}", record.text);
    answer
}

#[tokio::test]
async fn plaintext_frames() {
    let frame = br#"{"hello":{"node":"ai-core"}}"#;
    assert_eq!(raw(&super::clients::framed(frame), "does not speak TLS").await, b"");
}

#[tokio::test]
async fn http() {
    assert_eq!(raw(b"GET / HTTP/1.1\r\nHost: mars\r\n\r\n", "HTTP").await, b"");
    assert_eq!(raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP").await, b"");
}

#[tokio::test]
async fn a_connection_that_ends_without_a_word() {
    let house = House::open().await;
    drop(tcp(house.address, [127, 0, 0, 9]).await);
    assert!(only_record(&house, [127, 0, 0, 9]).await.text.contains("it hung up"));
    // A peer may have given up because this host was slow.
    drop(tcp(house.address, PEER_ADDRESS).await);
    let told = eventually("it is told of the peer", || {
        house.records().into_iter().find(|record| record.text.contains("before it was answered"))
    })
    .await;
    assert_eq!((told.event, told.subject.as_str()), (Event::Peer, "ai-core"), "{told:?}");
    assert_eq!(house.refusals().len(), 1);
}

/// A ClientHello of TLS 1.2 as RFC 5246 has it: no `supported_versions`.
fn client_hello_of_tls12() -> Vec<u8> {
    let extensions: &[&[u8]] = &[
        &[0, 10, 0, 4, 0, 2, 0, 29],          // supported_groups: x25519
        &[0, 11, 0, 2, 1, 0],                 // ec_point_formats: uncompressed
        &[0, 13, 0, 6, 0, 4, 4, 3, 8, 7],     // signature_algorithms: P-256, Ed25519
        &[0, 23, 0, 0],                       // extended_master_secret
        b"\0\x10\0\x0e\0\x0c\x0bkeyholder/1", // ALPN
    ];
    let extensions = extensions.concat();
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 4, 0xc0, 0x2b, 0xc0, 0x2f, 1, 0]);
    body.extend(u16::try_from(extensions.len()).unwrap().to_be_bytes());
    body.extend(extensions);
    let mut message = vec![1, 0];
    message.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
    message.extend(body);
    let mut record = vec![22, 3, 1];
    record.extend(u16::try_from(message.len()).unwrap().to_be_bytes());
    record.extend(message);
    record
}

#[tokio::test]
async fn tls_of_an_older_version() {
    let answer = raw(&client_hello_of_tls12(), "TLS 1.3").await;
    // One alert record: fatal, protocol_version (70).
    assert_eq!(answer, [21, 3, 3, 0, 2, 2, 70]);
}

#[tokio::test]
async fn rubbish_in_a_tls_record() {
    let answer = raw(&[&[22, 3, 1, 1, 0][..], &[0xff; 256]].concat(), "refused").await;
    assert!(answer.is_empty() || answer[0] == 21, "{answer:?}");
}

#[tokio::test]
async fn a_handshake_at_one_byte_a_second() {
    let house = House::open().await;
    let mut stream = tcp(house.address, PEER_ADDRESS).await;
    let begun = std::time::Instant::now();
    for byte in client_hello_of_tls12().chunks(1).take(8) {
        if stream.write_all(byte).await.is_err() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(900)).await;
    }
    assert_eq!(rest(&mut stream).await, b"");
    assert!(begun.elapsed() < 2 * PATIENCE, "{:?}", begun.elapsed());
    assert!(only_record(&house, PEER_ADDRESS).await.text.contains("within 5 s"));
}

#[tokio::test]
async fn certificates_that_expired_in_1999_are_as_good_as_any() {
    let house = House::with(Key::new(), Key::of_year(1999)).await;
    let stream = tls(house.address, &Arc::new(presents(&house.peer, &house.peer))).await.unwrap();
    drop(stream);
    let mut raw = super::clients::Raw::open(house.address, &house.peer).await;
    raw.say("{}").await;
    assert!(matches!(raw.reply().await, Some(keyholder::peer::wire::ServerFrame::Reply(_))));
}
