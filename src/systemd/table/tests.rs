use super::*;
use crate::vocabulary::InvocationId;

fn unit(name: &str) -> UnitName {
    name.parse().unwrap()
}

fn raw(id: &str, active: &str) -> Raw {
    Raw {
        id: id.to_owned(),
        load: "loaded".to_owned(),
        active: active.to_owned(),
        sub: "x".to_owned(),
        ..Raw::default()
    }
}

fn told(table: &mut Table) -> Vec<String> {
    std::iter::from_fn(|| table.next_news())
        .map(|event| match event {
            SystemdEvent::Observed { unit, observation: Observation::Unit(seen) } => {
                format!("{unit} {:?}", seen.active)
            }
            SystemdEvent::Observed { unit, observation: Observation::Failed(why) } => format!("{unit} {why}"),
            SystemdEvent::Host(state) => format!("{state:?}"),
            SystemdEvent::Bus(state) => format!("{state:?}"),
            SystemdEvent::Door { shut } => format!("shut: {shut}"),
        })
        .collect()
}

fn watching(names: &[&str]) -> Table {
    let mut table = Table::default();
    table.watch(&names.iter().map(|name| unit(name)).collect::<Vec<_>>());
    table
}

#[test]
fn a_door_is_news_when_it_is_shut_and_when_it_is_open_again() {
    let mut table = Table::default();
    table.tell_door(false);
    assert!(!table.has_news(), "it is open unless told");
    table.tell_door(true);
    assert_eq!(told(&mut table), ["shut: true"]);
    table.tell_door(true);
    assert!(!table.has_news());
    table.tell_door(false);
    assert_eq!(told(&mut table), ["shut: false"]);
}

#[test]
fn each_change_is_told_once_and_a_look_in_any_case() {
    let mut table = watching(&["a.service"]);
    let a = unit("a.service");
    table.replace(&a, raw("a.service", "active"));
    assert_eq!(told(&mut table), ["a.service Active"]);
    table.replace(&a, raw("a.service", "active"));
    assert!(!table.has_news());
    table.ask(&a);
    table.replace(&a, raw("a.service", "active"));
    assert_eq!(told(&mut table), ["a.service Active"]);
    table.publish(&a);
    assert!(!table.has_news(), "one look is one answer");
}

#[test]
fn a_slow_listener_gets_the_latest_state_and_no_queue() {
    let mut table = watching(&["a.service", "b.service"]);
    for _ in 0..1000 {
        for state in ["active", "failed", "activating"] {
            table.replace(&unit("a.service"), raw("a.service", state));
            table.replace(&unit("b.service"), raw("b.service", state));
        }
    }
    assert_eq!(told(&mut table), ["a.service Activating", "b.service Activating"]);
    table.replace(&unit("a.service"), raw("a.service", "failed"));
    table.replace(&unit("a.service"), raw("a.service", "activating"));
    assert_eq!(told(&mut table), Vec::<String>::new(), "there and back again is no change");
}

#[test]
fn a_failure_to_observe_is_told_once_whatever_its_words() {
    let mut table = watching(&["a.service"]);
    let a = unit("a.service");
    table.replace(&a, raw("a.service", "active"));
    table.failed(&a, "first");
    assert_eq!(told(&mut table), ["a.service first"]);
    assert_eq!(table.raw(&a), None, "what was known before counts no more");
    table.failed(&a, "second");
    assert_eq!(told(&mut table), Vec::<String>::new());
    table.replace(&a, raw("a.service", "active"));
    assert_eq!(told(&mut table), ["a.service Active"]);
}

#[test]
fn signals_of_an_alias_come_from_the_proper_name() {
    let mut table = watching(&["alias.service", "real.service"]);
    let (alias, real) = (unit("alias.service"), unit("real.service"));
    assert_eq!(table.at(&path::of(&alias)), std::slice::from_ref(&alias));
    table.replace(&alias, raw("real.service", "active"));
    assert_eq!(table.at(&path::of(&alias)), []);
    assert_eq!(table.at(&path::of(&real)), [alias, real]);
}

#[test]
fn the_list_of_units_can_change() {
    let mut table = watching(&["a.service", "b.service"]);
    table.replace(&unit("a.service"), raw("a.service", "active"));
    let (new, gone) = table.watch(&[unit("b.service"), unit("c.service")]);
    assert_eq!((new, gone), (vec![unit("c.service")], vec![unit("a.service")]));
    assert_eq!(told(&mut table), Vec::<String>::new(), "nothing is told of a unit that is watched no more");
    table.replace(&unit("a.service"), raw("a.service", "failed"));
    assert!(!table.has_news() && !table.watches(&unit("a.service")));
    assert_eq!(table.at(&path::of(&unit("a.service"))), []);
}

