//! `relaunch`, `hold`, `release`: what is ordered, and how each ending is told.

use std::sync::mpsc;

use keyholder::peer::wire::{
    MAX_BECAUSE, Outcome, RefusalCode, RelaunchFailed, RelaunchOrder, Relaunched, Request, Verb, Verdict,
};
use keyholder::vocabulary::InvocationId;

use super::fake::{Fake, told};

fn done(settled: bool) -> Outcome {
    Outcome::Relaunched(Relaunched {
        unit: "ai-agent.service".parse().unwrap(),
        before: Some(InvocationId::from_bytes([0x77; 16])),
        invocation: InvocationId::from_bytes([0x3f; 16]),
        took_us: 4_080,
        settled,
        shared: false,
        break_glass: false,
        degraded: Vec::new(),
    })
}

/// A fake that tells what it was asked.
fn noting(outcome: Outcome) -> (Fake, mpsc::Receiver<Request>) {
    let (asked, requests) = mpsc::channel();
    let fake = Fake::answering(move |request| {
        asked.send(request.clone()).unwrap();
        Verdict::Outcome(outcome.clone())
    });
    (fake, requests)
}

#[test]
fn a_relaunch_waits_for_the_settle_time_unless_told_not_to() {
    let (fake, requests) = noting(done(true));
    let output = fake.keyholder(&["relaunch", "mars/agent"]).assert().code(0).get_output().clone();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        said.starts_with(
            "mars/agent is running again: ai-agent.service, invocation 3f3f3f3f (was 77777777), \
             systemd's job 4.1 ms, whole order "
        ),
        "{said}"
    );
    assert!(output.stderr.is_empty(), "nothing is announced into a pipe");
    let request = requests.recv().unwrap();
    assert_eq!((request.target_node.as_str(), request.worker.unwrap().as_str()), ("mars", "agent"));
    assert_eq!(request.because, "asked for on the command line");
    assert_eq!(request.verb, Verb::Relaunch(RelaunchOrder { expect: None, settled: true, force: false }));

    let expect = "77aa01be77aa01be77aa01be77aa01be";
    let args = ["relaunch", "mars/agent", "--no-settle", "--force", "--expect", expect, "--why", " deaf "];
    fake.keyholder(&args).assert().code(0);
    let request = requests.recv().unwrap();
    assert_eq!(request.because, "deaf");
    let order = RelaunchOrder { expect: Some(expect.parse().unwrap()), settled: false, force: true };
    assert_eq!(request.verb, Verb::Relaunch(order));
}

#[test]
fn an_already_recovered_worker_is_a_success() {
    let fake = Fake::outcome(Outcome::AlreadyRecovered { invocation: InvocationId::from_bytes([0x3f; 16]) });
    insta::assert_snapshot!(told(&mut fake.keyholder(&["relaunch", "mars/agent"])));
}

#[test]
fn a_worker_that_is_not_back_is_1_with_its_last_lines() {
    let failed = RelaunchFailed {
        under_way: false,
        unit: "ai-agent.service".parse().unwrap(),
        why: "its start job failed: exit code 203".to_owned(),
        job: Some("failed".to_owned()),
        took_us: 85_200,
        log: vec!["ai-agent.service: Failed at step EXEC \x1b[31m".to_owned()],
    };
    let fake = Fake::outcome(Outcome::Failed(failed));
    let output = fake.keyholder(&["relaunch", "mars/agent"]).assert().code(1).get_output().stdout.clone();
    let said = String::from_utf8(output).unwrap();
    assert!(said.contains("    ai-agent.service: Failed at step EXEC \\x1b[31m\n"), "{said}");
    fake.keyholder(&["relaunch", "mars/agent", "--json"]).assert().code(1);
}

