use std::sync::Condvar;
use std::time::Instant;

use super::*;

/// A journald that a test can stop.
#[derive(Clone, Default)]
struct Fake(Arc<(Mutex<State>, Condvar)>);

#[derive(Default)]
struct State {
    absent: bool,
    stopped: bool,
    /// Whether a writer is waiting inside.
    inside: bool,
    lines: Vec<String>,
}

impl Fake {
    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.0.0.lock().unwrap());
        self.0.1.notify_all();
    }

    fn wait_for(&self, what: &str, ok: impl Fn(&State) -> bool) {
        let state = self.0.0.lock().unwrap();
        let (_unused, late) =
            self.0.1.wait_timeout_while(state, Duration::from_secs(30), |state| !ok(state)).unwrap();
        assert!(!late.timed_out(), "{what}");
    }
}

impl Sink for Fake {
    fn ready(&mut self) -> io::Result<()> {
        if self.0.0.lock().unwrap().absent { Err(io::ErrorKind::ConnectionRefused.into()) } else { Ok(()) }
    }

    fn write(&mut self, line: &NumberedRecord) {
        let mut state = self.0.0.lock().unwrap();
        state.inside = true;
        self.0.1.notify_all();
        let mut state = self.0.1.wait_while(state, |state| state.stopped).unwrap();
        state.inside = false;
        state.lines.push(line.record.text.clone());
        self.0.1.notify_all();
    }
}

fn start(fake: &Fake) -> Journal {
    Journal::start_with(fake.clone(), 4, Duration::from_millis(1), &"mars".parse().unwrap()).unwrap()
}

fn line(text: impl Into<String>) -> NumberedRecord {
    NumberedRecord { seq: None, record: Record::local(Event::Peer, Priority::Info, "", text) }
}

fn flush(journal: &Journal) -> Result<(), oneshot::error::RecvError> {
    let (done, wait) = oneshot::channel();
    journal.flush(done);
    wait.blocking_recv()
}

#[test]
fn records_arrive_in_order() {
    let fake = Fake::default();
    let journal = start(&fake);
    for n in 0..100 {
        journal.hand_on(line(n.to_string()));
        flush(&journal).unwrap();
    }
    assert_eq!(fake.0.0.lock().unwrap().lines, (0..100).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(journal.degraded(), None);
}

#[test]
fn a_journald_that_does_not_read_holds_nobody_up_and_the_loss_is_told() {
    let fake = Fake::default();
    fake.set(|state| state.stopped = true);
    let (journal, began) = (start(&fake), Instant::now());
    journal.hand_on(line("first"));
    fake.wait_for("the thread hangs in journald", |state| state.inside);

    for n in 0..1000 {
        journal.hand_on(line(n.to_string()));
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    let said = loop {
        match journal.degraded_after(Duration::from_millis(20)) {
            Some(said) => break said,
            None => assert!(Instant::now() < deadline, "never called degraded"),
        }
    };
    assert!(said.contains("taken nothing") && said.contains("996 records"), "{said}");
    let worth_a_word = journal.degraded();
    assert!(worth_a_word.is_none() || began.elapsed() > BLOCKED, "a short stop: {worth_a_word:?}");

    fake.set(|state| state.stopped = false);
    fake.wait_for("the loss is told", |state| {
        state.lines.iter().any(|line| line.starts_with("996 records are missing"))
    });
    assert_eq!(fake.0.0.lock().unwrap().lines[..5], ["first", "0", "1", "2", "3"]);
    assert_eq!(journal.degraded_after(Duration::ZERO), None);
}

#[test]
fn without_a_journald_records_wait_for_one() {
    let fake = Fake::default();
    fake.set(|state| state.absent = true);
    let journal = start(&fake);
    journal.hand_on(line("waits"));
    let deadline = Instant::now() + Duration::from_secs(10);
    while journal.degraded().is_none() {
        assert!(Instant::now() < deadline, "never called degraded");
        thread::yield_now();
    }
    let said = journal.degraded().unwrap();
    assert!(said.contains("/run/systemd/journal/socket") && said.contains("keyholder audit"), "{said}");
    assert!(flush(&journal).is_err(), "a stop does not wait for what cannot happen");

    fake.set(|state| state.absent = false);
    fake.wait_for("the record arrives", |state| state.lines.last().is_some_and(|line| line == "waits"));
    assert!(fake.0.0.lock().unwrap().lines[0].contains("journald is back"));
    assert_eq!(journal.degraded(), None);
}
