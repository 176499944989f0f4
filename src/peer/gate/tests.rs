use super::*;

fn told(entry: &mut Admission) -> bool {
    entry.told.0.try_recv().is_ok()
}

fn strangers(gate: &Arc<Gate>, count: usize) -> Vec<Admission> {
    (0..count).map(|_| gate.enter(Pool::Stranger)).collect()
}

#[test]
fn a_full_pool_lets_the_newcomer_in_and_the_oldest_silent_one_out() {
    let gate = Arc::new(Gate::default());
    let mut crowd = strangers(&gate, 32);
    crowd[0].seat.spoke();
    assert!(crowd.iter_mut().all(|entry| !told(entry)));
    let mut newest = gate.enter(Pool::Stranger);
    assert!(told(&mut crowd[1]), "the oldest that has not said a word");
    assert!(!told(&mut crowd[0]) && !told(&mut newest));
}

#[test]
fn when_all_have_spoken_the_oldest_goes() {
    let gate = Arc::new(Gate::default());
    let mut crowd = strangers(&gate, 32);
    crowd.iter().for_each(|entry| entry.seat.spoke());
    let _newest = gate.enter(Pool::Stranger);
    assert!(told(&mut crowd[0]));
}

#[test]
fn a_flood_of_strangers_does_not_touch_the_seats_of_a_known_address() {
    let gate = Arc::new(Gate::default());
    let mut known = gate.enter(Pool::Address("192.0.2.40".parse().unwrap()));
    let mut crowd = strangers(&gate, 1000);
    assert!(!told(&mut known));
    crowd.retain_mut(|entry| !told(entry));
    assert_eq!(crowd.len(), 32);
    assert_eq!(gate.count(), 33);
}

#[test]
fn a_peer_that_comes_back_replaces_its_oldest_connection() {
    let gate = Arc::new(Gate::default());
    let mars = "mars".parse().unwrap();
    let mut links = strangers(&gate, 5);
    for link in &links {
        link.seat.spoke();
        link.seat.authenticated(&mars);
    }
    assert_eq!(links.iter_mut().map(told).collect::<Vec<_>>(), [true, false, false, false, false]);
}

#[test]
fn a_seat_is_free_again_when_its_connection_is_gone() {
    let gate = Arc::new(Gate::default());
    for _ in 0..1000 {
        assert!(!told(&mut gate.enter(Pool::Stranger)));
    }
    assert_eq!(gate.count(), 0);
}
