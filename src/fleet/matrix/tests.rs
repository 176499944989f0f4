//! Every cell says something, and what somebody has to see to is named.

use super::{Lack, Matrix, MatrixCell, Rehearsal, Rehearsals, Source, Verdict};
use crate::fleet::{Fleet, parse};
use crate::vocabulary::FailureClass;

const EXAMPLE: &str = include_str!("../../../catalogs/fleet.yaml");

fn fleet(text: &str) -> Fleet {
    parse("fleet.yaml", text.as_bytes()).unwrap_or_else(|problems| panic!("{problems}in\n{text}")).fleet
}

fn pin(digit: char) -> String {
    format!("sha256:{}", digit.to_string().repeat(64))
}

fn place(node: &str, worker: Option<&str>, class: FailureClass) -> MatrixCell {
    (node.parse().unwrap(), worker.map(|name| name.parse().unwrap()), class)
}

fn rehearsal(passed: bool, days: u64) -> Rehearsal {
    Rehearsal {
        passed,
        why: "it did not come back".to_owned(),
        by: Some("ai-core".to_owned()),
        ago_ms: days * 86_400_000,
        detect_ms: Some(15_200),
        repair_ms: Some(310),
    }
}

/// What is open, as `subject class: lack`.
fn open(matrix: &Matrix) -> Vec<String> {
    let mut all = Vec::new();
    for row in &matrix.rows {
        let subject =
            row.worker.as_ref().map_or_else(|| row.node.to_string(), |w| format!("{}/{w}", row.node));
        for cell in &row.cells {
            all.extend(cell.open.iter().map(|open| format!("{subject} {}: {:?}", cell.class, open.lack)));
        }
    }
    all
}

#[test]
fn the_example_in_full() {
    let matrix = Matrix::of(&fleet(EXAMPLE), Source::FileAlone);
    insta::assert_snapshot!(serde_json::to_string_pretty(&matrix).unwrap());
}

/// A fleet of two with each piece there or not.
fn variant(bits: u16) -> String {
    let has = |bit: u16| bits & (1 << bit) != 0;
    let piece = |bit: u16, text: &str| if has(bit) { text.to_owned() } else { String::new() };
    let mut text = String::from("version: 1\n");
    text += &piece(0, "redis: { url: \"redis://a\" }\n");
    text += &format!("nodes:\n  a:\n    address: 192.0.2.1:1\n    pins: [\"{}\"]\n", pin('a'));
    text += &piece(1, "    watched_by: [b]\n");
    text += &piece(2, "    power: { argv: [/bin/wake], witness: gateway }\n");
    text += "    workers:\n      l: { lane: write }\n      w:\n        unit: w.service\n";
    text += &piece(
        3,
        "        stuck: { heartbeat: { journal: true, older_than: 9s }, nudge: { reload: true } }\n",
    );
    text += &piece(4, "        repair_by: nobody\n");
    text += "      x:\n        lane: read\n";
    text += &piece(5, "        stuck: none\n        delivery_gap: none\n");
    text += &format!("  b: {{ address: 192.0.2.2:1, pins: [\"{}\"]", pin('b'));
    text += &piece(6, ", disabled: true");
    text += " }\n";
    let verbs: Vec<&str> = [(7, "status"), (8, "relaunch, nudge"), (9, "power, drill")]
        .into_iter()
        .filter(|(bit, _)| has(*bit))
        .map(|(_, verb)| verb)
        .collect();
    if !verbs.is_empty() {
        let verbs = verbs.join(", ");
        text += &format!("grants:\n  - {{ from: b, on: a, workers: [\"*\"], verbs: [{verbs}] }}\n");
    }
    text
}

