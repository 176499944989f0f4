//! Peers that are who they say they are, and ask for what they must not have, or in a way that is not the protocol.

use std::time::{Duration, Instant};

use keyholder::fleet::Right;
use keyholder::journal::Event;
use keyholder::peer::wire::{RefusalCode, RelaunchOrder, ServerFrame, Verb, Verdict};
use tokio::io::AsyncWriteExt;

use super::clients::{Raw, framed, rest};
use super::house::{House, PATIENCE, grant, name, relaunch, worker};

fn request(house: &House, verb: &str) -> String {
    let (nonce, id) = (house.nonce, "0123456789abcdef0123456789abcdef");
    format!(
        r#"{{"request":{{"boot_nonce":"{nonce}","req_id":"{id}","target_node":"mars","worker":"write","verb":{verb},"because":"x"}}}}"#
    )
}

async fn refusal(raw: &mut Raw) -> (String, RefusalCode) {
    match raw.reply().await {
        Some(ServerFrame::Reply(reply)) => match reply.result {
            Verdict::Refused(refusal) => (reply.req_id.to_string(), refusal.code),
            Verdict::Outcome(outcome) => panic!("not refused: {outcome:?}"),
        },
        other => panic!("no reply: {other:?}"),
    }
}

#[tokio::test]
async fn a_frame_that_is_not_of_the_protocol_is_refused_and_the_connection_lives_on() {
    let house = House::open().await;
    let mut raw = Raw::open(house.address, &house.peer).await;
    let good = request(&house, r#"{"relaunch":{}}"#);
    for bad in [
        request(&house, r#"{"reboot":{}}"#),
        request(&house, r#"{"relaunch":{"unit":"ssh.service"}}"#),
        good.replace("\"write\"", "\"ssh.service\""),
        good.replace("\"write\"", "\"../write\""),
        good.replace("\"because\":", "\"extra\":1,\"because\":"),
        good.replace("\"because\":\"x\"", "\"because\":\"\\u001b[2J\""),
    ] {
        raw.say(&bad).await;
        let (id, code) = refusal(&mut raw).await;
        assert_eq!(
            (id.as_str(), code),
            ("0123456789abcdef0123456789abcdef", RefusalCode::Malformed),
            "{bad}"
        );
    }
    assert!(house.orders().is_empty());
    raw.say(&good).await;
    assert!(
        matches!(raw.reply().await, Some(ServerFrame::Reply(r)) if matches!(r.result, Verdict::Outcome(_)))
    );
    assert_eq!(house.orders().len(), 1);
    // From the sixth on within a second they are counted; the count has no pin.
    let told: Vec<_> =
        house.refusals().into_iter().filter(|r| !r.text.contains("more refused within")).collect();
    assert!(told.len() >= 5 && told.iter().all(|r| r.by == "ai-core" && r.pin == Some(house.peer.pin)));
}

#[tokio::test]
async fn every_refusal_is_one_audit_record_and_no_order() {
    let house = House::open().await;
    let (link, _events) = house.call().await.unwrap();
    let force = Verb::Relaunch(RelaunchOrder { force: true, ..RelaunchOrder::default() });
    for (target, name_of, verb, code) in [
        ("mars", Some("secret"), relaunch(), RefusalCode::NoGrant),
        ("mars", Some("write"), Verb::Hold { for_ms: 1000 }, RefusalCode::NoGrant),
        ("mars", Some("write"), force, RefusalCode::NotRoot),
        ("ai-core", Some("write"), relaunch(), RefusalCode::WrongNode),
        ("mars", None, Verb::Audit { last: 10 }, RefusalCode::LocalOnly),
    ] {
        let w = name_of.map(worker);
        let verdict = link.request(&name(target), w.as_ref(), verb, "because", PATIENCE).await.unwrap();
        let Verdict::Refused(refusal) = verdict else { panic!("not refused: {verdict:?}") };
        assert_eq!(refusal.code, code);
        let last = house.refusals().pop().unwrap();
        assert_eq!((last.text, last.by.as_str()), (refusal.text, "ai-core"));
        assert!(last.req_id.is_some() && last.verb.is_some());
    }
    assert_eq!(house.refusals().len(), 5);
    assert!(house.orders().is_empty());
}

#[tokio::test]
async fn an_order_is_recorded_before_it_reaches_the_desk() {
    let house = House::open().await;
    let (link, _events) = house.call().await.unwrap();
    link.request(&name("mars"), Some(&worker("write")), relaunch(), "it is deaf", PATIENCE).await.unwrap();
    let ordered: Vec<_> = house.records().into_iter().filter(|r| r.event == Event::Ordered).collect();
    assert_eq!(ordered.len(), 1);
    assert_eq!(
        (ordered[0].by.as_str(), ordered[0].verb, ordered[0].subject.as_str(), ordered[0].text.as_str()),
        ("ai-core", Some("relaunch"), "mars/write", "relaunch: it is deaf")
    );
}

#[tokio::test]
async fn grants_count_from_the_moment_of_the_reload() {
    let house = House::open().await;
    let (link, _events) = house.call().await.unwrap();
    let mars = name("mars");
    let look = || link.request(&mars, None, Verb::Status {}, "", PATIENCE);
    assert!(matches!(look().await.unwrap(), Verdict::Outcome(_)));
    house.edit_fleet(|fleet| fleet.grants.clear());
    assert!(matches!(look().await.unwrap(), Verdict::Refused(_)));
    house.edit_fleet(|fleet| fleet.grants.push(grant("ai-core", &[Right::Status])));
    assert!(matches!(look().await.unwrap(), Verdict::Outcome(_)));
}

#[tokio::test]
async fn a_hello_that_names_another_node_is_refused_and_the_connection_ends() {
    let house = House::open().await;
    let mut raw = Raw::silent(house.address, &house.peer).await;
    let hello = keyholder::peer::wire::ClientFrame::Hello(super::house::hello("venus"));
    raw.send(&keyholder::peer::codec::encode(&hello, 4096).unwrap()).await;
    assert_eq!(refusal(&mut raw).await.1, RefusalCode::WrongNode);
    assert!(raw.next().await.is_none());
    assert_eq!(house.refusals().len(), 1);
}

#[tokio::test]
async fn a_request_before_the_hello_and_a_second_hello_end_the_connection() {
    let house = House::open().await;
    let mut raw = Raw::silent(house.address, &house.peer).await;
    raw.say(&request(&house, r#"{"relaunch":{}}"#)).await;
    assert_eq!(refusal(&mut raw).await.1, RefusalCode::OutOfOrder);
    assert!(raw.next().await.is_none());
    let mut raw = Raw::open(house.address, &house.peer).await;
    let hello = keyholder::peer::wire::ClientFrame::Hello(super::house::hello("ai-core"));
    raw.send(&keyholder::peer::codec::encode(&hello, 4096).unwrap()).await;
    assert_eq!(refusal(&mut raw).await.1, RefusalCode::OutOfOrder);
    assert!(raw.next().await.is_none());
    assert!(house.orders().is_empty());
}

#[tokio::test]
async fn four_kibibytes_are_read_and_one_byte_more_ends_the_connection() {
    let house = House::open().await;
    let mut raw = Raw::open(house.address, &house.peer).await;
    let good = request(&house, r#"{"relaunch":{}}"#);
    raw.say(&format!("{good}{}", " ".repeat(4096 - good.len()))).await;
    assert!(
        matches!(raw.reply().await, Some(ServerFrame::Reply(r)) if matches!(r.result, Verdict::Outcome(_)))
    );
    raw.say(&format!("{good}{}", " ".repeat(4097 - good.len()))).await;
    assert_eq!(refusal(&mut raw).await.1, RefusalCode::TooLarge);
    assert!(raw.next().await.is_none());
    assert_eq!(house.orders().len(), 1);
}

#[tokio::test]
async fn an_empty_frame_ends_the_connection() {
    let house = House::open().await;
    let mut raw = Raw::open(house.address, &house.peer).await;
    raw.send(&[0; 4]).await;
    assert_eq!(refusal(&mut raw).await.1, RefusalCode::Malformed);
    assert!(raw.next().await.is_none());
}

#[tokio::test]
async fn one_byte_a_second_is_cut_after_five() {
    let house = House::open().await;
    let raw = Raw::open(house.address, &house.peer).await;
    let begun = Instant::now();
    let frame = framed(request(&house, r#"{"relaunch":{}}"#).as_bytes());
    let (mut reading, mut writing) = tokio::io::split(raw.stream);
    let drip = async {
        for byte in frame.chunks(1) {
            if writing.write_all(byte).await.is_err() || writing.flush().await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = drip => {}
        _ = rest(&mut reading) => {}
    }
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(4) && took < 2 * PATIENCE, "{took:?}");
    assert!(house.orders().is_empty());
    assert!(house.refusals().iter().any(|r| r.text.contains("not finished within 5 s")));
}

#[tokio::test]
async fn a_client_without_a_hello_is_cut_after_five_seconds() {
    let house = House::open().await;
    let mut raw = Raw::silent(house.address, &house.peer).await;
    let begun = Instant::now();
    assert_eq!(rest(&mut raw.stream).await, b"");
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(4) && took < 2 * PATIENCE, "{took:?}");
}
