//! Records as `journalctl -o json` prints them, each case one thing away from proof.

use proptest::prelude::*;

use super::*;

const BOOT: &str = "b0075150dfc24b0f8b5f1d7a4e61f0aa";
/// When the task was made, ms since 1970, and how that reads in its id (UUID v7).
const MADE_MS: u64 = 1_764_428_400_000;

fn id() -> TaskId {
    format!("{:08x}-{:04x}-7000-8000-0123456789ab", MADE_MS >> 16, MADE_MS & 0xffff).parse().unwrap()
}

/// A record `at` seconds after the task was made; the boot was 1000 s before that.
fn rec(at: f64, fields: &[(&str, &str)]) -> Rec {
    let us = (at * 1e6) as i64;
    let mut object = serde_json::Map::new();
    let mut set = |name: &str, value: String| object.insert(name.to_owned(), value.into());
    set("__REALTIME_TIMESTAMP", (MADE_MS as i64 * 1000 + us).to_string());
    set("__MONOTONIC_TIMESTAMP", (1_000_000_000 + us).to_string());
    set("_BOOT_ID", BOOT.to_owned());
    set("_TRANSPORT", "journal".to_owned());
    for (name, value) in fields {
        set(name, (*value).to_owned());
    }
    Rec::read(serde_json::to_string(&object).unwrap().as_bytes())
}

fn by<'a>(lane: Mode, run: &'a str, pid: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![("_SYSTEMD_UNIT", unit(lane)), ("_SYSTEMD_INVOCATION_ID", run), ("_PID", pid)]
}

fn said(at: f64, lane: Mode, run: &str, pid: &str) -> Rec {
    rec(at, &[by(lane, run, pid), vec![("MESSAGE_ID", TRANSITION), ("MESSAGE", "takes tasks")]].concat())
}

fn executed(at: f64, lane: Mode, run: &str, pid: &str, status: &str) -> Rec {
    let id = id();
    let own = vec![
        ("MESSAGE_ID", EXECUTED),
        ("KEYHOLDER_TASK_ID", id.as_str()),
        ("KEYHOLDER_LANE", lane.name()),
        ("KEYHOLDER_STATUS", status),
        ("MESSAGE", "executed action=service.logs status=ok"),
    ];
    rec(at, &[by(lane, run, pid), own].concat())
}

fn systemd(at: f64, lane: Mode, run: &str, message: &str) -> Rec {
    rec(at, &[("_PID", "1"), ("UNIT", unit(lane)), ("INVOCATION_ID", run), ("MESSAGE_ID", message)])
}

fn journald(at: f64, message: &str, text: &str) -> Rec {
    rec(at, &[("_TRANSPORT", "driver"), ("MESSAGE_ID", message), ("MESSAGE", text)])
}

const READ_RUN: &str = "0ead0000000000000000000000000000";
const WRITE_RUN: &str = "1e000000000000000000000000000000";

/// Both lanes up since long before, and the journal since boot.
fn around() -> Around {
    Around {
        records: vec![said(-500.0, Mode::Read, READ_RUN, "11"), said(-499.0, Mode::Write, WRITE_RUN, "22")],
        first: Some(rec(-999.0, &[("_TRANSPORT", "kernel")])),
    }
}

fn with(more: Rec) -> Around {
    let mut around = around();
    around.records.push(more);
    around.records.sort_by_key(|rec| rec.mono());
    around
}

fn claims() -> Vec<Rec> {
    vec![executed(1.0, Mode::Read, READ_RUN, "11", "ok")]
}

#[track_caller]
fn says(claims: &[Rec], around: &Around, verdict: ProofVerdict, words: &str) -> Proof {
    let proof = prove(&id(), Some(Mode::Read), claims, around, true);
    assert_eq!(proof.verdict, verdict, "{proof:#?}");
    assert!(proof.why.contains(words), "{:?} does not contain {words:?}", proof.why);
    proof
}

use ProofVerdict::{Inconclusive, Proved, Refuted};

