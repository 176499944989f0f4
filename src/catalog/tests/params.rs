//! From parameters to commands.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::{Action, Arg, Param, ParamError};
use super::{GOOD, MARS, load};

fn action(name: &str) -> Action {
    load(GOOD).unwrap().catalog.actions.remove(&name.parse().unwrap()).unwrap()
}

fn given(value: Value) -> BTreeMap<String, Value> {
    serde_json::from_value(value).unwrap()
}

fn logs(value: Value) -> Result<Vec<String>, ParamError> {
    action("service.logs").argv(&given(value))
}

#[test]
fn good_parameters_fill_their_places() {
    let expected = ["/usr/bin/journalctl", "-u", "b.service", "-n", "10", "--no-pager"];
    assert_eq!(logs(json!({ "unit": "b.service", "lines": 10 })).unwrap(), expected);
    assert_eq!(logs(json!({ "unit": "b.service", "lines": "10" })).unwrap(), expected);
    let peer = action("queue.length_aicore_peer").argv(&BTreeMap::new()).unwrap();
    assert_eq!(peer, ["/usr/bin/redis-cli", "-h", "ai-core", "LLEN", "tasks:maintenance:ai-core"]);
}

#[test]
fn numbers_have_one_spelling() {
    for bad in [
        json!("+10"),
        json!("-10"),
        json!("010"),
        json!("1e2"),
        json!("10.0"),
        json!(" 10"),
        json!("10\n"),
        json!("10\0"),
        json!("٣٤"),
        json!("１０"),
        json!("0x10"),
        json!("1_0"),
        json!(""),
        json!("99999999999999999999"),
        json!("18446744073709551626"),
        json!(10.0),
        json!(10.5),
        json!(1e2),
        json!(-10),
        json!(9),
        json!(201),
        json!(4294967306_u64),
        json!(u64::MAX),
        json!(true),
        json!(null),
        json!([10]),
        json!({ "min": 10 }),
    ] {
        let error = logs(json!({ "unit": "a.service", "lines": bad })).unwrap_err();
        assert!(
            matches!(&error, ParamError::Value { param, .. } if param.as_str() == "lines"),
            "{bad}: {error}"
        );
    }
    // serde_json takes these for floats, so they are none of ours.
    for bad in ["1e2", "10.0", "-0", "99999999999999999999", "1E2"] {
        let value: Value = serde_json::from_str(bad).unwrap();
        assert!(logs(json!({ "unit": "a.service", "lines": value })).is_err(), "{bad}");
    }
    for good in [json!(10), json!(200), json!("10"), json!("200")] {
        assert!(logs(json!({ "unit": "a.service", "lines": good })).is_ok());
    }
}

#[test]
fn values_of_an_enum_are_equal_to_the_byte() {
    for bad in [
        json!("c.service"),
        json!("A.service"),
        json!("a.service "),
        json!("a.service\n"),
        json!("a.service\0"),
        json!("--x=y"),
        json!("$(id)"),
        json!("../a.service"),
        json!("a.service;id"),
        json!("*"),
        json!(""),
        json!("а.service"),
        json!(1),
        json!(null),
        json!(["a.service"]),
        json!({ "enum": "a.service" }),
    ] {
        let error = logs(json!({ "unit": bad, "lines": 10 })).unwrap_err();
        assert!(
            matches!(&error, ParamError::Value { param, .. } if param.as_str() == "unit"),
            "{bad}: {error}"
        );
    }
}

#[test]
fn refusals_name_the_parameter_and_what_is_allowed() {
    let told = |value| logs(value).unwrap_err().to_string();
    assert_eq!(
        told(json!({ "unit": "ssh.service", "lines": 10 })),
        "parameter `unit` cannot be \"ssh.service\"; expected one of a.service, b.service"
    );
    assert_eq!(
        told(json!({ "unit": "a.service" })),
        "parameter `lines` is missing; expected a whole number from 10 to 200"
    );
    assert_eq!(
        told(json!({ "unit": "a.service", "lines": 10, "argv": ["/bin/sh"] })),
        "there is no parameter `argv`; expected lines, unit"
    );
    assert_eq!(
        action("queue.length_aicore_peer").argv(&given(json!({ "env": {} }))).unwrap_err().to_string(),
        "there is no parameter `env`; this action takes none"
    );
    let hostile = format!("\x1b[2J\u{202e}{}", "x".repeat(10_000));
    for value in [json!({ (hostile.as_str()): 1 }), json!({ "unit": hostile, "lines": 1 })] {
        let text = told(value);
        assert!(text.len() < 500 && !text.contains(['\x1b', '\u{202e}']), "{text}");
    }
}

/// Whatever JSON a task may carry.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0..300_u64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0..300_u64).prop_map(|number| Value::from(number.to_string())),
        "[-+a-z0-9.: \\n\\x00$(){}*]{0,12}".prop_map(Value::from),
        prop_oneof![
            Just("a.service"),
            Just("b.service"),
            Just("apache2.service"),
            Just("tasks:maintenance:mars")
        ]
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::btree_map("[a-z]{1,3}", inner, 0..3).prop_map(|map| json!(map)),
        ]
    })
}

proptest! {
    /// The command holds the catalog's words, the enums' values and numbers within bounds, and nothing else, whatever
    /// comes with a task.
    #[test]
    fn nothing_reaches_a_command_but_what_the_catalog_says(
        which in any::<prop::sample::Index>(),
        params in proptest::collection::btree_map(
            prop_oneof![Just("unit".to_owned()), Just("lines".to_owned()), Just("queue".to_owned()), "[a-z]{1,4}"],
            anything(),
            0..4,
        ),
    ) {
        let catalog = load(MARS).unwrap().catalog;
        let actions: Vec<&Action> = catalog.actions.values().collect();
        let action = *which.get(&actions);
        let Ok(argv) = action.argv(&params) else { return Ok(()) };
        prop_assert_eq!(argv.len(), action.argv.len());
        let declared: Vec<&str> = action.params.keys().map(|name| name.as_str()).collect();
        prop_assert_eq!(params.keys().collect::<Vec<_>>(), declared);
        for (word, arg) in argv.iter().zip(&action.argv) {
            match arg {
                Arg::Literal(text) => prop_assert_eq!(word, text),
                Arg::Param(name) => match &action.params[name] {
                    Param::Enum(values) => prop_assert!(values.contains(word)),
                    Param::Int { min, max } => {
                        let number: u32 = word.parse().unwrap();
                        prop_assert!((*min..=*max).contains(&number) && number.to_string() == *word);
                    }
                },
            }
            prop_assert!(!word.is_empty() && word.bytes().all(|b| b == b' ' || b.is_ascii_graphic()));
        }
    }
}