#[test]
fn no_cell_is_blank_whatever_is_left_out() {
    let known = Rehearsals::default();
    for bits in 0..1 << 10 {
        let text = variant(bits);
        let fleet = fleet(&text);
        for source in [Source::FileAlone, Source::NobodyAnswered, Source::Asked(&known)] {
            let matrix = Matrix::of(&fleet, source);
            let enabled = fleet.nodes.values().filter(|node| !node.disabled);
            let cells: usize = enabled.map(|node| node.workers.len() * 3 + 2).sum();
            assert_eq!(matrix.rows.iter().map(|row| row.cells.len()).sum::<usize>(), cells);
            for cell in matrix.rows.iter().flat_map(|row| &row.cells) {
                let handled = cell.seen_by.is_some() && !cell.ladder.is_empty() && cell.rehearsal.is_some();
                let said = cell.open.iter().any(|open| open.lack == Lack::Handling);
                assert!(handled != cell.unhandled.is_some(), "{cell:?}\n{text}");
                assert_eq!(said, cell.unhandled.is_some(), "{cell:?}\n{text}");
                let words = cell.seen_by.iter().chain(&cell.unhandled);
                assert!(words.chain(cell.ladder.iter().map(|rung| &rung.how)).all(|word| !word.is_empty()));
            }
        }
    }
}

#[test]
fn a_rehearsal_that_failed_is_missing_or_too_old_is_open() {
    use FailureClass::{Dead, DeliveryGap, Stuck, SupervisorDead, Unreachable};
    let fleet = fleet(EXAMPLE);
    let mut known = Rehearsals::default();
    known.told.extend(fleet.nodes.keys().cloned());
    for (name, node) in &fleet.nodes {
        for worker in node.workers.keys() {
            for class in FailureClass::OF_WORKERS {
                known.last.insert(place(name.as_str(), Some(worker.as_str()), class), rehearsal(true, 2));
            }
        }
        known.last.insert(place(name.as_str(), None, SupervisorDead), rehearsal(true, 29));
    }
    // Nobody wrote a `power` for ai-core.
    assert_eq!(open(&Matrix::of(&fleet, Source::Asked(&known))), ["ai-core unreachable: Handling"]);

    known.last.insert(place("mars", Some("agent"), Dead), rehearsal(true, 31));
    known.last.insert(place("mars", Some("agent"), Stuck), rehearsal(false, 1));
    known.last.remove(&place("mars", Some("agent"), DeliveryGap));
    known.last.insert(place("mars", None, Unreachable), rehearsal(true, 400));
    let matrix = Matrix::of(&fleet, Source::Asked(&known));
    assert_eq!(
        open(&matrix),
        [
            "ai-core unreachable: Handling",
            "mars/agent dead: Rehearsal",
            "mars/agent stuck: Success",
            "mars/agent delivery-gap: Rehearsal",
        ],
        "power is not cut for practice, so its age is not held against it"
    );
    let agent =
        matrix.rows.iter().find(|row| row.unit.as_ref().is_some_and(|u| u.as_str() == "ai-agent.service"));
    let verdicts: Vec<Verdict> =
        agent.unwrap().cells.iter().map(|cell| cell.rehearsal.as_ref().unwrap().verdict).collect();
    assert_eq!(verdicts, [Verdict::Overdue, Verdict::Failed, Verdict::Never]);
    assert!(agent.unwrap().cells[1].open[0].text.contains("keyholder drill mars/agent --class stuck"));

    // A node that could not tell is not one that has none.
    known.told.clear();
    let silent = Matrix::of(&fleet, Source::Asked(&known));
    assert!(open(&silent).contains(&"mars/agent delivery-gap: Word".to_owned()));
    assert_eq!(open(&Matrix::of(&fleet, Source::FileAlone)), ["ai-core unreachable: Handling"]);
    assert_eq!(open(&Matrix::of(&fleet, Source::NobodyAnswered)).len(), 18, "each of the handled but power");
}

#[test]
fn a_remedy_that_no_watcher_may_use_is_open() {
    let text = EXAMPLE.replace(
        "verbs: [status, relaunch, hold, nudge, repipe, drill, power, prove]",
        "verbs: [status, relaunch]",
    );
    assert_ne!(text, EXAMPLE);
    let matrix = Matrix::of(&fleet(&text), Source::FileAlone);
    let found = open(&matrix);
    for expected in [
        "mars/agent stuck: Grant",
        "mars/agent delivery-gap: Grant",
        "mars/read stuck: Grant",
        "mars unreachable: Handling",
    ] {
        assert!(found.contains(&expected.to_owned()), "{expected} in {found:?}");
    }
    assert!(!found.iter().any(|line| line.contains("dead: Grant")), "{found:?}");
    let agent = matrix.rows.iter().flat_map(|row| &row.cells).flat_map(|cell| &cell.open);
    let texts: Vec<&str> = agent.map(|open| open.text.as_str()).collect();
    assert!(texts.contains(&"no watcher may nudge it: grant `nudge` to ai-core"), "{texts:?}");
}