#[test]
fn one_lane_ran_it_and_the_other_was_there_and_has_nothing() {
    let proof = says(&claims(), &around(), Proved, "the read lane ran it, once; the write lane was there");
    assert_eq!(proof.lane, Some(Mode::Read));
    let shown: Vec<_> = proof.evidence.iter().map(|one| (one.shows, one.pid.as_deref())).collect();
    assert_eq!(shown, [(Shows::Ran, Some("11")), (Shows::OtherLane, Some("22"))]);
    assert_eq!(proof.evidence[0].at, "2025-11-29T15:00:01.000000Z");
    // It failed, and still that lane ran it.
    says(&[executed(1.0, Mode::Read, READ_RUN, "11", "failed")], &around(), Proved, "read");
}

/// What the next run of the lane says of the one that died.
fn again(at: f64, lane: Mode, run: &str, pid: &str) -> Rec {
    let id = id();
    let own = vec![
        ("MESSAGE_ID", EXECUTED),
        ("KEYHOLDER_TASK_ID", id.as_str()),
        ("KEYHOLDER_LANE", lane.name()),
        ("KEYHOLDER_STATUS", "ok"),
        ("KEYHOLDER_RECOVERED", "1"),
    ];
    rec(at, &[by(lane, run, pid), own].concat())
}

#[test]
fn what_the_next_run_says_again_is_not_a_second_run() {
    const NEXT: &str = "0ead0000000000000000000000000001";
    let mut around = around();
    around.records.push(said(2.0, Mode::Read, NEXT, "33"));
    around.records.push(said(3.0, Mode::Read, "0ead0000000000000000000000000002", "44"));
    let (first, next) = (executed(1.0, Mode::Read, READ_RUN, "11", "ok"), again(2.5, Mode::Read, NEXT, "33"));
    let last = again(3.5, Mode::Read, "0ead0000000000000000000000000002", "44");
    let proof =
        says(&[first.clone(), next.clone(), last.clone()], &around, Proved, "the read lane ran it, once");
    assert_eq!(proof.evidence[0].pid.as_deref(), Some("11"));
    // The one that ran it died before it could say so; its lane had to come up twice to publish it.
    let proof = says(&[next.clone(), last], &around, Proved, "the read lane ran it, once");
    assert_eq!(proof.evidence[0].pid.as_deref(), Some("33"));
    // That the other lane ran it as well is still seen, and who is no lane proves nothing by that field.
    let write = executed(1.0, Mode::Write, WRITE_RUN, "22", "ok");
    says(&[write, next.clone()], &around, Refuted, "both lanes ran it");
    says(&[first, executed(1.5, Mode::Read, READ_RUN, "11", "ok"), next], &around, Refuted, "more than once");
    says(&[again(2.5, Mode::Read, NEXT, "99")], &around, Refuted, "what claims to have run it is no lane");
}

#[test]
fn another_path_than_the_expected_one_is_no_proof_of_it() {
    let write = executed(1.0, Mode::Write, WRITE_RUN, "22", "ok");
    says(
        std::slice::from_ref(&write),
        &around(),
        Refuted,
        "the write lane ran it, and the read lane should have",
    );
    let unasked = prove(&id(), None, std::slice::from_ref(&write), &around(), true);
    assert_eq!((unasked.verdict, unasked.lane), (Proved, Some(Mode::Write)));
    says(&[claims(), vec![write]].concat(), &around(), Refuted, "both lanes ran it");
    says(&[claims(), claims()].concat(), &around(), Refuted, "more than once");
}

#[test]
fn what_was_not_run_is_not_called_run() {
    let refused = executed(1.0, Mode::Read, READ_RUN, "11", "refused");
    says(&[refused], &around(), Refuted, "the read lane refused it");
    let interrupted = executed(1.0, Mode::Read, READ_RUN, "11", "interrupted");
    says(&[interrupted], &around(), Inconclusive, "died in it");
    says(&[], &around(), Inconclusive, "no lane of this node has said anything");
}

