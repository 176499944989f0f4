use super::*;

#[test]
fn the_audit_is_aligned_and_says_what_is_missing() {
    let line = |seq, event: &str, by: &str, subject: &str| AuditLine {
        seq,
        at: format!("2026-11-29T13:00:0{seq}Z"),
        event: event.to_owned(),
        by: by.to_owned(),
        subject: subject.to_owned(),
        text: "one clear sentence".to_owned(),
        priority: 5,
    };
    let lines = [
        line(1, "supervisor", "local", ""),
        line(2, "ordered", "ai-core", "mars/agent"),
        line(5, "refused", "uid 1000", "mars/write"),
    ];
    insta::assert_snapshot!(audit(&lines, None, Paint(false)));
    assert_eq!(audit(&[], None, Paint(false)), "the audit trail is empty\n");
}

#[test]
fn on_a_terminal_a_record_hangs_under_its_text_and_the_day_is_said_when_it_changes() {
    let line = |seq, at: &str, event: &str, by: &str, subject: &str, text: &str| AuditLine {
        seq,
        at: at.to_owned(),
        event: event.to_owned(),
        by: by.to_owned(),
        subject: subject.to_owned(),
        text: text.to_owned(),
        priority: 3,
    };
    let lines = [
        line(
            1,
            "2026-11-28T23:59:59.001Z",
            "supervisor",
            "local",
            "",
            "keyholder 0.1.0 supervises 6 workers",
        ),
        line(
            2,
            "2026-11-29T00:00:07.123Z",
            "alert",
            "local",
            "mars/write",
            "keyholder-lane-write.service was stopped and no hold was declared: it is brought back in 2m 00s. To \
             prevent that: keyholder hold mars/write --for 30m --why \"...\"",
        ),
        line(3, "2026-11-29T00:00:08.000Z", "ordered", "ai-core", "mars/write", "relaunch: the queue waits"),
        line(
            7,
            "2026-11-29T00:00:09.000Z",
            "refused",
            "192.0.2.40",
            "",
            "a connection was refused: its key \
             sha256:0025e988d7d36e115d54055880557b2c64e253398f888fbb59c5cd3552d5556d is not among the pins",
        ),
        line(8, "no\u{202e} time", "observed", "local", "mars/agent", "healthy -> dead: \x1b]0;pwned\x07"),
    ];
    let text = audit(&lines, Some(80), Paint(false));
    for line in text.lines().filter(|line| !line.contains("sha256:")) {
        assert!(line.chars().count() <= 80, "{line}");
    }
    insta::assert_snapshot!(text);
    // As they come, they look the same.
    let mut trail = Trail::new(Some(80), Paint(false));
    let told: String = lines.iter().cloned().map(|line| trail.record(&EventLine::from(line))).collect();
    assert_eq!(told, text.replace("  (3 missing here)\n", ""));
}