#[test]
fn what_is_shown_of_the_table_has_only_the_notes_that_matter_for_it() {
    let notes = |url: &str, node: &str, worker: Option<&str>| {
        let fleet = fleet(&EXAMPLE.replace("redis://ai-core:6379", url));
        let mut matrix = Matrix::of(&fleet, Source::FileAlone);
        let worker = worker.map(|worker| worker.parse().unwrap());
        matrix.narrow(&fleet, &node.parse().unwrap(), worker.as_ref());
        assert!(
            matrix
                .rows
                .iter()
                .all(|row| row.node.as_str() == node && (worker.is_none() || row.worker == worker))
        );
        matrix.notes.join("\n")
    };
    let here = "redis://ai-core";
    for affected in [Some("agent"), Some("write"), None] {
        assert!(notes(here, "mars", affected).starts_with("Redis is on ai-core."), "{affected:?}");
    }
    // It is down with them, then; but whoever looks at the node wants to know what depends on it.
    assert_eq!(notes(here, "ai-core", Some("write")), "");
    assert!(notes(here, "ai-core", None).contains("nobody can see delivery-gap of mars/agent"));
    for elsewhere in ["redis://db.example.org", "redis://localhost", "redis-sentinel://ai-core,mars/m"] {
        assert!(notes(elsewhere, "ai-core", Some("write")).contains("Redis"), "{elsewhere}");
        assert!(notes(elsewhere, "mars", Some("agent")).contains("Redis"), "{elsewhere}");
    }
    let plain = EXAMPLE.replace("      agent:\n", "      plain: { unit: plain.service }\n      agent:\n");
    let fleet = fleet(&plain);
    let mut matrix = Matrix::of(&fleet, Source::FileAlone);
    matrix.narrow(&fleet, &"mars".parse().unwrap(), Some(&"plain".parse().unwrap()));
    assert_eq!((matrix.rows.len(), matrix.notes.len()), (1, 0), "{matrix:?}");
}

#[test]
fn what_the_host_of_redis_means_for_the_others_is_said() {
    let notes = |url: &str| {
        let text = EXAMPLE.replace("redis://ai-core:6379", url);
        Matrix::of(&fleet(&text), Source::FileAlone).notes.join("\n")
    };
    let by_name = notes("redis://u:secret@ai-core:6379/0");
    assert!(
        by_name.starts_with(
            "Redis is on ai-core. While ai-core is down, nobody can see delivery-gap of mars/agent, mars/read, \
             mars/write; what is not seen is unknown, and unknown never acts. Lanes wait and go on by themselves;"
        ),
        "{by_name}"
    );
    assert!(!by_name.contains("secret"));
    for same in [
        "redis://AI-CORE",
        "rediss://ai-core.example.org:1/2?x=y",
        "redis://192.0.2.40",
        "redis://[::ffff:192.0.2.40]:1",
    ] {
        assert_eq!(notes(same), by_name, "{same}");
    }
    assert!(notes("redis://localhost").contains("each node asks its own"));
    assert!(notes("redis://127.0.0.1:1").contains("each node asks its own"));
    let elsewhere = notes("redis://db.example.org");
    assert!(elsewhere.contains("Redis is on db.example.org, which is no node of this fleet"), "{elsewhere}");
    assert!(elsewhere.contains("delivery-gap of ai-core/read, ai-core/write, mars/agent"), "{elsewhere}");
    let moving = notes("redis-sentinel://ai-core,mars:1/mymaster");
    assert!(moving.contains("A sentinel of Redis is on ai-core.") && moving.contains("on mars."), "{moving}");
    let none =
        EXAMPLE.replace("redis: {", "# redis: {").replace("backlog: { queue: \"agent:inbox\"", "# backlog");
    assert!(parse("fleet.yaml", none.as_bytes()).is_err(), "a queue without a Redis");
}