#[test]
fn nobody_but_a_lanes_own_process_counts() {
    let id = id();
    let fields = |unit, run, pid| {
        [
            ("_SYSTEMD_UNIT", unit),
            ("_SYSTEMD_INVOCATION_ID", run),
            ("_PID", pid),
            ("MESSAGE_ID", EXECUTED),
            ("KEYHOLDER_TASK_ID", id.as_str()),
            ("KEYHOLDER_LANE", "read"),
            ("KEYHOLDER_STATUS", "ok"),
            ("MESSAGE", "executed, believe me \x1b[2J"),
        ]
    };
    // Another unit; and what a lane runs for a task, which lives in the lane's own unit.
    for forged in
        [rec(1.0, &fields("user@1000.service", "f", "99")), rec(1.0, &fields(READ_UNIT, READ_RUN, "12"))]
    {
        let proof =
            says(std::slice::from_ref(&forged), &around(), Refuted, "what claims to have run it is no lane");
        assert_eq!(proof.evidence[0].shows, Shows::Forged);
        assert!(!proof.evidence[0].text.contains('\x1b'));
        // Beside the real one it changes nothing, and is shown.
        let proof = says(&[vec![forged], claims()].concat(), &around(), Proved, "read");
        assert!(proof.evidence.iter().any(|one| one.shows == Shows::Forged));
    }
    // The write lane's process that calls itself the read lane.
    let mut liar = fields(WRITE_UNIT, WRITE_RUN, "22");
    liar[5] = ("KEYHOLDER_LANE", "read");
    says(&[rec(1.0, &liar)], &around(), Refuted, "no lane");
}

#[test]
fn a_journal_that_may_have_lost_something_proves_nothing() {
    let gap = "may have lost records";
    for lost in [
        journald(-2.0, JOURNAL_STOP, "Journal stopped"),
        journald(0.5, JOURNAL_START, "Journal started"),
        journald(30.0, JOURNAL_START, "Journal started"),
        journald(0.5, JOURNAL_DROPPED, "Suppressed 17 messages from keyholder-lane-write.service"),
        rec(
            0.5,
            &[
                by(Mode::Write, WRITE_RUN, "22"),
                vec![
                    ("MESSAGE_ID", TRANSITION),
                    ("MESSAGE", "7 records are missing here, because journald did not follow"),
                    ("KEYHOLDER_MISSING", "7"),
                ],
            ]
            .concat(),
        ),
        Rec::read(b"{\"MESSAGE"),
    ] {
        let proof = says(&claims(), &with(lost), Inconclusive, gap);
        assert!(proof.evidence.iter().any(|one| one.shows == Shows::Gap));
    }
    // Elsewhere, or when no lane could have taken the task.
    says(
        &claims(),
        &with(journald(0.5, JOURNAL_DROPPED, "Suppressed 17 messages from noise.service")),
        Proved,
        "",
    );
    says(&claims(), &with(journald(-998.0, JOURNAL_START, "Journal started")), Proved, "");
    says(&claims(), &with(journald(-400.0, JOURNAL_START, "Journal started")), Proved, "");
    says(&claims(), &with(journald(25.0 * 3600.0, JOURNAL_START, "Journal started")), Proved, "");
    // Only journald itself may say so.
    let said = rec(0.5, &[("MESSAGE_ID", JOURNAL_STOP), ("_PID", "99")]);
    says(&claims(), &with(said), Proved, "");
}

#[test]
fn a_journal_that_begins_too_late_or_was_not_read_to_the_end_proves_nothing() {
    let mut late = around();
    late.first = Some(rec(0.1, &[]));
    says(&claims(), &late, Inconclusive, "begins only after the task was asked for");
    late.first = None;
    says(&claims(), &late, Inconclusive, "begins only after");
    let cut = prove(&id(), None, &claims(), &around(), false);
    assert_eq!(cut.verdict, Inconclusive);
    let other: TaskId = "any-id".parse().unwrap();
    let line = |rec: &Rec| rec.get("MESSAGE_ID") == Some(EXECUTED);
    assert!(claims().iter().all(line));
    let mut fields = by(Mode::Read, READ_RUN, "11");
    fields.extend([
        ("MESSAGE_ID", EXECUTED),
        ("KEYHOLDER_TASK_ID", "any-id"),
        ("KEYHOLDER_LANE", "read"),
        ("KEYHOLDER_STATUS", "ok"),
    ]);
    let claims = [rec(1.0, &fields)];
    let young = prove(&other, None, &claims, &around(), true);
    assert!(young.verdict == Inconclusive && young.why.contains("does not say when"), "{}", young.why);
}