#[test]
fn the_bus_and_the_host_come_first_and_the_host_only_when_it_changes() {
    let mut table = watching(&["a.service"]);
    table.replace(&unit("a.service"), raw("a.service", "active"));
    table.tell_host(HostState::Running);
    table.tell_bus(BusState::Connected);
    assert_eq!(told(&mut table), ["Connected", "Running", "a.service Active"]);
    table.tell_host(HostState::Stopping);
    table.tell_host(HostState::Running);
    assert_eq!(told(&mut table), Vec::<String>::new());
    assert_eq!(table.host(), Some(HostState::Running));
}

#[test]
fn what_pid1_forgets_of_a_stopped_unit_is_remembered_until_it_runs_again() {
    let mut table = watching(&["a.service"]);
    let a = unit("a.service");
    let run = |byte| Some(InvocationId::from_bytes([byte; 16]));
    let stopped =
        Raw { invocation: run(1), inactive_exit: 5, active_exit: 9, ..raw("a.service", "inactive") };
    table.replace(&a, Raw { invocation: run(1), inactive_exit: 5, ..raw("a.service", "active") });
    table.replace(&a, stopped.clone());
    told(&mut table);
    // Collected, and loaded again because somebody asked.
    table.replace(&a, raw("a.service", "inactive"));
    assert!(!table.has_news(), "the stop that was seen has not become a unit that never ran");
    assert_eq!(table.raw(&a), Some(&stopped));
    table.replace(&a, Raw { load: "masked".to_owned(), ..raw("a.service", "inactive") });
    assert_eq!(told(&mut table), ["a.service Inactive"]);
    let again = Raw { invocation: run(2), inactive_exit: 12, ..raw("a.service", "active") };
    table.replace(&a, again.clone());
    assert_eq!(table.raw(&a), Some(&again));
}

fn tied(id: &str, active: &str) -> Raw {
    let mut raw = raw(id, active);
    raw.ties.set("Requires", Some(vec!["db.service".to_owned()]));
    raw
}

#[test]
fn of_a_unit_that_is_down_nothing_is_told_before_those_that_it_hangs_together_with_were_looked_at() {
    let (w, db) = (unit("w.service"), path::of_name("db.service"));
    let mut table = watching(&["w.service"]);
    table.replace(&w, tied("w.service", "active"));
    assert_eq!(told(&mut table), ["w.service Active"]);
    table.other_changed(&db);
    assert_eq!(table.next_to_look(), None, "it runs, so nobody asks");

    table.replace(&w, tied("w.service", "inactive"));
    assert_eq!(told(&mut table), [""; 0]);
    assert_eq!(table.next_to_look(), Some((w.clone(), "db.service".to_owned())));
    // What changes meanwhile is looked at afterwards.
    table.other_changed(&db);
    assert_eq!(table.next_to_look(), None);
    table.looked(&w, "db.service".to_owned(), Some(raw("db.service", "failed")));
    assert_eq!(told(&mut table), ["w.service Inactive"]);
    assert!(table.next_to_look().is_some());
    // One that cannot be read keeps nothing back.
    table.looked(&w, "db.service".to_owned(), None);
    assert_eq!(told(&mut table), ["w.service Inactive"], "the cause is not known any more");
    // Up again: told at once, and what is still under way changes nothing.
    table.replace(&w, tied("w.service", "inactive"));
    table.replace(&w, tied("w.service", "active"));
    assert_eq!(told(&mut table), ["w.service Active"]);
    table.looked(&w, "db.service".to_owned(), Some(raw("db.service", "active")));
    assert_eq!(told(&mut table), [""; 0]);
    table.forget();
    table.other_changed(&db);
    assert_eq!(table.next_to_look(), None);
}

#[test]
fn a_start_that_was_called_off_is_known_until_another_run_begins() {
    let run = |n: u8| Some(InvocationId::from_bytes([n; 16]));
    let starting = |n| Raw { invocation: run(n), inactive_exit: 5, ..raw("w.service", "activating") };
    let failed = |n| Raw {
        invocation: run(n),
        inactive_exit: 5,
        result: "signal".to_owned(),
        ..raw("w.service", "failed")
    };
    let mut table = watching(&["w.service"]);
    let w = unit("w.service");
    let cause = |table: &Table| table.raw(&w).unwrap().snapshot().stop;
    table.replace(&w, starting(1));
    table.called_off(&w);
    table.replace(&w, failed(1));
    assert_eq!(cause(&table), crate::judge::StopCause::Ordered);
    // The connection is lost, and what systemd shows is the same as after a start that failed.
    table.forget();
    table.replace(&w, failed(1));
    assert_eq!(cause(&table), crate::judge::StopCause::Ordered);
    table.replace(&w, failed(2));
    assert_eq!(cause(&table), crate::judge::StopCause::ByItself);
    // A job of one that runs is no start.
    table.replace(&w, Raw { invocation: run(3), ..raw("w.service", "active") });
    table.called_off(&w);
    table.replace(&w, failed(3));
    assert_eq!(cause(&table), crate::judge::StopCause::ByItself);
}
