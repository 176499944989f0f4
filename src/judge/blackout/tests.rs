use super::*;

const AFTER: Duration = Duration::from_secs(30);

fn came() -> PingReply {
    PingReply::Came("port unreachable".to_owned())
}

fn none() -> PingReply {
    PingReply::None("no answer".to_owned())
}

fn link() -> PingReply {
    PingReply::Link("it answers ARP".to_owned())
}

fn nobody() -> PingReply {
    PingReply::Nobody("no default route".to_owned())
}

/// A node that is down, as the watcher of a third sees it.
fn dark(for_: u64) -> Blackout {
    Blackout {
        for_: Duration::from_secs(for_),
        probe: Some(Probe { fault: None, node: none(), gateway: nobody(), witness: None }),
        others: Vec::new(),
        reached: vec!["venus".to_owned()],
        watched: 1,
        rank: 0,
        able: 0,
    }
}

fn with(of: &Blackout, change: impl FnOnce(&mut Probe)) -> Blackout {
    let mut changed = of.clone();
    changed.probe.as_mut().map(change).unwrap();
    changed
}

fn says(word: Word) -> Blackout {
    Blackout { others: vec![("venus".to_owned(), word, "venus says so".to_owned())], ..dark(3600) }
}

/// Two nodes: nobody else is there.
fn pair(for_: u64, witness: Option<PingReply>) -> Blackout {
    with(&Blackout { reached: Vec::new(), watched: 0, ..dark(for_) }, |probe| probe.witness = witness)
}

fn refused(blackout: &Blackout, because: &str) {
    match power(blackout, AFTER) {
        Power::No(why) => assert!(why.contains(because), "{why}"),
        other @ (Power::Now | Power::In(_)) => panic!("{other:?} instead of {because}"),
    }
}

#[test]
fn a_dead_host_is_switched_on_when_it_is_time_and_by_the_first_in_rank() {
    assert_eq!(power(&dark(0), AFTER), Power::In(AFTER));
    assert_eq!(power(&dark(30), AFTER), Power::Now);
    assert_eq!(power(&Blackout { rank: 1, ..dark(30) }, AFTER), Power::In(POWER_STEP));
    let done = Blackout { rank: 1, able: 1, ..dark(30) };
    assert_eq!(power(&done, AFTER), Power::In(POWER_STEP + POWER_DONE), "the first one has seen to it");
}

#[test]
fn nothing_is_run_before_it_was_found_out() {
    assert_eq!(power(&Blackout { probe: None, ..dark(3600) }, AFTER), Power::In(Duration::from_secs(1)));
}

#[test]
fn a_fault_of_this_host_is_no_death_of_another() {
    refused(&with(&dark(3600), |probe| probe.fault = Some("eth0 is down".to_owned())), "eth0 is down");
}

#[test]
fn an_answer_of_any_kind_proves_the_host_alive() {
    refused(&with(&dark(3600), |probe| probe.node = came()), "it answered: port unreachable");
    refused(&with(&dark(60), |probe| probe.node = link()), "it answers ARP");
    let young = with(&dark(59), |probe| probe.node = link());
    assert!(matches!(power(&young, AFTER), Power::In(_)), "that entry may be from before its death");
    assert_eq!(power(&with(&dark(30), |probe| probe.node = nobody()), AFTER), Power::Now);
}

#[test]
fn a_watcher_that_reaches_it_is_believed_and_one_that_has_not_looked_is_waited_for() {
    refused(&says(Word::Reaches), "venus says so");
    assert!(matches!(power(&says(Word::NotYet), AFTER), Power::In(_)));
    assert_eq!(power(&says(Word::DoesNot), AFTER), Power::Now);
}

#[test]
fn a_watcher_that_is_cut_off_from_its_gateway_acts_on_nobody() {
    refused(&with(&dark(3600), |probe| probe.gateway = none()), "cut off from its gateway");
    assert_eq!(power(&with(&dark(30), |probe| probe.gateway = came()), AFTER), Power::Now);
    assert!(matches!(power(&with(&dark(30), |probe| probe.gateway = link()), AFTER), Power::In(_)));
    assert_eq!(power(&with(&dark(60), |probe| probe.gateway = link()), AFTER), Power::Now);
}

#[test]
fn a_watcher_that_reaches_nobody_needs_a_witness() {
    refused(&pair(3600, None), "`power` names no witness");
    refused(&Blackout { watched: 2, ..pair(3600, None) }, "none of the nodes that it watches");
    refused(&pair(3600, Some(none())), "the witness does not answer");
    refused(&pair(3600, Some(nobody())), "the witness does not answer");
    assert_eq!(power(&pair(30, Some(came())), AFTER), Power::Now);
    // ARP comes in also where a rule of this host drops all that is IP.
    refused(&pair(3600, Some(link())), "the witness is to answer by IP");
    assert_eq!(
        power(&with(&dark(30), |probe| probe.witness = Some(none())), AFTER),
        Power::Now,
        "venus is reached"
    );
}

#[test]
fn each_cause_is_named_with_how_it_was_excluded() {
    let all = causes(&says(Word::DoesNot));
    let found: Vec<Found> = all.iter().map(|cause| cause.found).collect();
    assert_eq!(
        found,
        [Found::Excluded, Found::Excluded, Found::Excluded, Found::CannotTell, Found::Excluded]
    );
    assert!(all.iter().all(|cause| !cause.how.is_empty()));
}
