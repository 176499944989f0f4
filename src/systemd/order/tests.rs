use super::*;

const TIMEOUT: Duration = Duration::from_secs(30);

fn run(number: u8) -> InvocationId {
    InvocationId::from_bytes([number; 16])
}

fn raw(active: &str, invocation: u8, job: u32) -> Raw {
    Raw { active: active.to_owned(), invocation: Some(run(invocation)), job, ..Raw::default() }
}

fn order(before: Option<&Raw>) -> (RelaunchJob, oneshot::Receiver<RelaunchReply>) {
    let (reply, answer) = oneshot::channel();
    (RelaunchJob::new("w.service".parse().unwrap(), before, TIMEOUT, reply), answer)
}

fn outcome(mut answer: oneshot::Receiver<RelaunchReply>) -> Relaunch {
    match answer.try_recv().unwrap() {
        RelaunchReply::Done(relaunch) => *relaunch,
        RelaunchReply::Gone { why, .. } => panic!("gone: {why}"),
    }
}

fn error(name: &str) -> Message {
    let call = Message::method_call("/", "X").build(&()).unwrap();
    Message::error(&call.header(), name).build(&("because\x1b[31m of that",)).unwrap()
}

trait Is {
    fn is(self, wanted: &str) -> bool;
}

impl Is for Next {
    fn is(self, wanted: &str) -> bool {
        wanted
            == match self {
                Next::Wait => "wait",
                Next::Look => "look",
                Next::Finished => "finished",
            }
    }
}

#[test]
fn a_done_job_and_a_new_run_are_a_success_without_a_further_look() {
    let (mut order, answer) = order(Some(&raw("failed", 1, 0)));
    assert!(order.accepted("/job/7".to_owned(), None).is("wait"));
    assert!(order.job_ended("/job/6", "failed", Some(&raw("failed", 1, 7))).is("wait"), "another unit's job");
    assert!(order.job_ended("/job/7", "done", Some(&raw("active", 2, 7))).is("finished"));
    let relaunch = outcome(answer);
    assert_eq!((relaunch.result, relaunch.before), (Ok(run(2)), Some(run(1))));
    assert_eq!(relaunch.job.as_deref(), Some("done"));
}

#[test]
fn a_job_that_ends_before_the_call_is_answered_is_not_missed() {
    let (mut order, answer) = order(Some(&raw("failed", 1, 0)));
    assert!(order.job_ended("/job/7", "done", Some(&raw("active", 2, 7))).is("wait"));
    assert!(order.accepted("/job/7".to_owned(), Some(&raw("active", 2, 0))).is("finished"));
    assert_eq!(outcome(answer).result, Ok(run(2)));
}

#[test]
fn done_is_not_up_unless_it_runs_under_a_new_invocation() {
    for (after, looked, result) in [
        (raw("failed", 2, 0), raw("failed", 2, 0), Err(RelaunchError::NotRunning)),
        (raw("active", 1, 0), raw("active", 1, 0), Err(RelaunchError::NotRunning)),
        (raw("activating", 2, 0), raw("active", 2, 0), Ok(run(2))),
    ] {
        let (mut order, answer) = order(Some(&raw("failed", 1, 0)));
        assert!(order.accepted("/job/7".to_owned(), None).is("wait"));
        assert!(order.job_ended("/job/7", "done", Some(&after)).is("look"));
        assert!(order.looked(&looked).is("finished"));
        assert_eq!(outcome(answer).result, result);
    }
}

#[test]
fn a_failed_job_is_a_failure_under_its_own_name() {
    let (mut order, answer) = order(Some(&raw("failed", 1, 0)));
    assert!(order.accepted("/job/7".to_owned(), None).is("wait"));
    assert!(order.job_ended("/job/7", "dependency", Some(&raw("active", 2, 0))).is("finished"));
    let relaunch = outcome(answer);
    assert_eq!(relaunch.result, Err(RelaunchError::JobFailed { result: "dependency".to_owned() }));
    assert_eq!(relaunch.job.as_deref(), Some("dependency"));
}

