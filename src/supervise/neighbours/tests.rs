use super::*;
use crate::fleet::parse;
use crate::peer::wire::Class;
use crate::vocabulary::{FailureClass, InvocationId};

fn at(secs: u64) -> Moment {
    Moment::from_millis(secs * 1000)
}

/// `mars`, which `ai-core` and then `venus` watch, has a queue that may stand still for four seconds; their grace is two.
fn fleet() -> Fleet {
    let pin = |digit: char| format!("sha256:{}", digit.to_string().repeat(64));
    let text = format!(
        r#"version: 1
redis: {{ url: "redis://ai-core:6379" }}
nodes:
  ai-core: {{ address: 192.0.2.1:7433, pins: ["{}"], watched_by: [venus] }}
  venus: {{ address: 192.0.2.2:7433, pins: ["{}"], watched_by: [ai-core] }}
  mars:
    address: 192.0.2.3:7433
    pins: ["{}"]
    watched_by: [ai-core, venus]
    workers:
      agent:
        unit: agent.service
        delivery_gap: {{ backlog: {{ queue: jobs, not_draining_for: 4s }}, repipe: {{ restart: tunnel.service }} }}
        grace: 2s
grants:
  - {{ from: ai-core, on: mars, workers: ["*"], verbs: [status, relaunch, nudge, repipe] }}
  - {{ from: venus, on: mars, workers: ["*"], verbs: [status, relaunch, nudge, repipe] }}
"#,
        pin('a'),
        pin('b'),
        pin('c')
    );
    parse("fleet.yaml", text.as_bytes()).unwrap_or_else(|problems| panic!("{problems}")).fleet
}

fn agent() -> Target {
    "mars/agent".parse().unwrap()
}

fn report(class: Class, acted: Option<u64>) -> WorkerReport {
    WorkerReport {
        why: "running".to_owned(),
        invocation: Some(InvocationId::from_bytes([1; 16])),
        last_act: acted.map(|_| "repipe carried out".to_owned()),
        last_act_ms: acted,
        ..WorkerReport::plain("mars", "agent", class)
    }
}

/// A watcher of `mars` and what it sees.
struct Watcher {
    me: NodeName,
    fleet: Fleet,
    mars: Neighbour,
}

impl Watcher {
    fn new(me: &str) -> Self {
        let mut mars = Neighbour::new(PeerHandle::idle(), at(0));
        mars.turn(NodeState::Up, "it answers".to_owned(), at(0));
        mars.change(report(Class::Healthy, None), at(0));
        Self { me: me.parse().unwrap(), fleet: fleet(), mars }
    }

    /// The same work waits at the head of the queue, from `from` until `until`.
    fn work_waits(&mut self, from: u64, until: u64) {
        for second in from..=until {
            self.mars.read(&self.fleet, &agent(), Sign::Flow, Reading::Mark(7), at(second));
        }
    }

    /// What it orders at this time.
    fn orders(&mut self, second: u64) -> Option<Remedy> {
        let (go, _) = self.mars.watcher_jobs(&self.me, &agent().node, &self.fleet, at(second));
        go.into_iter().next().map(|(_, remedy, _)| remedy)
    }

    fn served(&mut self, second: u64) {
        self.mars.errand_done(&agent(), true, at(second));
    }
}

#[tokio::test]
async fn a_goodbye_excuses_silence_for_a_while_and_not_for_ever() {
    let mut mars = Neighbour::new(PeerHandle::idle(), at(0));
    mars.turn(NodeState::Leaving, "goodbye".to_owned(), at(10));
    assert!(matches!(mars.overdue(at(10_000)), Return::NotAwaited), "it still answers");
    mars.silent_since_goodbye(NodeState::Unreachable, "no answer".to_owned());
    assert!(matches!(mars.overdue(at(11)), Return::Due(due) if due == at(610)));
    assert!(matches!(mars.overdue(at(610)), Return::Overdue(NodeState::Unreachable, _)));
    mars.turn(NodeState::Up, "back".to_owned(), at(700));
    assert!(matches!(mars.overdue(at(10_000)), Return::NotAwaited));
}

