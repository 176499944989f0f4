//! Files that are no honest mistake.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use proptest::prelude::*;

use super::super::MAX_FILE;
use super::{EIGHT, EXAMPLE, errors, good, load, parse, refused, with};

#[test]
fn broken_yaml_is_one_problem_with_its_place() {
    for (text, place) in [
        ("version: 1\nnodes: [a\n", "2:8"),
        ("version: 1\n  nodes: {}\n", "2:8"),
        ("version: 1\nnodes:\n  a: 'x\n", "3:6"),
        ("version: 1\nnodes:\n  a: !evil x\n", "3:12"),
        ("version: 1\nnodes:\n  a: { address: [::1]:7433 }\n", "3:22"),
    ] {
        let found = errors(text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(&format!("fleet.yaml:{place}: this is not YAML: ")), "{found:?}");
        assert!(!found[0].contains(" at line "), "{found:?}");
    }
    let ipv6 = "version: 1\nnodes:\n  mars:\n    address: [::1]:7433\n";
    insta::assert_snapshot!("syntax_fancy", load(ipv6).unwrap_err().fancy(super::Severity::Error, false));
}

#[test]
fn anchors_aliases_and_second_documents_are_refused() {
    let bomb =
        "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n";
    refused(
        bomb,
        "fleet.yaml:1:7: anchors and aliases are not allowed (found `[x,x,x,x,x,x,x,x,x]`; write the value out)",
    );
    refused(
        "a: *x\n",
        "fleet.yaml:1:4: anchors and aliases are not allowed (found `*x`; write the value out)",
    );
    refused(
        &format!("{}---\na: 1\n", good()),
        "fleet.yaml:22:1: a second YAML document begins here (found `---`; expected one document in the file; take out `---`)",
    );
}

/// The time that this thread has had a processor for: how busy the machine is otherwise does not count.
fn cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

#[test]
fn big_things_are_refused_quickly() {
    let within = |text: String, expected: &str| {
        let start = cpu();
        let found = errors(&text);
        let took = cpu() - start;
        assert!(took < Duration::from_secs(2), "{took:?} for {expected}");
        assert!(found.iter().any(|line| line.contains(expected)), "{:?}", found.first());
        assert!(found.len() <= 100);
    };
    let big = format!("a: &a \"{}\"\n", "x".repeat(200_000));
    within(format!("{big}b: [{}]\n", "*a,".repeat(20_000)), "anchors and aliases are not allowed");
    within("x".repeat(MAX_FILE + 1), "the file is too large");
    within("[".repeat(MAX_FILE), "this is nested too deeply");
    within("{a: ".repeat(1000), "this is nested too deeply");
    within(format!("[{}]", "1,".repeat(100_000)), "there are too many values in this file");
    let nodes: String = (0..20_000).map(|n| format!(" n{n}: 1\n")).collect();
    within(format!("version: 1\nnodes:\n{nodes}"), "there are 20000 nodes");
    let line = "  - { from: a, on: b, workers: [c], verbs: [status] }\n";
    within(with("grants:\n", &format!("grants:\n{}", line.repeat(3000))), "there are 3002 grants");
    let worker: String = (0..1001).map(|n| format!("      w{n}: {{ unit: u{n}.service }}\n")).collect();
    within(with("      write: { lane: write }\n", &worker), "there are 1001 workers");
    within("\u{1b}".repeat(MAX_FILE), "U+001B");
}

/// The largest fleets that the bounds allow, so that no check is quadratic in what is allowed.
#[test]
fn the_largest_good_file_is_checked_quickly() {
    let workers: String =
        (0..998).map(|n| format!("      w{n}: {{ unit: u{n}.service, repair_by: peer }}\n")).collect();
    let line = "  - { from: ai-core, on: mars, workers: [w1, w2, w3], verbs: [status] }\n";
    let text = with("        grace: 10s\n", &format!("        grace: 10s\n{workers}"))
        .replace("grants:\n", &format!("grants:\n{}", line.repeat(1998)));
    let start = cpu();
    let loaded = load(&text).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(loaded.warnings.len(), 1998);
    let took = cpu() - start;
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn characters_that_deceive_are_refused_where_they_stand() {
    for (bad, code) in [
        ('\0', "0000"),
        ('\u{1b}', "001B"),
        ('\u{7f}', "007F"),
        ('\u{202e}', "202E"),
        ('\u{feff}', "FEFF"),
        ('\u{85}', "0085"),
    ] {
        let found = errors(&with("grace: 10s", &format!("grace: 10s # ä{bad}")));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with(&format!(
                "fleet.yaml:18:23: the character U+{code} is not allowed in this file"
            )),
            "{found:?}"
        );
    }
    assert!(errors("version: 1\rnodes: {}\n")[0].starts_with("fleet.yaml:1:11: the character U+000D"));
    // YAML can spell them out, too.
    for escape in ["\\0", "\\e", "\\u202e", "\\n"] {
        let text = with("ai-agent.service", &format!("\"a{escape}.service\""));
        let found = errors(&text);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with(&format!(
            "fleet.yaml:17:15: this is no service unit (found `\"a{escape}.service\"`"
        )));
    }
    let hidden =
        errors(&with("  mars:\n", "  \"ma\\ers\": { address: 192.0.2.9:1, x\u{301}: 1 }\n  mars:\n"));
    assert!(hidden.iter().all(|line| !line.contains('\u{1b}')), "{hidden:?}");
    let mut bytes = b"version: 1\nnodes: ".to_vec();
    bytes.push(0xff);
    assert_eq!(
        parse("fleet.yaml", &bytes).unwrap_err().to_string(),
        "fleet.yaml:2:8: the file is not UTF-8 from here on (save it as UTF-8)"
    );
}

/// Whatever comes in: no panic, an answer that can be shown, and never an empty refusal.
fn survives(bytes: &[u8]) {
    let problems = match parse("fleet.yaml", bytes) {
        Ok(loaded) => loaded.warnings,
        Err(problems) => {
            assert!(!problems.is_empty());
            problems
        }
    };
    let shown = format!("{problems}{}", problems.fancy(super::Severity::Error, false));
    assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        survives(&bytes);
    }

    #[test]
    fn arbitrary_yaml_like_text_never_panics(text in "[-a-z0-9:{}\\[\\],\"'&*!|>#%@` \n\t~<é]{0,200}") {
        survives(text.as_bytes());
    }

    #[test]
    fn mutated_files_never_panic(
        which in 0..3usize,
        edits in proptest::collection::vec((any::<prop::sample::Index>(), 0..4u8, any::<u8>(), any::<prop::sample::Index>()), 1..8),
    ) {
        let mut bytes = [EXAMPLE.as_bytes().to_vec(), good().into_bytes(), EIGHT.as_bytes().to_vec()][which].clone();
        for (at, edit, byte, other) in edits {
            if bytes.is_empty() { break; }
            let (at, other) = (at.index(bytes.len()), other.index(bytes.len()));
            match edit {
                0 => bytes[at] = byte,
                1 => { bytes.remove(at); }
                2 => bytes.insert(at, byte),
                _ => bytes.swap(at, other),
            }
        }
        survives(&bytes);
    }
}
