use super::*;

fn refusal(by: &str) -> Record {
    Record { by: by.to_owned(), ..Record::local(Event::Refused, Priority::Warning, "", "no certificate") }
}

fn refusals() -> (Refusals, std::sync::mpsc::Receiver<Record>) {
    let (to, lines) = std::sync::mpsc::sync_channel(100_000);
    (Refusals::new(Recorder::new(to)), lines)
}

#[tokio::test(start_paused = true)]
async fn a_few_are_told_one_by_one_and_a_flood_is_counted() {
    let (refusals, lines) = refusals();
    for _ in 0..1000 {
        refusals.tell(refusal("192.0.2.1"));
    }
    refusals.tell(refusal("192.0.2.2"));
    assert_eq!(lines.try_iter().count(), 6);
    tokio::time::sleep(PERIOD * 3).await;
    let told: Vec<Record> = lines.try_iter().collect();
    assert_eq!(told.len(), 1);
    assert!(told[0].text.starts_with("995 more refused within 1"), "{}", told[0].text);
    assert_eq!(told[0].by, "192.0.2.1");
}

#[tokio::test(start_paused = true)]
async fn a_peers_connections_that_ended_unanswered_are_two_lines_and_no_refusal() {
    let (refusals, lines) = refusals();
    for _ in 0..10 {
        refusals.ended(&"mars".parse().unwrap(), [192, 0, 2, 1].into());
    }
    tokio::time::sleep(PERIOD * 3).await;
    let told: Vec<Record> = lines.try_iter().collect();
    assert!(told.iter().all(|line| line.event == Event::Peer && line.priority == Priority::Info), "{told:?}");
    assert!(told[0].text.contains("the address of mars"), "{told:?}");
    assert!(told[1].text.starts_with("9 more within"), "{told:?}");
    assert_eq!(told.len(), 2, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_flood_from_many_addresses_is_a_handful_of_lines_an_hour() {
    let (refusals, lines) = refusals();
    let flood = async |seconds: u32| {
        for second in 0..seconds {
            for source in 0..200 {
                refusals.tell(refusal(&format!("2001:db8::{second:x}:{source:x}")));
            }
            tokio::time::sleep(PERIOD).await;
        }
    };
    flood(5).await;
    let first = lines.try_iter().count();
    assert!(first <= 40, "{first} lines in the first five seconds");
    flood(3600).await;
    let told: Vec<Record> = lines.try_iter().collect();
    assert!(told.len() <= 150, "{} lines in the next hour", told.len());
    assert!(told.iter().any(|line| line.by == "other sources" && line.text.contains("addresses or more")));
    let sources = refusals.sources.lock().unwrap();
    assert!(sources.by.len() <= STRANGERS + 1 && sources.lines.len() == 1, "{sources:?}");
}

#[tokio::test(start_paused = true)]
async fn what_a_peer_is_refused_is_told_whatever_strangers_do_and_goes_on_longer_and_longer() {
    let (refusals, lines) = refusals();
    for source in 0..2000 {
        refusals.tell(refusal(&format!("2001:db8::{source:x}")));
    }
    lines.try_iter().count();
    refusals.tell(refusal("ai-core"));
    assert_eq!(lines.try_iter().map(|line| line.by).collect::<Vec<_>>(), ["ai-core"]);
    for _ in 0..3600 {
        (0..100).for_each(|_| refusals.tell(refusal("ai-core")));
        tokio::time::sleep(PERIOD).await;
    }
    let of_peer = lines.try_iter().filter(|line| line.by == "ai-core").count();
    assert!((10..100).contains(&of_peer), "{of_peer} lines in an hour");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_pauses_between_its_bursts_gets_no_more_lines_for_that() {
    let (refusals, lines) = refusals();
    for _ in 0..600 {
        (0..6).for_each(|_| refusals.tell(refusal("ai-core")));
        tokio::time::sleep(PERIOD * 6).await;
    }
    let told = lines.try_iter().count();
    assert!(told < 100, "{told} lines in an hour");
}

#[tokio::test(start_paused = true)]
async fn after_a_quiet_while_a_source_is_told_one_by_one_again_and_no_timer_is_left() {
    let (refusals, lines) = refusals();
    for _ in 0..9 {
        refusals.tell(refusal("192.0.2.1"));
    }
    tokio::time::sleep(PERIOD * 8).await;
    assert!(refusals.sources.lock().unwrap().by.is_empty());
    assert!(!refusals.sources.lock().unwrap().telling);
    lines.try_iter().count();
    refusals.tell(refusal("192.0.2.1"));
    assert_eq!(lines.try_iter().count(), 1);
}