#[tokio::test]
async fn what_only_the_outside_sees_is_repaired_by_the_first_watcher_and_by_the_second_if_that_one_does_not()
{
    let (mut first, mut second) = (Watcher::new("ai-core"), Watcher::new("venus"));
    for watcher in [&mut first, &mut second] {
        watcher.work_waits(10, 14);
        assert_eq!(watcher.orders(15), None, "{}: its node comes first", watcher.me);
    }
    assert_eq!((first.orders(16), second.orders(16)), (Some(Remedy::Repipe), None));
    assert_eq!(first.orders(17), None, "one order at a time");
    assert_eq!(second.orders(18), Some(Remedy::Repipe));
}

#[tokio::test]
async fn the_watchers_do_not_come_all_at_once_when_a_supervisor_is_back_that_was_away() {
    let (mut first, mut second) = (Watcher::new("ai-core"), Watcher::new("venus"));
    for watcher in [&mut first, &mut second] {
        watcher.mars.turn(NodeState::SupervisorDead, "silent".to_owned(), at(11));
        watcher.work_waits(10, 30);
        assert_eq!(watcher.orders(30), None, "nobody takes orders there");
        watcher.mars.turn(NodeState::Up, "it answers".to_owned(), at(31));
        assert_eq!(watcher.orders(32), None, "{}: its node comes first", watcher.me);
    }
    assert_eq!((first.orders(33), second.orders(33)), (Some(Remedy::Repipe), None));
    assert_eq!(second.orders(35), Some(Remedy::Repipe));
}

#[tokio::test]
async fn a_supervisor_that_was_replaced_too_quickly_to_be_missed_comes_first_again() {
    let mut first = Watcher::new("ai-core");
    first.work_waits(10, 20);
    let hello = |run: u8| Hello {
        node: agent().node,
        version: "0.1.0".to_owned(),
        boot_nonce: BootNonce::from_bytes([run; 16]),
        fleet_hash: FleetHash::of(b""),
    };
    first.mars.hello(hello(1), at(20));
    assert_eq!(first.orders(21), None);
    assert_eq!(first.orders(22), Some(Remedy::Repipe));
}

#[tokio::test]
async fn what_another_has_just_done_has_to_show_first_whether_it_helped() {
    let mut second = Watcher::new("venus");
    second.work_waits(10, 17);
    second.mars.change(report(Class::Healthy, Some(500)), at(18));
    assert_eq!(second.orders(18), None);
    assert_eq!(second.orders(21), None);
    assert_eq!(second.orders(25), None, "what was seen before says nothing");
    second.work_waits(18, 26);
    assert_eq!(second.orders(26), Some(Remedy::Repipe), "it did not help, and nobody else comes");
}

#[tokio::test]
async fn the_watchers_take_turns_from_when_it_is_left_to_them_and_not_from_its_death() {
    let (mut first, mut second) = (Watcher::new("ai-core"), Watcher::new("venus"));
    for watcher in [&mut first, &mut second] {
        let dead = WorkerReport { doing: "its grace".to_owned(), ..report(Class::Dead, None) };
        watcher.mars.change(dead, at(10));
        assert_eq!(watcher.orders(19), None);
        let left = WorkerReport { for_ms: 10_000, left_to_peers: true, ..report(Class::Dead, None) };
        watcher.mars.change(left.clone(), at(20));
    }
    assert_eq!((first.orders(20), second.orders(20)), (Some(Remedy::Relaunch), None));
    assert_eq!(second.orders(21), None);
    assert_eq!(second.orders(22), Some(Remedy::Relaunch));
}

#[tokio::test]
async fn a_host_that_another_watcher_reached_a_moment_ago_is_not_unreached_for_long() {
    let mut mars = Watcher::new("ai-core").mars;
    mars.turn(NodeState::Unreachable, "no answer".to_owned(), at(10));
    assert_eq!(mars.unreached_for(false, at(40)), Duration::from_secs(30));
    assert_eq!(mars.unreached_for(true, at(100)), Duration::ZERO);
    // That watcher is silent now: what it said last has been true.
    assert_eq!(mars.unreached_for(false, at(101)), Duration::from_secs(1));
    mars.turn(NodeState::Up, "it answers".to_owned(), at(110));
    mars.turn(NodeState::Unreachable, "no answer".to_owned(), at(200));
    assert_eq!(mars.unreached_for(false, at(205)), Duration::from_secs(5));
}

