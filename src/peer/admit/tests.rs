use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::*;
use crate::fleet::{BlastRadius, Grant, Node, Policy, Scope, Worker};
use crate::peer::wire::{DeadLetter, RelaunchOrder};
use crate::vocabulary::{FleetHash, Pin, ReqId};

const NONCE: [u8; 16] = [7; 16];

fn node(watched_by: &[&str]) -> Node {
    let worker = || Worker {
        unit: "x.service".parse().unwrap(),
        lane: None,
        blast_radius: BlastRadius::Normal,
        policy: Policy::default(),
        stuck: None,
        delivery_gap: None,
    };
    Node {
        address: "192.0.2.10:7433".parse().unwrap(),
        pins: BTreeSet::new(),
        watched_by: watched_by.iter().map(|n| n.parse().unwrap()).collect(),
        disabled: false,
        insecure_unsigned_write: false,
        power: None,
        workers: ["write", "agent"].map(|name| (name.parse().unwrap(), Arc::new(worker()))).into(),
    }
}

fn fleet() -> Fleet {
    let grant = |from: &str, workers: Scope, rights: &[Right]| Grant {
        from: from.parse().unwrap(),
        on: "mars".parse().unwrap(),
        workers,
        rights: rights.iter().copied().collect(),
    };
    let only_write = Scope::Only(BTreeSet::from(["write".parse().unwrap()]));
    Fleet {
        hash: FleetHash::of(b""),
        redis: None,
        task_keys: Default::default(),
        approver_keys: Default::default(),
        lanes: Default::default(),
        nodes: BTreeMap::from([
            ("mars".parse().unwrap(), node(&["ai-core", "moon"])),
            ("ai-core".parse().unwrap(), node(&[])),
            ("moon".parse().unwrap(), node(&[])),
        ]),
        grants: vec![
            grant("ai-core", Scope::All, &[Right::Status, Right::Relaunch]),
            grant("venus", only_write, &[Right::Status]),
        ],
    }
}

fn request(target: &str, worker: Option<&str>, verb: Verb) -> Request {
    Request {
        boot_nonce: BootNonce::from_bytes(NONCE),
        req_id: ReqId::from_bytes([1; 16]),
        target_node: target.parse().unwrap(),
        worker: worker.map(|w| w.parse().unwrap()),
        verb,
        because: "test".to_owned(),
    }
}

fn peer(name: &str) -> Asker {
    Asker::Peer { node: name.parse().unwrap(), pin: Pin::of_spki(b"") }
}

fn ask(asker: &Asker, request: &Request) -> Result<(), RefusalCode> {
    let verdict = admit(&fleet(), &"mars".parse().unwrap(), &BootNonce::from_bytes(NONCE), asker, request);
    if let Err(refusal) = &verdict {
        assert!(refusal.text.len() > 20, "a refusal gives its reason: {refusal:?}");
    }
    verdict.map_err(|refusal| refusal.code)
}

fn relaunch(force: bool) -> Verb {
    Verb::Relaunch(RelaunchOrder { force, ..RelaunchOrder::default() })
}

#[test]
fn a_peer_gets_what_is_granted_and_nothing_else() {
    let ai = peer("ai-core");
    assert_eq!(ask(&ai, &request("mars", Some("write"), relaunch(false))), Ok(()));
    assert_eq!(ask(&ai, &request("mars", Some("write"), Verb::Explain {})), Ok(()));
    assert_eq!(ask(&ai, &request("mars", None, Verb::Status {})), Ok(()));
    for (worker, verb, code) in [
        (Some("write"), Verb::Hold { for_ms: 1 }, RefusalCode::NoGrant),
        (Some("write"), Verb::Release {}, RefusalCode::NoGrant),
        (Some("nothing"), relaunch(false), RefusalCode::UnknownWorker),
        (None, relaunch(false), RefusalCode::NoWorker),
        (None, Verb::Explain {}, RefusalCode::NoWorker),
        (Some("write"), relaunch(true), RefusalCode::NotRoot),
        (None, Verb::Audit { last: 1 }, RefusalCode::LocalOnly),
        (None, Verb::Fleet {}, RefusalCode::LocalOnly),
        (None, Verb::Watch {}, RefusalCode::LocalOnly),
        (None, Verb::Events {}, RefusalCode::LocalOnly),
    ] {
        assert_eq!(ask(&ai, &request("mars", worker, verb.clone())), Err(code), "{verb:?}");
    }
}

#[test]
fn the_journal_is_searched_for_whom_it_is_granted_and_dead_letters_are_for_root_here() {
    let prove = || request("mars", None, Verb::Prove { task: "t-1".parse().unwrap(), lane: None });
    // To see and to relaunch is granted to it, and that is not to prove.
    assert_eq!(ask(&peer("ai-core"), &prove()), Err(RefusalCode::NoGrant));
    let mut fleet = fleet();
    fleet.grants.push(Grant {
        from: "moon".parse().unwrap(),
        on: "mars".parse().unwrap(),
        workers: Scope::All,
        rights: [Right::Prove].into(),
    });
    let (mars, nonce) = ("mars".parse().unwrap(), BootNonce::from_bytes(NONCE));
    assert_eq!(admit(&fleet, &mars, &nonce, &peer("moon"), &prove()), Ok(()));
    let status = request("mars", None, Verb::Status {});
    assert!(admit(&fleet, &mars, &nonce, &peer("moon"), &status).is_err(), "to prove is not to see");
    assert_eq!(ask(&Asker::Local { uid: 1000 }, &prove()), Ok(()));

    let letter = DeadLetter {
        node: "mars".parse().unwrap(),
        lane: crate::vocabulary::Mode::Write,
        task: "t-1".parse().unwrap(),
    };
    for verb in [Verb::Requeue(letter.clone().into()), Verb::Drop(letter.clone().into())] {
        let request = request("mars", None, verb);
        assert_eq!(ask(&peer("ai-core"), &request), Err(RefusalCode::LocalOnly));
        assert_eq!(ask(&Asker::Local { uid: 1000 }, &request), Err(RefusalCode::NotRoot));
        assert_eq!(ask(&Asker::Local { uid: 0 }, &request), Ok(()));
    }
}

