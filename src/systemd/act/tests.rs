use super::*;

const TIMEOUT: Duration = Duration::from_secs(30);

fn raw(active: &str, invocation: u8, job: u32) -> Raw {
    let invocation = Some(InvocationId::from_bytes([invocation; 16]));
    Raw { active: active.to_owned(), load: "loaded".to_owned(), invocation, job, ..Raw::default() }
}

fn act(deed: Operation) -> (Act, oneshot::Receiver<Done>) {
    let (reply, answer) = oneshot::channel();
    let unit = "w.service".parse().unwrap();
    (Act::new(OperationOrder { unit, deed, timeout: TIMEOUT, reply, place: None }), answer)
}

fn run() -> Operation {
    let command = crate::vocabulary::Command {
        argv: vec!["/x".to_owned()],
        user: "nobody".to_owned(),
        timeout: TIMEOUT,
    };
    Operation::Run(super::super::command::Properties { command, purpose: "test".to_owned() })
}

fn reply() -> zbus::message::Builder<'static> {
    Message::method_return(&Message::method_call("/", "X").build(&()).unwrap().header())
}

fn job(number: u8) -> Message {
    reply().build(&zbus::ObjectPath::try_from(format!("/job/{number}")).unwrap()).unwrap()
}

fn error(name: &str) -> Message {
    let call = Message::method_call("/", "X").build(&()).unwrap();
    Message::error(&call.header(), name).build(&("because\x1b[31m of that",)).unwrap()
}

#[test]
fn a_signal_is_done_when_it_is_taken() {
    let (mut act, mut answer) = act(Operation::Signal { number: 10, whole: false });
    assert_eq!(act.accepted(&reply().build(&()).unwrap()), Next::Finished);
    assert!(answer.try_recv().unwrap().is_ok());
}

#[test]
fn a_job_decides_also_if_it_ends_before_the_answer() {
    for deed in [Operation::Reload, Operation::Stop { other: false }] {
        let (mut early, mut answer) = act(deed.clone());
        assert_eq!(early.job_ended("/job/6", "failed"), Next::Wait, "somebody else's");
        assert_eq!(early.job_ended("/job/7", "done"), Next::Wait);
        assert_eq!(early.accepted(&job(7)), Next::Finished);
        assert!(answer.try_recv().unwrap().is_ok());
        let (mut failing, mut answer) = act(deed);
        assert_eq!(failing.accepted(&job(7)), Next::Wait);
        assert_eq!(failing.job_ended("/job/7", "timeout"), Next::Finished);
        assert_eq!(answer.try_recv().unwrap(), Err(ActError::JobFailed { result: "timeout".to_owned() }));
    }
}

#[test]
fn a_restart_is_done_only_with_a_new_run() {
    for (after, good) in
        [(raw("active", 2, 0), true), (raw("active", 1, 0), false), (raw("failed", 2, 0), false)]
    {
        let (mut act, mut answer) = act(Operation::Restart);
        assert_eq!(act.looked(raw("active", 1, 0)), Next::Wait);
        assert_eq!(act.accepted(&job(7)), Next::Wait);
        assert_eq!(act.job_ended("/job/7", "done"), Next::Look);
        assert_eq!(act.looked(after), Next::Finished);
        assert_eq!(answer.try_recv().unwrap().is_ok(), good);
    }
}

#[test]
fn a_missed_end_is_found_by_a_look_and_time_is_bounded() {
    let start = Instant::now();
    let (mut stop, mut answer) = act(Operation::Stop { other: true });
    assert_eq!(stop.accepted(&job(7)), Next::Wait);
    assert_eq!(stop.tick(start + FIRST_POLL * 2), Next::Look);
    assert_eq!(stop.looked(raw("deactivating", 1, 7)), Next::Wait);
    assert_eq!(stop.looked(raw("inactive", 1, 0)), Next::Finished);
    assert!(answer.try_recv().unwrap().is_ok());
    let (mut late, mut answer) = act(Operation::Reload);
    assert_eq!(late.tick(start + TIMEOUT * 2), Next::Finished);
    assert_eq!(answer.try_recv().unwrap(), Err(ActError::Timeout));
}

#[test]
fn a_commands_end_is_told_by_its_unit_and_never_by_its_job() {
    let (mut act, mut answer) = act(run());
    assert_eq!(act.accepted(&job(7)), Next::Wait);
    assert_eq!(act.job_ended("/job/7", "done"), Next::Wait);
    assert_eq!(act.looked(raw("active", 1, 0)), Next::Wait, "it runs");
    assert_eq!(act.looked(raw("failed", 1, 0)), Next::Finished);
    assert!(answer.try_recv().unwrap().is_ok());
    let (mut act, mut answer) = self::act(run());
    assert_eq!(act.accepted(&job(7)), Next::Wait);
    assert_eq!(act.looked(Raw { load: "not-found".to_owned(), ..raw("inactive", 1, 0) }), Next::Finished);
    assert!(matches!(answer.try_recv().unwrap(), Err(ActError::Lost(_))));
}

#[test]
fn refusals_are_typed() {
    let masked = ActError::NotStartable(super::super::NotStartable::Masked);
    let other = ActError::Refused("because\\x1b[31m of that".to_owned());
    for (name, expected) in [("UnitMasked", masked), ("JobTypeNotApplicable", other)] {
        let (mut act, mut answer) = act(Operation::Reload);
        assert_eq!(act.refused(&error(&format!("org.freedesktop.systemd1.{name}"))), Next::Finished);
        assert_eq!(answer.try_recv().unwrap(), Err(expected));
    }
    let (mut act, mut answer) = act(Operation::Reload);
    act.refused(&error("org.freedesktop.DBus.Error.NoReply"));
    assert!(matches!(answer.try_recv().unwrap(), Err(ActError::Bus(_))));
}