#[test]
fn every_refusal_is_told_with_its_kind_and_its_exit_code() {
    let mut text = String::new();
    for (code, why) in [
        (RefusalCode::Malformed, "the frame is not one of keyholder/1"),
        (RefusalCode::TooLarge, "the frame is longer than 4096 bytes"),
        (RefusalCode::OutOfOrder, "say hello first"),
        (RefusalCode::WrongNode, "this is ai-core"),
        (RefusalCode::StaleNonce, "this request was made for an earlier run: ask again"),
        (RefusalCode::NoGrant, "mars may not relaunch ai-core/write: add a grant to the fleet file"),
        (RefusalCode::LocalOnly, "audit is served on the local socket only: run it on mars"),
        (RefusalCode::NotRoot, "only root may relaunch: try sudo"),
        (RefusalCode::UnknownWorker, "mars has no worker agent"),
        (RefusalCode::NoWorker, "relaunch needs a worker"),
        (RefusalCode::UnknownNode, "no such node"),
        (RefusalCode::Held, "it is on hold for 12m 00s more (deploy): keyholder release mars/agent"),
        (RefusalCode::Quarantined, "it is in quarantine: keyholder release mars/agent on mars"),
        (RefusalCode::NotStartable, "ai-agent.service is masked: systemctl unmask ai-agent.service"),
        (RefusalCode::Leaving, "mars shuts down"),
        (RefusalCode::Busy, "too much is under way: ask again"),
        (RefusalCode::Unreachable, "mars cannot be reached"),
        (RefusalCode::NoAnswer, "mars did not answer within 5.0 s; whether it acted is unknown"),
        (RefusalCode::Internal, "hostile \x1b[2J text\nand a line"),
    ] {
        let fake = Fake::refusing(code, why);
        let mut command = fake.keyholder(&["relaunch", "mars/agent"]);
        text += &told(&mut command).replace("--- stdout\n--- stderr\n", "");
    }
    insta::assert_snapshot!(text);
}

#[test]
fn json_has_the_refusal_too() {
    let fake = Fake::refusing(RefusalCode::Held, "it is on hold");
    insta::assert_snapshot!(told(&mut fake.keyholder(&["relaunch", "mars/agent", "--json"])));
}

#[test]
fn holds_and_releases_say_what_came_of_them() {
    let (fake, requests) = noting(Outcome::Held { for_ms: 5_400_000 });
    let args = ["hold", "mars/write", "--for", "1h30m", "--why", "deploy"];
    insta::assert_snapshot!("hold", told(&mut fake.keyholder(&args)));
    let request = requests.recv().unwrap();
    assert_eq!((request.verb, request.because.as_str()), (Verb::Hold { for_ms: 5_400_000 }, "deploy"));

    let (fake, requests) = noting(Outcome::Released { hold: true, quarantine: false });
    insta::assert_snapshot!("release", told(&mut fake.keyholder(&["release", "mars/write"])));
    assert_eq!(requests.recv().unwrap().verb, Verb::Release {});
}

#[test]
fn what_cannot_be_an_order_is_not_sent() {
    let (fake, requests) = noting(done(true));
    let long = "x".repeat(MAX_BECAUSE + 1);
    for args in [
        &["relaunch"][..],
        &["relaunch", "mars"],
        &["relaunch", "mars/../x"],
        &["relaunch", "mars/ssh.service"],
        &["relaunch", "mars/agent", "--expect", "77aa01be"],
        &["relaunch", "mars/agent", "--timeout", "0s"],
        &["relaunch", "mars/agent", "--why", "two\nlines"],
        &["relaunch", "mars/agent", "--why", "\x1b[2J"],
        &["relaunch", "mars/agent", "--why", "  "],
        &["relaunch", "mars/agent", "--why", &long],
        &["hold", "mars/agent", "--for", "30m"],
        &["hold", "mars/agent", "--why", "x"],
        &["hold", "mars/agent", "--for", "30", "--why", "x"],
        &["release", "mars"],
        &["audit", "-n", "0"],
        &["audit", "-n", "100000"],
    ] {
        let output = fake.keyholder(args).assert().code(2).get_output().clone();
        assert!(!output.stderr.contains(&0x1b), "{args:?}");
    }
    assert!(requests.try_recv().is_err());
    // The longest reason, at its worst in JSON, still fits into a frame.
    let worst = "\"".repeat(MAX_BECAUSE);
    fake.keyholder(&["relaunch", "mars/agent", "--why", &worst]).assert().code(0);
}

#[test]
fn a_class_that_is_not_of_what_was_named_is_2_and_names_the_right_command() {
    for (subject, class, right) in [
        ("mars", "dead", "keyholder drill mars/WORKER --class dead"),
        ("mars/agent", "supervisor-dead", "keyholder drill mars --class supervisor-dead"),
    ] {
        // Nobody is asked: there is no supervisor here.
        let args = ["drill", subject, "--class", class, "--socket", "/nonexistent"];
        let output = super::fake::keyholder(&args).assert().code(2).get_output().stderr.clone();
        let said = String::from_utf8(output).unwrap();
        assert!(said.contains(right), "{said}");
    }
}