#[test]
fn who_may_nothing_does_not_learn_what_there_is() {
    let moon = peer("moon");
    for worker in [Some("write"), Some("nothing"), None] {
        assert_eq!(ask(&moon, &request("mars", worker, Verb::Status {})), Err(RefusalCode::NoGrant));
    }
    assert_eq!(ask(&moon, &request("mars", Some("write"), relaunch(true))), Err(RefusalCode::NoGrant));
    assert!(!may_watch(&fleet(), &"mars".parse().unwrap(), &"moon".parse().unwrap()));
    assert!(may_watch(&fleet(), &"mars".parse().unwrap(), &"ai-core".parse().unwrap()));
}

#[test]
fn the_refusal_names_the_grant_that_is_missing() {
    let refusal = admit(
        &fleet(),
        &"mars".parse().unwrap(),
        &BootNonce::from_bytes(NONCE),
        &peer("ai-core"),
        &request("mars", Some("write"), Verb::Release {}),
    )
    .unwrap_err();
    assert!(
        refusal.text.contains("{ from: ai-core, on: mars, workers: [write], verbs: [hold] }"),
        "{refusal}"
    );
}

#[test]
fn a_grant_of_a_node_that_is_not_in_the_fleet_is_worth_nothing() {
    assert_eq!(
        ask(&peer("venus"), &request("mars", Some("write"), Verb::Status {})),
        Err(RefusalCode::NoGrant)
    );
}

#[test]
fn peers_are_not_served_for_other_nodes_and_an_old_nonce_is_stale_for_all() {
    assert_eq!(
        ask(&peer("ai-core"), &request("ai-core", Some("write"), relaunch(false))),
        Err(RefusalCode::WrongNode)
    );
    let mut old = request("mars", Some("write"), relaunch(false));
    old.boot_nonce = BootNonce::from_bytes([8; 16]);
    for asker in [peer("ai-core"), peer("moon"), Asker::Local { uid: 0 }] {
        assert_eq!(ask(&asker, &old), Err(RefusalCode::StaleNonce));
    }
}

#[test]
fn root_here_may_order_for_the_whole_fleet_and_others_may_look() {
    let (root, user) = (Asker::Local { uid: 0 }, Asker::Local { uid: 1000 });
    for target in ["mars", "ai-core"] {
        assert_eq!(ask(&root, &request(target, Some("write"), relaunch(true))), Ok(()));
        assert_eq!(ask(&user, &request(target, Some("write"), relaunch(false))), Err(RefusalCode::NotRoot));
        assert_eq!(ask(&user, &request(target, Some("write"), Verb::Explain {})), Ok(()));
        assert_eq!(
            ask(&user, &request(target, None, Verb::Explain {})),
            Ok(()),
            "a node as it looks from here"
        );
        assert_eq!(ask(&user, &request(target, None, Verb::Status {})), Ok(()));
    }
    for verb in [Verb::Hold { for_ms: 1 }, Verb::Release {}] {
        assert_eq!(ask(&user, &request("mars", Some("write"), verb.clone())), Err(RefusalCode::NotRoot));
        assert_eq!(ask(&root, &request("mars", Some("write"), verb)), Ok(()));
    }
    for verb in [Verb::Audit { last: 9 }, Verb::Fleet {}, Verb::Watch {}, Verb::Events {}] {
        assert_eq!(ask(&user, &request("mars", None, verb.clone())), Ok(()));
        assert_eq!(ask(&root, &request("ai-core", None, verb)), Err(RefusalCode::WrongNode));
    }
    assert_eq!(ask(&root, &request("pluto", None, Verb::Status {})), Err(RefusalCode::UnknownNode));
    assert_eq!(
        ask(&root, &request("mars", Some("nothing"), relaunch(false))),
        Err(RefusalCode::UnknownWorker)
    );
    assert_eq!(ask(&root, &request("mars", None, relaunch(false))), Err(RefusalCode::NoWorker));
}

#[test]
fn a_disabled_node_is_not_asked() {
    let mut fleet = fleet();
    fleet.nodes.get_mut(&"ai-core".parse::<NodeName>().unwrap()).unwrap().disabled = true;
    let refusal = admit(
        &fleet,
        &"mars".parse().unwrap(),
        &BootNonce::from_bytes(NONCE),
        &Asker::Local { uid: 0 },
        &request("ai-core", Some("write"), relaunch(false)),
    )
    .unwrap_err();
    assert_eq!(refusal.code, RefusalCode::UnknownNode);
}
