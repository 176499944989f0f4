use super::*;

fn raw(result: &str, main_code: i32, main_status: i32) -> Raw {
    Raw { result: result.to_owned(), main_code, main_status, main_exit: 1, ..Raw::default() }
}

#[test]
fn how_it_ended_is_told_apart() {
    assert_eq!(exit(&raw("success", 1, 0)), CommandExit::Exited(0));
    assert_eq!(exit(&raw("exit-code", 1, 1)), CommandExit::Exited(1));
    assert_eq!(exit(&raw("signal", 2, 9)), CommandExit::Killed(9));
    assert_eq!(exit(&raw("oom-kill", 2, 9)), CommandExit::Killed(9));
    assert_eq!(exit(&raw("timeout", 2, 15)), CommandExit::TimedOut);
    assert_eq!(exit(&raw("timeout", 1, 0)), CommandExit::TimedOut);
    assert!(matches!(exit(&raw("exit-code", 1, 203)), CommandExit::NotStarted(why) if why.contains("203")));
    assert!(
        matches!(exit(&raw("resources", 0, 0)), CommandExit::NotStarted(why) if why.contains("resources"))
    );
}

#[test]
fn its_message_can_be_built_and_names_differ() {
    let argv = vec!["/bin/true".to_owned(), "$HOME %n \"'\\ü".to_owned()];
    let command = Command { argv, user: "nobody".to_owned(), timeout: Duration::MAX };
    let properties = Properties { command, purpose: "heartbeat of mars/agent".to_owned() };
    super::super::message::start_transient(&unit().unwrap(), &properties.variants()).unwrap();
    assert_ne!(unit().unwrap(), unit().unwrap());
}