#[test]
fn the_run_before_is_read_first_when_it_is_not_known() {
    let (mut order, answer) = order(None);
    assert!(order.looked(&raw("active", 1, 0)).is("wait"));
    assert!(order.accepted("/job/7".to_owned(), None).is("wait"));
    assert!(order.job_ended("/job/7", "done", Some(&raw("active", 1, 7))).is("look"), "still the old run");
    assert!(order.looked(&raw("active", 2, 0)).is("finished"));
    assert_eq!(outcome(answer).before, Some(run(1)));
}

#[test]
fn a_missed_end_is_found_by_a_look() {
    let start = Instant::now();
    for (seen, result) in
        [(raw("active", 2, 0), Ok(run(2))), (raw("failed", 2, 0), Err(RelaunchError::NotRunning))]
    {
        let (mut order, answer) = order(Some(&raw("failed", 1, 0)));
        assert!(order.accepted("/job/7".to_owned(), None).is("wait"));
        assert!(order.tick(start + FIRST_POLL * 2, false, None).is("look"));
        assert!(order.looked(&raw("activating", 2, 7)).is("wait"), "the job is still there");
        assert!(order.tick(start + FIRST_POLL * 3, false, None).is("wait"));
        assert!(order.tick(start + FIRST_POLL * 5, false, None).is("look"));
        assert!(order.looked(&seen).is("finished"));
        let relaunch = outcome(answer);
        assert_eq!((relaunch.result, relaunch.job), (result, None));
    }
}

#[test]
fn a_job_that_does_not_end_is_looked_at_once_more_and_given_up() {
    let late = Instant::now() + TIMEOUT + Duration::from_millis(100);
    for (seen, result) in [
        (Some(raw("activating", 2, 7)), Err(RelaunchError::Timeout)),
        (Some(raw("active", 2, 0)), Ok(run(2))),
        (None, Err(RelaunchError::Timeout)),
    ] {
        let (mut order, answer) = order(Some(&raw("failed", 1, 0)));
        assert!(order.accepted("/job/7".to_owned(), None).is("wait"));
        assert!(order.tick(late, false, None).is("look"));
        assert!(order.tick(late + LAST_LOOK / 2, false, None).is("wait"));
        match seen {
            Some(raw) => assert!(order.looked(&raw).is("finished")),
            None => assert!(order.tick(late + LAST_LOOK, false, None).is("finished")),
        }
        assert_eq!(outcome(answer).result, result);
    }
}

#[test]
fn an_order_that_is_not_accepted_goes_the_other_way_unless_systemd_reloads() {
    let late = Instant::now() + ACCEPT + Duration::from_millis(100);
    let (mut order, mut answer) = order(Some(&raw("failed", 1, 0)));
    assert!(order.due() < late);
    assert!(!order.tick(late, true, None).is("finished"));
    assert!(order.tick(late + ACCEPT, false, None).is("finished"));
    assert!(
        matches!(answer.try_recv().unwrap(), RelaunchReply::Gone { before, .. } if before == Some(run(1)))
    );
}

#[test]
fn refusals_are_typed_and_errors_of_the_bus_are_none() {
    for (name, result) in [
        ("NoSuchUnit", NotStartable::NotFound.into()),
        ("UnitMasked", NotStartable::Masked.into()),
        ("BadUnitSetting", NotStartable::BadSetting.into()),
        ("LoadFailed", NotStartable::BadSetting.into()),
        ("OnlyByDependency", NotStartable::RefusesManualStart.into()),
        ("TransactionIsDestructive", RelaunchError::Refused("because\\x1b[31m of that".to_owned())),
    ] {
        let (mut order, answer) = order(Some(&raw("failed", 1, 0)));
        assert!(order.refused(&error(&format!("org.freedesktop.systemd1.{name}")), None).is("finished"));
        assert_eq!(outcome(answer).result, Err(result), "{name}");
    }
    for name in ["NoReply", "NameHasNoOwner", "AccessDenied", "LimitsExceeded"] {
        let (mut order, mut answer) = order(Some(&raw("failed", 1, 0)));
        assert!(order.refused(&error(&format!("org.freedesktop.DBus.Error.{name}")), None).is("finished"));
        assert!(matches!(answer.try_recv().unwrap(), RelaunchReply::Gone { .. }), "{name}");
    }
}
