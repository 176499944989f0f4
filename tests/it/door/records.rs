//! The records of a node as its own users follow them.

use std::time::Instant;

use keyholder::cli::link::Link;
use keyholder::journal::{Event, Priority, Record};
use keyholder::peer::wire::{Outcome, RefusalCode, ServerFrame, Verb, Verdict};
use tokio::task::spawn_blocking;

use super::house::{House, PATIENCE, name};

fn follow(house: &House) -> tokio::task::JoinHandle<Link> {
    let socket = house.socket.clone();
    spawn_blocking(move || {
        let mut link = Link::open(&socket, PATIENCE).unwrap();
        let begun = link.ask(&name("mars"), None, Verb::Events {}, "", PATIENCE).unwrap();
        assert_eq!(begun, Verdict::Outcome(Outcome::Watching));
        link
    })
}

fn record(text: &str) -> Record {
    Record::local(Event::Alert, Priority::Error, "mars/agent", text)
}

fn next(link: &mut Link) -> ServerFrame {
    link.next(Instant::now() + PATIENCE).unwrap().expect("a frame")
}

#[tokio::test]
async fn every_record_is_told_as_it_happens_and_a_quiet_one_hears_that_the_supervisor_is_there() {
    let house = House::open().await;
    house.recorder.record(record("before anybody follows"));
    let mut link = follow(&house).await.unwrap();
    house.recorder.record(record("dead"));
    let told = spawn_blocking(move || [next(&mut link), next(&mut link)]).await.unwrap();
    let ServerFrame::Event(line) = &told[0] else { panic!("{told:?}") };
    assert_eq!((line.seq, line.event.as_str(), line.priority), (2, "alert", 3));
    assert_eq!(
        (line.by.as_str(), line.subject.as_str(), line.text.as_str()),
        ("local", "mars/agent", "dead")
    );
    assert_eq!(line.message_id, Event::Alert.message_id());
    assert!(line.at.ends_with('Z'), "{}", line.at);
    assert_eq!(told[1], ServerFrame::Keepalive);
}

#[tokio::test]
async fn a_reader_that_is_too_slow_is_told_how_much_passed_it_by() {
    let house = House::open().await;
    let mut link = follow(&house).await.unwrap();
    // Nobody reads while these are written, and the door's own task does not run: more than are kept for anybody.
    for n in 0..1000 {
        house.recorder.record(record(&n.to_string()));
    }
    let (count, first) = spawn_blocking(move || match (next(&mut link), next(&mut link)) {
        (ServerFrame::Missed { count }, ServerFrame::Event(line)) => (count, line.seq),
        other => panic!("{other:?}"),
    })
    .await
    .unwrap();
    assert!(count > 800, "{count}");
    assert_eq!(first, count + 1, "the numbers say the same");
}

#[tokio::test]
async fn a_peer_does_not_get_to_see_them() {
    let house = House::open().await;
    let (link, _events) = house.call().await.unwrap();
    let verdict = link.request(&name("mars"), None, Verb::Events {}, "", PATIENCE).await.unwrap();
    assert!(matches!(verdict, Verdict::Refused(refusal) if refusal.code == RefusalCode::LocalOnly));
}
