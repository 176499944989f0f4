use std::collections::BTreeMap;

use super::*;
use crate::fleet::Node;
use crate::vocabulary::FleetHash;

fn fleet(nodes: &[(&str, &[&str], bool)]) -> Fleet {
    let node = |watched_by: &[&str], disabled| Node {
        address: "192.0.2.1:7433".parse().unwrap(),
        pins: std::collections::BTreeSet::new(),
        watched_by: watched_by.iter().map(|n| n.parse().unwrap()).collect(),
        disabled,
        insecure_unsigned_write: false,
        power: None,
        workers: BTreeMap::new(),
    };
    Fleet {
        hash: FleetHash::of(b""),
        redis: None,
        task_keys: Default::default(),
        approver_keys: Default::default(),
        lanes: Default::default(),
        nodes: nodes.iter().map(|(name, by, off)| (name.parse().unwrap(), node(by, *off))).collect(),
        grants: Vec::new(),
    }
}

#[test]
fn a_switch_concerns_who_watches_us_and_whom_we_watch() {
    let fleet = fleet(&[
        ("me", &["watcher", "off"], false),
        ("watcher", &[], false),
        ("watched", &["me"], false),
        ("stranger", &["watcher"], false),
        ("off", &["me"], true),
    ]);
    let me = "me".parse().unwrap();
    let names = |nodes: Vec<NodeName>| nodes.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(names(concerned(&fleet, &me)), ["watched", "watcher"]);
    assert_eq!(names(others(&fleet, &me)), ["stranger", "watched", "watcher"]);
}

#[test]
fn the_key_in_use_cannot_be_replaced_by_generate() {
    let parse = |args: &[&str]| {
        use clap::Parser;
        #[derive(Parser)]
        struct Only {
            #[command(flatten)]
            _key: GenerateArgs,
        }
        Only::try_parse_from([&["generate"], args].concat()).is_ok()
    };
    assert!(parse(&["--next", "--replace"]));
    assert!(!parse(&["--replace"]));
}