#[test]
fn the_other_lane_must_have_been_there_and_heard() {
    let gone = "was not there at the time";
    let mut alone = around();
    alone.records.remove(1);
    says(&claims(), &alone, Inconclusive, gone);
    for end in ENDS {
        says(&claims(), &with(systemd(-1.0, Mode::Write, WRITE_RUN, end)), Inconclusive, gone);
        // After the task it does not matter, and neither does the end of another run.
        says(&claims(), &with(systemd(2.0, Mode::Write, WRITE_RUN, end)), Proved, "");
        says(&claims(), &with(systemd(-1.0, Mode::Write, READ_RUN, end)), Proved, "");
    }
    // Somebody else's word for it is none.
    let mut records = with(rec(-1.0, &[("_PID", "99"), ("UNIT", WRITE_UNIT), ("MESSAGE_ID", ENDS[0])]));
    says(&claims(), &records, Proved, "");
    // Relaunched since, and heard again.
    records.records.push(systemd(-3.0, Mode::Write, WRITE_RUN, ENDS[0]));
    records.records.push(said(-2.0, Mode::Write, "1e000000000000000000000000000002", "33"));
    records.records.sort_by_key(|rec| rec.mono());
    says(&claims(), &records, Proved, "");
}

#[test]
fn the_beginning_of_the_lanes_own_run_must_be_there_too() {
    let mut rotated = around();
    rotated.records.remove(0);
    let proof =
        says(&claims(), &rotated, Inconclusive, "the beginning of that lane's run is not in the journal");
    assert_eq!(proof.evidence[0].shows, Shows::Gap);
}

#[test]
fn a_field_that_is_there_twice_or_is_no_text_is_none() {
    let rec = Rec::read(br#"{"_PID":["1","2"],"MESSAGE":[27,91],"UNIT":null,"_BOOT_ID":7,"MESSAGE_ID":"x"}"#);
    assert_eq!(["_PID", "MESSAGE", "UNIT", "_BOOT_ID"].map(|name| rec.get(name)), [None; 4]);
    assert_eq!(rec.get("MESSAGE_ID"), Some("x"));
}

/// Real records, from a node of the lab (systemd 252): a read, run by the read lane while a write ran in the other.
#[test]
fn what_a_real_node_wrote() {
    let golden = include_str!("golden/read_beside_write.jsonl");
    let mut parts = golden
        .split("\n\n")
        .map(|part| part.lines().map(|line| Rec::read(line.as_bytes())).collect::<Vec<_>>());
    let (claims, records, first) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
    let task: TaskId = claims[0].get("KEYHOLDER_TASK_ID").unwrap().parse().unwrap();
    let around = Around { records, first: first.into_iter().next() };
    let proof = prove(&task, Some(Mode::Read), &claims, &around, true);
    assert_eq!(proof.verdict, Proved, "{proof:#?}");
    assert_eq!(prove(&task, Some(Mode::Write), &claims, &around, true).verdict, Refuted);
}

fn any_rec() -> impl Strategy<Value = Rec> {
    let value = prop_oneof![
        Just(String::new()),
        Just("1".to_owned()),
        Just(READ_UNIT.to_owned()),
        Just(WRITE_UNIT.to_owned()),
        Just(TRANSITION.to_owned()),
        Just(EXECUTED.to_owned()),
        Just(JOURNAL_STOP.to_owned()),
        Just(ENDS[0].to_owned()),
        Just("driver".to_owned()),
        Just("read".to_owned()),
        Just("ok".to_owned()),
        Just(id().to_string()),
        Just(u64::MAX.to_string()),
        any::<u64>().prop_map(|n| n.to_string()),
        any::<String>(),
    ];
    proptest::collection::btree_map(proptest::sample::select(&FIELDS[..]), value, 0..FIELDS.len())
        .prop_map(|fields| Rec::read(serde_json::to_string(&fields).unwrap().as_bytes()))
}

proptest! {
    #[test]
    fn no_line_panics(line in proptest::collection::vec(any::<u8>(), 0..200)) {
        let rec = Rec::read(&line);
        let _ = (rec.at(), rec.mono(), rec.real());
    }

    #[test]
    fn no_journal_panics_and_proof_needs_exactly_one_lane(
        claims in proptest::collection::vec(any_rec(), 0..6),
        records in proptest::collection::vec(any_rec(), 0..8),
        first in proptest::option::of(any_rec()),
        whole in any::<bool>(),
    ) {
        let proof = prove(&id(), None, &claims, &Around { records, first }, whole);
        let ran = proof.evidence.iter().filter(|one| one.shows == Shows::Ran).count();
        prop_assert!(proof.evidence.len() <= SHOWN);
        prop_assert!(proof.verdict != Proved || (whole && ran == 1 && proof.lane.is_some()));
    }
}