#[tokio::test]
async fn a_repipe_that_only_the_outside_sees_to_be_useless_is_followed_by_a_relaunch() {
    let mut first = Watcher::new("ai-core");
    first.work_waits(10, 16);
    assert_eq!(first.orders(16), Some(Remedy::Repipe));
    first.served(16);
    first.mars.change(report(Class::Healthy, Some(0)), at(16));
    first.work_waits(17, 20);
    assert_eq!(first.orders(17), None, "it has two seconds to show");
    assert_eq!(first.orders(18), Some(Remedy::Relaunch));
}

#[tokio::test]
async fn nothing_is_called_useless_by_what_was_seen_before_it_had_its_time() {
    let mut first = Watcher::new("ai-core");
    first.work_waits(10, 16);
    assert_eq!(first.orders(16), Some(Remedy::Repipe));
    first.served(16);
    first.mars.change(report(Class::Healthy, Some(0)), at(16));
    // This watcher was away meanwhile, and has not looked since.
    assert_eq!(first.orders(20), None);
    first.work_waits(20, 20);
    assert_eq!(first.orders(20), None, "who was blind does not know");
    first.work_waits(21, 24);
    assert_eq!(first.orders(26), Some(Remedy::Repipe), "it was not seen to stand still all along");
}

#[tokio::test]
async fn a_repipe_that_helped_ends_the_story() {
    let mut first = Watcher::new("ai-core");
    first.work_waits(10, 16);
    assert_eq!(first.orders(16), Some(Remedy::Repipe));
    first.served(16);
    first.mars.read(&first.fleet, &agent(), Sign::Flow, Reading::Moving, at(17));
    assert_eq!(first.orders(18), None);
    first.work_waits(18, 24);
    assert_eq!(first.orders(24), Some(Remedy::Repipe), "the next fall begins with the first rung");
}

#[tokio::test]
async fn a_word_about_another_node_has_an_age_however_often_it_is_repeated() {
    let mars: NodeName = "mars".parse().unwrap();
    let word = |ago_ms| vec![Sighting { node: "mars".parse().unwrap(), state: NodeState::Up, ago_ms }];
    let mut venus = Neighbour::new(PeerHandle::idle(), at(0));
    venus.says(word(0), at(10));
    assert!(venus.sees(&mars, at(24)).is_some());
    assert_eq!(venus.sees(&mars, at(25)), None, "it has not been said again");
    venus.says(word(10_000), at(30));
    assert_eq!(venus.sees(&mars, at(34)), Some((NodeState::Up, Duration::from_secs(14))));
    assert_eq!(venus.sees(&mars, at(35)), None, "the age travels with it");
    venus.says(word(20_000), at(40));
    assert_eq!(venus.sees(&mars, at(40)), None, "what is old is not made new by being said again");
}

#[test]
fn the_age_of_a_word_is_on_the_wire_and_a_young_one_reads_as_before() {
    let read = |text: &str| serde_json::from_str::<Sighting>(text).unwrap();
    let old = Sighting { ago_ms: 20_000, ..read(r#"{"node":"mars","state":"up"}"#) };
    assert_eq!(read(&serde_json::to_string(&old).unwrap()), old);
    let young = Sighting { ago_ms: 4_000, ..old };
    assert_eq!(serde_json::to_string(&young).unwrap(), r#"{"node":"mars","state":"up"}"#);
}

#[tokio::test]
async fn a_rehearsal_that_a_neighbour_speaks_of_ends_after_the_longest_lease() {
    let mut mars = Neighbour::new(PeerHandle::idle(), at(0));
    let drill = || WorkerReport { drill: Some(FailureClass::Dead), ..report(Class::Dead, None) };
    for second in [10, 400, 750] {
        mars.change(drill(), at(second));
        assert!(mars.rehearsed_now(at(second)).is_some());
    }
    mars.change(drill(), at(10 + 750));
    assert!(
        mars.rehearsed_now(at(10 + 750)).is_none(),
        "its word would block every other rehearsal for ever"
    );
    mars.change(report(Class::Healthy, None), at(800));
    mars.change(drill(), at(900));
    assert!(mars.rehearsed_now(at(901)).is_some(), "another one counts again");
}
