use std::convert::Infallible;

use ring::signature::{Ed25519KeyPair, KeyPair as _};

use super::*;
use crate::lane::approval::Approver;
use crate::lane::sign::seal;
use crate::lane::task::{Envelope, MAX_TASK};
use crate::vocabulary::{TaskKey, hex};

const CATALOG: &str = r#"
version: 1
node: mars
actions:
  queue.length:
    mode: read
    description: how many wait
    argv: [/usr/bin/redis-cli, LLEN, "{queue}"]
    params: { queue: { enum: [tasks:maintenance:mars, tasks:maintenance:ai-core] } }
    rate: { at_most: 3, per: 1h }
  service.logs:
    mode: read
    description: last lines
    argv: [/usr/bin/journalctl, -n, "{lines}"]
    params: { lines: { int: { min: 10, max: 200 } } }
  delicate:
    mode: read
    description: looks at what a person must allow
    argv: [/bin/true]
    approval: required
  again:
    mode: write
    description: may run again
    argv: [/bin/true]
    idempotent: true
  apt.upgrade:
    mode: write
    description: upgrade all
    argv: [/usr/bin/sudo, -n, --, /usr/bin/apt-get, -y, upgrade]
"#;

const NOW: i64 = 1_796_000_000_000;
const NEW: Past = Past { id_used: false, runs: 0, born_ms: i64::MIN, forgotten_ms: i64::MIN };

fn rules(lane: Mode) -> Rules {
    let catalog = crate::catalog::parse("catalog_mars.yaml", CATALOG.as_bytes()).unwrap().catalog;
    Rules { catalog, lane, keys: TaskKeys::default(), approvers: ApproverKeys::default(), signed_only: false }
}

fn at(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).unwrap().to_string()
}

fn task(action: &str, params: &str) -> String {
    format!(
        r#"{{"id":"1","action":"{action}","params":{params},"by":"me","issued_at":"{}"}}"#,
        at(NOW - 1000)
    )
}

fn with(raw: &[u8], rules: &Rules, past: Past) -> Result<Admitted, Refusal> {
    let verdict: Result<_, Infallible> = admit(raw, rules, NOW, |_, _| Ok(past));
    verdict.unwrap().map_err(|refused| refused.refusal)
}

fn code(raw: impl AsRef<[u8]>, rules: &Rules) -> Option<RefusalCode> {
    with(raw.as_ref(), rules, NEW).err().map(|refusal| refusal.code)
}

