use super::*;
use crate::peer::wire::DrillReport;
use crate::vocabulary::FailureClass;

#[test]
fn what_came_of_a_rehearsal_next_door_is_told_and_is_an_error_only_if_it_failed() {
    let target: Target = "mars/agent".parse().unwrap();
    for (passed, told) in [
        (true, "mars/agent: rehearsal of stuck passed: found and repaired"),
        (false, "mars/agent: rehearsal of stuck failed: found and repaired"),
    ] {
        let report = DrillReport {
            node: target.node.clone(),
            worker: Some(target.worker.clone()),
            class: FailureClass::Stuck,
            passed,
            why: "found and repaired".to_owned(),
            by: None,
            detect_us: None,
            repair_us: None,
            evidence: Vec::new(),
        };
        let answer = answered(&target, &Verdict::Outcome(Outcome::Drilled(report)));
        assert_eq!(answer, (passed, told.to_owned()));
    }
}
