use zbus::OwnedVariant;
use zbus::message::Builder;

use super::*;

fn signal() -> Builder<'static> {
    Message::signal("/org/freedesktop/systemd1/unit/w_2eservice", PROPERTIES, "PropertiesChanged")
}

fn reply() -> Builder<'static> {
    let call = Message::method_call("/", "X").build(&()).unwrap();
    Message::method_return(&call.header())
}

fn value(value: impl Into<Variant<'static>>) -> OwnedVariant {
    OwnedVariant::try_from(value.into()).unwrap()
}

/// A dead unit's signals as systemd 252 sends them, with what is not needed left in as far as its types differ.
fn unit_values() -> HashMap<&'static str, OwnedVariant> {
    let job =
        zbus::Structure::from((121_u32, ObjectPath::try_from("/org/freedesktop/systemd1/job/121").unwrap()));
    HashMap::from([
        ("ActiveState", value("failed")),
        ("SubState", value("failed")),
        ("InactiveExitTimestampMonotonic", value(1_265_564_707_u64)),
        ("ActiveEnterTimestampMonotonic", value(1_265_564_707_u64)),
        ("ActiveExitTimestampMonotonic", value(1_266_590_048_u64)),
        ("Job", value(Variant::Structure(job))),
        ("ConditionResult", value(true)),
        ("InvocationID", value((1..=16_u8).collect::<Vec<u8>>())),
        ("ActivationDetails", value(Vec::<(String, String)>::new())),
    ])
}

fn service_values() -> HashMap<&'static str, OwnedVariant> {
    HashMap::from([
        ("MainPID", value(0_u32)),
        ("Result", value("signal")),
        ("ExecMainExitTimestampMonotonic", value(1_266_589_914_u64)),
        ("ExecMainCode", value(2_i32)),
        ("ExecMainStatus", value(9_i32)),
    ])
}

#[test]
fn a_change_is_complete_with_the_units_own_interface() {
    let mut raw = Raw::default();
    let nothing = Vec::<&str>::new();
    let service = signal().build(&(SERVICE, service_values(), vec!["ExecStart"])).unwrap();
    assert!(!changed(&service, &mut raw).unwrap());
    let unit = signal().build(&(UNIT, unit_values(), &nothing)).unwrap();
    assert!(changed(&unit, &mut raw).unwrap());
    assert_eq!((raw.active.as_str(), raw.result.as_str(), raw.job), ("failed", "signal", 121));
    assert_eq!(raw.invocation.unwrap().to_string(), "0102030405060708090a0b0c0d0e0f10");
    assert_eq!((raw.main_exit, raw.main_code, raw.main_status), (1_266_589_914, 2, 9));

    let never: HashMap<&str, OwnedVariant> = HashMap::from([("InvocationID", value(Vec::<u8>::new()))]);
    changed(&signal().build(&(UNIT, never, &nothing)).unwrap(), &mut raw).unwrap();
    assert_eq!(raw.invocation, None, "a unit without a run has an empty id");
}

#[test]
fn a_value_of_another_type_changes_nothing_and_another_body_is_an_error() {
    let mut raw = Raw { active: "active".to_owned(), job: 3, ..Raw::default() };
    let odd: HashMap<&str, OwnedVariant> = HashMap::from([
        ("ActiveState", value(7_u32)),
        ("Job", value("none")),
        ("InvocationID", value(vec![1_u8, 2])),
        ("ExecMainCode", value("2")),
    ]);
    all(&reply().build(&odd).unwrap(), &mut raw).unwrap();
    assert_eq!(raw, Raw { active: "active".to_owned(), job: 3, ..Raw::default() });
    assert!(all(&reply().build(&("x",)).unwrap(), &mut raw).is_err());
    assert!(changed(&signal().build(&()).unwrap(), &mut raw).is_err());
    assert!(listed(&reply().build(&("x",)).unwrap()).is_err());
    assert!(text(&reply().build(&(value(7_u32),)).unwrap()).is_err());
    assert_eq!(text(&reply().build(&(value("running"),)).unwrap()).unwrap(), "running");
}

#[test]
fn the_list_is_read_in_its_order() {
    let path = ObjectPath::try_from("/").unwrap();
    let line =
        |load, job| ("x", "d", load, "active", "running", "", path.clone(), job, "restart", path.clone());
    let lines = listed(&reply().build(&vec![line("loaded", 0_u32), line("masked", 9)]).unwrap()).unwrap();
    assert_eq!(
        lines.iter().map(|line| (line.load.as_str(), line.job)).collect::<Vec<_>>(),
        [("loaded", 0), ("masked", 9)]
    );
}

#[test]
fn a_door_is_shut_that_is_stopped_and_no_other() {
    for (load, active, shut) in [
        ("loaded", "active", false),
        ("loaded", "inactive", true),
        ("loaded", "failed", true),
        ("masked", "inactive", true),
        ("loaded", "activating", false),
        ("loaded", "deactivating", false),
        // Whoever passes sockets by another unit knows what that unit is called.
        ("not-found", "inactive", false),
    ] {
        let (load, active) = (load.to_owned(), active.to_owned());
        let said = format!("{load} {active}");
        assert_eq!(Listed { load, active, sub: "dead".to_owned(), job: 0 }.shut(), shut, "{said}");
    }
}

#[test]
fn every_message_can_be_built_for_the_longest_name() {
    let unit: UnitName = format!("{}.service", "9".repeat(247)).parse().unwrap();
    for message in [
        pin(&unit),
        unpin(&unit),
        read(&unit),
        reset_failed(&unit),
        restart(&unit),
        owner(),
        subscribe(),
        door(),
    ] {
        message.unwrap();
    }
    system_state().unwrap();
    list(&vec![unit; 1000]).unwrap();
    assert_eq!(matches().unwrap().len(), 4);
}