#[test]
fn a_good_task_becomes_exactly_the_catalogs_command() {
    let admitted = with(task("service.logs", r#"{"lines":10}"#).as_bytes(), &rules(Mode::Read), NEW).unwrap();
    assert_eq!(admitted.argv, ["/usr/bin/journalctl", "-n", "10"]);
    assert!(admitted.again && admitted.task.id == "1" && admitted.issued_ms == NOW - 1000);
    let admitted = with(task("apt.upgrade", "{}").as_bytes(), &rules(Mode::Write), NEW).unwrap();
    assert!(!admitted.again);
}

#[test]
fn refusals_say_what_the_articles_say() {
    let text = |raw: String, past| with(raw.as_bytes(), &rules(Mode::Read), past).unwrap_err().text;
    assert_eq!(
        text(task("queue.length_mars_peer", "{}"), NEW),
        "unknown_action 'queue.length_mars_peer' on mars"
    );
    let used_up = Past { runs: 3, ..NEW };
    let length = task("queue.length", r#"{"queue":"tasks:maintenance:mars"}"#);
    assert_eq!(text(length.clone(), used_up), "rate_limit: queue.length: 3+1 in 3600 s > 3");
    assert!(with(length.as_bytes(), &rules(Mode::Read), Past { runs: 2, ..NEW }).is_ok());
    let upgrade = text(task("apt.upgrade", "{}"), NEW);
    assert!(upgrade.starts_with("mode_mismatch: "), "{upgrade}");
}

#[test]
fn what_is_no_task_is_malformed() {
    let good = task("apt.upgrade", "{}");
    let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
    let swap = |from: &str, to: &str| good.replace(from, to);
    for bad in [
        String::new(),
        "null".into(),
        "[]".into(),
        "{}".into(),
        "not json".into(),
        deep.clone(),
        task("apt.upgrade", &deep),
        task("apt.upgrade", "[]"),
        task("apt.upgrade", r#"{"a":1,"a":2}"#),
        format!("{good} {good}"),
        " ".repeat(MAX_TASK) + &good,
        swap(r#""by":"me","#, ""),
        swap(r#""by":"me""#, r#""by":"me","by":"you""#),
        swap(r#""by":"me""#, r#""by":"me","argv":["/bin/sh"]"#),
        swap(r#""by":"me""#, r#""by":"me","env":{"PATH":"/tmp"}"#),
        swap(r#""id":"1""#, r#""id":"""#),
        swap(r#""id":"1""#, r#""id":"a:b""#),
        swap(r#""id":"1""#, r#""id":"../x""#),
        swap(r#""id":"1""#, r#""id":7"#),
        swap(r#""id":"1""#, &format!(r#""id":"{}""#, "x".repeat(65))),
        swap(r#""by":"me""#, &format!(r#""by":"{}""#, "x".repeat(201))),
        swap(&at(NOW - 1000), "yesterday"),
        swap(&at(NOW - 1000), "2026-11-29T14:02:00"),
    ] {
        assert_eq!(code(&bad, &rules(Mode::Write)), Some(RefusalCode::Malformed), "{:.120}", bad);
    }
    assert_eq!(code(b"\xff\xfe", &rules(Mode::Write)), Some(RefusalCode::Malformed));
    assert_eq!(code(&good, &rules(Mode::Write)), None);
}

#[test]
fn nothing_but_the_catalogs_values_gets_through() {
    for bad in [
        r#"{"lines":"10\n"}"#,
        r#"{"lines":"1\u00000"}"#,
        r#"{"lines":"--x=y"}"#,
        r#"{"lines":"$(id)"}"#,
        r#"{"lines":"../1"}"#,
        r#"{"lines":"٣٠"}"#,
        r#"{"lines":"+11"}"#,
        r#"{"lines":"1e2"}"#,
        r#"{"lines":1e2}"#,
        r#"{"lines":10.0}"#,
        r#"{"lines":9}"#,
        r#"{"lines":201}"#,
        r#"{"lines":-10}"#,
        r#"{"lines":18446744073709551626}"#,
        r#"{"lines":null}"#,
        r#"{"lines":[10]}"#,
        r#"{"lines":10,"x":1}"#,
        "{}",
    ] {
        assert_eq!(code(task("service.logs", bad), &rules(Mode::Read)), Some(RefusalCode::BadParam), "{bad}");
    }
    for bad in ["tasks:maintenance:mars\n", "tasks:maintenance:MARS", "tasks:maintenance:mars\u{200b}", ""] {
        let params = serde_json::json!({ "queue": bad }).to_string();
        assert_eq!(
            code(task("queue.length", &params), &rules(Mode::Read)),
            Some(RefusalCode::BadParam),
            "{bad:?}"
        );
    }
}

#[test]
fn old_tasks_and_those_from_the_future_have_expired() {
    let issued = |ms: i64| task("apt.upgrade", "{}").replace(&at(NOW - 1000), &at(ms));
    let rules = rules(Mode::Write);
    assert_eq!(code(issued(NOW - ms(MAX_AGE)), &rules), None);
    assert_eq!(code(issued(NOW - ms(MAX_AGE) - 1000), &rules), Some(RefusalCode::Expired));
    assert_eq!(code(issued(NOW + ms(MAX_AHEAD)), &rules), None);
    assert_eq!(code(issued(NOW + ms(MAX_AHEAD) + 1000), &rules), Some(RefusalCode::Expired));
    // What the ledger may have forgotten cannot be told from a replay.
    let forgotten = Past { forgotten_ms: NOW, ..NEW };
    let refusal = with(issued(NOW - 1000).as_bytes(), &rules, forgotten).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::Expired);
    assert!(with(task("service.logs", r#"{"lines":10}"#).as_bytes(), &rules, forgotten).is_ok());
    let used = with(issued(NOW).as_bytes(), &rules, Past { id_used: true, ..NEW }).unwrap_err();
    assert_eq!(used.code, RefusalCode::Replayed);
}

#[test]
fn what_was_issued_before_the_ledger_begins_is_refused_unless_nothing_depends_on_how_often_it_runs() {
    let rules = rules(Mode::Write);
    // All these were issued a second before now, and say so in whole seconds.
    let born = |ms: i64| Past { born_ms: NOW - 1000 + ms, ..NEW };
    for (action, params, code) in [
        ("apt.upgrade", "{}", Some(RefusalCode::BeforeLedger)),
        ("again", "{}", Some(RefusalCode::BeforeLedger)),
        ("queue.length", r#"{"queue":"tasks:maintenance:mars"}"#, Some(RefusalCode::BeforeLedger)),
        ("service.logs", r#"{"lines":10}"#, None),
    ] {
        let given = |past| with(task(action, params).as_bytes(), &rules, past).err();
        let refusal = given(born(1000));
        assert_eq!(refusal.as_ref().map(|refusal| refusal.code), code, "{action}");
        assert!(refusal.is_none_or(|refusal| refusal.text.contains("ask again")));
        assert_eq!(given(born(999)), None, "{action}");
    }
    let exact = task("again", "{}").replace(&at(NOW - 1000), &at(NOW - 999));
    for (ms, refused) in [(1, false), (2, true)] {
        assert_eq!(with(exact.as_bytes(), &rules, born(ms)).is_err(), refused, "{ms}");
    }
}

#[test]
fn what_the_catalog_wants_approved_is_run_only_with_an_approvers_word_for_it() {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let public = |pair: &Ed25519KeyPair| -> TaskKey {
        format!("ed25519:{}", hex(pair.public_key().as_ref())).parse().unwrap()
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("approve.pem");
    crate::peer::identity::generate(&path, false).unwrap();
    let approver = Approver::load(&path).unwrap();
    let keys: TaskKeys = [("hub".to_owned(), public(&pair))].into_iter().collect();
    let approvers: ApproverKeys = [("ada".to_owned(), approver.public())].into_iter().collect();
    // Also where nobody has to sign, and for what only reads.
    for signed_only in [true, false] {
        let rules =
            Rules { keys: keys.clone(), approvers: approvers.clone(), signed_only, ..rules(Mode::Write) };
        let mars: crate::vocabulary::NodeName = "mars".parse().unwrap();
        let context = Context { node: &mars, lane: Mode::Write };
        let plain = task("delicate", "{}");
        let bare = signed(&plain, &pair, "mars", Mode::Write);
        let now = jiff::Timestamp::from_millisecond(NOW).unwrap();
        let approve = |envelope: &Envelope, at| {
            approver.approve(envelope.clone(), "ada", &context, (at, Duration::from_secs(60)))
        };
        let good = approve(&bare, now);
        let raw = |envelope: &Envelope| serde_json::to_string(envelope).unwrap();
        assert_eq!(code(raw(&good), &rules), None);
        let other = signed(&task("delicate", "{ }"), &pair, "mars", Mode::Write);
        for bad in [
            bare.clone(),
            Envelope { approval: good.approval.clone(), ..other },
            approve(&bare, now - jiff::SignedDuration::from_secs(61)),
            approver.approve(bare.clone(), "hub", &context, (now, Duration::from_secs(60))),
            approver.approve(
                bare.clone(),
                "ada",
                &Context { lane: Mode::Read, ..context },
                (now, Duration::from_secs(60)),
            ),
        ] {
            let refusal = with(raw(&bad).as_bytes(), &rules, NEW).unwrap_err();
            assert_eq!(refusal.code, RefusalCode::Unapproved, "{bad:?}");
            assert!(refusal.text.contains("delicate on mars needs a person's approval"), "{refusal}");
        }
        let unsigned = if signed_only { RefusalCode::Unsigned } else { RefusalCode::Unapproved };
        assert_eq!(code(&plain, &rules), Some(unsigned));
        // An approval does not stand for a signature, nor the other way round.
        let forged = Envelope { sig: "0".repeat(128), ..good.clone() };
        assert_eq!(code(raw(&forged), &rules), Some(RefusalCode::Unsigned));
        let nobody = Rules { approvers: ApproverKeys::default(), ..rules };
        assert_eq!(code(raw(&good), &nobody), Some(RefusalCode::Unapproved));
    }
}

fn signed(task: &str, pair: &Ed25519KeyPair, node: &str, lane: Mode) -> Envelope {
    seal(task.to_owned(), "hub", pair, &Context { node: &node.parse().unwrap(), lane })
}

#[test]
fn a_signature_counts_for_its_bytes_its_key_its_node_and_its_lane() {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let key: TaskKey = format!("ed25519:{}", hex(pair.public_key().as_ref())).parse().unwrap();
    let keys: TaskKeys = [("hub".to_owned(), key)].into_iter().collect();
    let rules = Rules { keys, signed_only: true, ..rules(Mode::Write) };
    let raw = |envelope: &Envelope| serde_json::to_string(envelope).unwrap();
    let plain = task("apt.upgrade", "{}");
    let good = signed(&plain, &pair, "mars", Mode::Write);
    assert_eq!(code(raw(&good), &rules), None);
    assert_eq!(code(&plain, &rules), Some(RefusalCode::Unsigned));

    let other = Ed25519KeyPair::from_seed_unchecked(&[8; 32]).unwrap();
    let flipped = |at: usize, text: &str| {
        let mut bytes = text.as_bytes().to_vec();
        bytes[at] ^= 1;
        String::from_utf8(bytes).unwrap()
    };
    for bad in [
        signed(&plain, &pair, "ai-core", Mode::Write),
        signed(&plain, &pair, "mars", Mode::Read),
        signed(&plain, &other, "mars", Mode::Write),
        Envelope { key: "nobody".to_owned(), ..good.clone() },
        Envelope { task: flipped(8, &good.task), ..good.clone() },
        Envelope { task: format!("{} ", good.task), ..good.clone() },
        Envelope { sig: flipped(5, &good.sig), ..good.clone() },
        Envelope { sig: good.sig.to_uppercase(), ..good.clone() },
        Envelope { sig: String::new(), ..good.clone() },
    ] {
        assert_eq!(code(raw(&bad), &rules), Some(RefusalCode::Unsigned), "{bad:?}");
    }
    // An envelope in an envelope is no task, however well it is signed.
    let nested = signed(&raw(&good), &pair, "mars", Mode::Write);
    assert_eq!(code(raw(&nested), &rules), Some(RefusalCode::Malformed));
    // Where nobody has to sign, a wrong signature is still wrong.
    let open = Rules { signed_only: false, ..rules };
    assert_eq!(code(raw(&signed(&plain, &other, "mars", Mode::Write)), &open), Some(RefusalCode::Unsigned));
    for bad in ["", "ed25519:", "ed25519:zz", &format!("ed25519:{}", "A".repeat(64))] {
        assert!(bad.parse::<TaskKey>().is_err(), "{bad}");
    }
}
