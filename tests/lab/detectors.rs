//! What detectors and gentle remedies ask of PID 1, on a real one. This very test binary is carried into a node and
//! runs there as what it tests will run: as root on the node's system bus.

use std::time::Duration;

use keyholder::detect::{self, Check, Plan, Vital};
use keyholder::judge::Reading;
use keyholder::systemd::{self, ActError, CommandExit, NotStartable, Systemd, SystemdEvent};
use keyholder::vocabulary::{Command, Heartbeat, Stuck, UnitName};
use tokio::sync::{mpsc, watch};

use crate::harness::{Lab, service, wait};

const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn commands_run_as_units_with_limits_and_gentle_acts_touch_what_they_name() {
    let lab = Lab::boot("detectors", &["mars"]);
    let beating = "[Service]\nType=notify\nNotifyAccess=all\nWatchdogSec=30\n\
        ExecStart=/bin/sh -c 'systemd-notify --ready; while :; do systemd-notify WATCHDOG=1; sleep 0.2; done'\n";
    let nudged = "[Service]\nType=notify\nNotifyAccess=all\n\
        ExecStart=/bin/sh -c 'trap \"echo nudged by USR1\" USR1; systemd-notify --ready; while :; do sleep 0.1; done'\n\
        ExecReload=/bin/sh -c 'echo reload of the worker'\n";
    for (unit, body) in [
        ("agent.service", nudged.to_owned()),
        ("beating.service", beating.to_owned()),
        ("pipe.service", service("")),
        ("quitter.service", "[Service]\nType=oneshot\nExecStart=/bin/true\n".to_owned()),
    ] {
        lab.write("mars", &format!("/etc/systemd/system/{unit}"), &body);
    }
    lab.sh("mars", "systemctl daemon-reload && systemctl start agent beating pipe");
    let itself = std::env::current_exe().expect("a path");
    lab.lab(&["cp", itself.to_str().expect("a plain path"), "mars:/root/inside"]);
    // With the rights of the supervisor: uid 0 and no capability.
    let bare = "systemd-run --quiet --wait --pipe -p CapabilityBoundingSet= -p NoNewPrivileges=yes /root/inside --exact \
        detectors::inside --ignored --nocapture";
    lab.sh("mars", bare);

    let private = "touch /tmp/beat && systemd-run --quiet --wait --pipe -p PrivateTmp=yes /root/inside --exact \
        detectors::inside_a_private_tmp --ignored --nocapture";
    lab.sh("mars", private);

    // What the journal has of it, and that nothing was left behind.
    let of = |purpose: &str| {
        let line = format!("journalctl --sync; journalctl -o cat --no-pager KEYHOLDER_PURPOSE='{purpose}'");
        lab.sh("mars", &line)
    };
    // Not always the first line: PID 1 may say before that it starts the unit.
    let literal = of("literal");
    assert!(
        literal.lines().any(|line| line == "$HOME %n a\"b'c\\ü;"),
        "an argument did not arrive as it is: {literal}"
    );
    assert!(of("identity").contains("uid=65534(nobody)"), "{}", of("identity"));
    assert!(of("sealed").contains("Read-only file system"), "{}", of("sealed"));
    // The last ones lost who asked for them: PID 1 ends and forgets them all the same.
    wait("no unit is left behind", LIMIT, || {
        let left = lab.sh("mars", "systemctl list-units --all --no-legend 'keyholder-run-*'");
        left.is_empty().then_some(())
    });
    assert_eq!(
        lab.sh(
            "mars",
            "journalctl --sync; journalctl -o cat --no-pager -u agent.service | grep -c 'nudged by USR1'"
        )
        .trim(),
        "2"
    );
    assert_eq!(
        lab.sh("mars", "journalctl -o cat --no-pager -u agent.service | grep -c 'reload of'").trim(),
        "1"
    );
    assert_eq!(lab.property("mars", "beating.service", "NRestarts"), "0");
}

fn command(argv: &[&str], timeout: Duration) -> Command {
    Command { argv: argv.iter().map(|&part| part.to_owned()).collect(), user: "nobody".to_owned(), timeout }
}

fn name(unit: &str) -> UnitName {
    unit.parse().expect("a unit name")
}

/// Runs in the node, with the watched units `agent`, `beating` and `quitter`.
#[test]
#[ignore = "carried into a node by the scenario above"]
fn inside() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let watched = ["agent.service", "beating.service", "quitter.service"].map(name);
        let (_units, list) = watch::channel(watched.to_vec());
        let (to, mut events) = mpsc::channel::<SystemdEvent>(8);
        let systemd = systemd::start(list, to);
        while !matches!(events.recv().await.expect("news"), SystemdEvent::Observed { .. }) {}
        tokio::spawn(async move { while events.recv().await.is_some() {} });
        commands(&systemd).await;
        acts(&systemd).await;
        heartbeats(&systemd).await;
    });
}

/// The supervisor's unit has a `/tmp` of its own; that a beat is not there must not make its worker stuck.
#[test]
#[ignore = "carried into a node by the scenario above"]
fn inside_a_private_tmp() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (_units, list) = watch::channel(Vec::new());
        let (to, _events) = mpsc::channel::<SystemdEvent>(8);
        let systemd = systemd::start(list, to);
        let mut beat = Beats::of(&systemd, "agent.service", Heartbeat::File("/tmp/beat".into()));
        let reading = beat.next().await;
        assert!(matches!(&reading, Reading::Failed(why) if why.contains("PrivateTmp")), "{reading:?}");
        let mut beat = Beats::of(&systemd, "agent.service", Heartbeat::File("/run/no-such-beat".into()));
        assert!(matches!(beat.next().await, Reading::Silent(_)));
    });
}

/// The readings of one heartbeat, as they come.
struct Beats {
    _plan: watch::Sender<Plan>,
    vitals: mpsc::Receiver<Vec<Vital>>,
}

impl Beats {
    fn of(systemd: &Systemd, unit: &str, heartbeat: Heartbeat) -> Self {
        let stuck = Stuck { heartbeat, older_than: Duration::from_secs(1), nudge: None };
        let looks = Check::at(&"mars/worker".parse().expect("a target"), &name(unit), Some(&stuck), None);
        let (plan, from) = watch::channel(Plan { looks, redis: None });
        let (to, vitals) = mpsc::channel(8);
        detect::start(from, systemd.clone(), to);
        Self { _plan: plan, vitals }
    }

    async fn next(&mut self) -> Reading {
        let next = tokio::time::timeout(LIMIT, self.vitals.recv()).await;
        next.expect("readings come").expect("the detectors live").remove(0).reading
    }

    /// The next reading that says something: a busy machine may let one of them run into its deadline.
    async fn known(&mut self) -> Reading {
        self.until("no look succeeds", |reading| !matches!(reading, Reading::Failed(_))).await
    }

    async fn until(&mut self, what: &str, wanted: impl Fn(&Reading) -> bool) -> Reading {
        let end = std::time::Instant::now() + LIMIT;
        loop {
            let reading = self.next().await;
            if wanted(&reading) {
                return reading;
            }
            assert!(std::time::Instant::now() < end, "{what}, but {reading:?}");
        }
    }
}

fn is_mark(reading: &Reading) -> bool {
    matches!(reading, Reading::Mark(_))
}

async fn heartbeats(systemd: &Systemd) {
    let agent = name("agent.service");
    let sh = |line: &str| {
        let done = std::process::Command::new("/bin/sh").args(["-c", line]).status().expect("a shell");
        assert!(done.success(), "{line}");
    };

    // The worker speaks only when it is nudged; what PID 1 says of it is no beat. It was nudged already, and takes its time.
    sh(
        "timeout 20 sh -c \"until journalctl -q -o cat -u agent.service | grep -q 'nudged by'; do sleep 0.1; done\"",
    );
    let mut journal = Beats::of(systemd, "agent.service", Heartbeat::Journal);
    let first = journal.until("a line", is_mark).await;
    sh("echo for agent | systemd-cat; systemctl reset-failed agent.service; logger -t agent x");
    for _ in 0..4 {
        assert_eq!(journal.known().await, first, "somebody else's line counted");
    }
    systemd.signal(&agent, 10, false).await.expect("a signal");
    let second = journal.until("another line", |reading| is_mark(reading) && *reading != first).await;
    // A rotation takes no line away, and is no beat.
    sh("journalctl --sync --rotate");
    journal.until("the same line after a rotation", |reading| *reading == second).await;
    let mut silent = Beats::of(systemd, "pipe.service", Heartbeat::Journal);
    silent.until("silence", |reading| matches!(reading, Reading::Silent(_))).await;

    // systemd's watchdog, of one that pings and stops pinging.
    sh("systemctl start beating.service");
    let mut dog = Beats::of(systemd, "beating.service", Heartbeat::Watchdog);
    let first = dog.until("a ping", is_mark).await;
    dog.until("another ping", |reading| is_mark(reading) && *reading != first).await;
    systemd.signal(&name("beating.service"), 19, true).await.expect("SIGSTOP");
    let mut last = dog.known().await;
    // Pings that were on their way are heard out.
    for _ in 0..8 {
        last = dog.known().await;
    }
    for _ in 0..4 {
        assert_eq!(dog.known().await, last, "a stopped process pings");
    }
    systemd.signal(&name("beating.service"), 18, true).await.expect("SIGCONT");
    dog.until("a ping again", |reading| is_mark(reading) && *reading != last).await;
    let mut none = Beats::of(systemd, "agent.service", Heartbeat::Watchdog);
    none.until(
        "no watchdog",
        |reading| matches!(reading, Reading::Failed(why) if why.contains("WatchdogSec")),
    )
    .await;

    // A command: 0 is a beat, 1 is none, everything else says that nobody knows.
    let shell = |line: &str| command(&["/bin/sh", "-c", line], Duration::from_secs(1));
    let of = |line: &str| Beats::of(systemd, "agent.service", Heartbeat::Command(shell(line)));
    let mut file = of("test -e /run/alive");
    file.until("no beat", |reading| matches!(reading, Reading::Silent(_))).await;
    sh("touch /run/alive");
    file.until("a beat", |reading| *reading == Reading::Moving).await;
    for (line, why) in
        [("exit 2", "exit code 2"), ("sleep 9", "longer than it may"), ("kill -9 $$", "signal 9")]
    {
        let failed = |reading: &Reading| matches!(reading, Reading::Failed(text) if text.contains(why));
        of(line).until(why, failed).await;
    }
}

/// A shell line that ends only when [`heard`] has found what it said. PID 1 takes the fields of a unit's lines away when the unit
/// is inactive, and journald may come to a line of a short one after that.
fn lasting(line: &str, purpose: &str) -> String {
    format!("{line}; e=$?; until [ -e /run/heard-{purpose} ]; do sleep 0.05; done; exit $e")
}

/// Runs a [`lasting`] command, and lets it end when the journal has what it said under its purpose.
async fn heard(systemd: &Systemd, command: &Command, purpose: &str) -> CommandExit {
    let found =
        format!("journalctl --sync; journalctl -q -o cat --no-pager KEYHOLDER_PURPOSE={purpose} | grep -q .");
    let found = async {
        let began = std::time::Instant::now();
        while !std::process::Command::new("/bin/sh").args(["-c", &found]).status().expect("a shell").success()
        {
            assert!(began.elapsed() < LIMIT, "the journal has nothing for {purpose}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        std::fs::write(format!("/run/heard-{purpose}"), "").expect("root may");
    };
    tokio::join!(systemd.run(command, purpose), found).0.exit
}

async fn commands(systemd: &Systemd) {
    let run = async |argv: &[&str]| systemd.run(&command(argv, LIMIT), "test").await.exit;
    assert_eq!(run(&["/bin/true"]).await, CommandExit::Exited(0));
    assert_eq!(run(&["/bin/false"]).await, CommandExit::Exited(1));
    assert_eq!(run(&["/bin/sh", "-c", "kill -9 $$"]).await, CommandExit::Killed(9));
    assert!(matches!(run(&["/no/such/program"]).await, CommandExit::NotStarted(why) if why.contains("203")));
    let nobody = Command { user: "no-such-user".to_owned(), ..command(&["/bin/true"], LIMIT) };
    let exit = systemd.run(&nobody, "test").await.exit;
    assert!(matches!(&exit, CommandExit::NotStarted(_)), "{exit:?}");
    let literal = ["/bin/sh", "-c", &lasting("/bin/echo \"$1\"", "literal"), "sh", "$HOME %n a\"b'c\\ü;"]
        .map(str::to_owned);
    let literal = Command { argv: literal.into(), ..command(&[], LIMIT) };
    assert_eq!(heard(systemd, &literal, "literal").await, CommandExit::Exited(0));
    let identity = command(&["/bin/sh", "-c", &lasting("/usr/bin/id", "identity")], LIMIT);
    assert_eq!(heard(systemd, &identity, "identity").await, CommandExit::Exited(0));
    let sealed = command(&["/bin/sh", "-c", &lasting("/usr/bin/touch /run/x", "sealed")], LIMIT);
    let sealed = Command { user: "root".to_owned(), ..sealed };
    assert_eq!(heard(systemd, &sealed, "sealed").await, CommandExit::Exited(1));

    let slow = systemd.run(&command(&["/bin/sleep", "60"], Duration::from_secs(1)), "test").await;
    assert_eq!(slow.exit, CommandExit::TimedOut);
    assert!(slow.took < LIMIT, "{slow:?}");
    let stubborn = ["/bin/sh", "-c", "trap '' TERM; while :; do sleep 1; done"];
    let slow = systemd.run(&command(&stubborn, Duration::from_secs(1)), "test").await;
    assert_eq!(slow.exit, CommandExit::TimedOut);
    assert!(slow.took < LIMIT, "{slow:?}");

    // More than may run at once take turns; one that does not get its turn in time says so.
    let nap = command(&["/bin/sleep", "0.3"], LIMIT);
    let naps = (0..12).map(|_| systemd.run(&nap, "test"));
    let began = std::time::Instant::now();
    let ends = futures_util::future::join_all(naps).await;
    assert!(ends.iter().all(|end| end.exit == CommandExit::Exited(0)), "{ends:?}");
    assert!(began.elapsed() >= Duration::from_millis(600), "all twelve ran at once");
}

async fn acts(systemd: &Systemd) {
    let (agent, pipe, quitter) = (name("agent.service"), name("pipe.service"), name("quitter.service"));
    systemd.signal(&agent, 10, false).await.expect("a signal");
    systemd.reload(&agent, LIMIT).await.expect("a reload");
    assert_eq!(systemd.signal(&pipe, 10, false).await, Err(ActError::NotWatched));
    assert_eq!(systemd.stop(&pipe, LIMIT).await, Err(ActError::NotWatched));
    assert!(matches!(systemd.reload(&quitter, LIMIT).await, Err(ActError::Refused(_))), "it does not run");
    assert!(matches!(systemd.signal(&quitter, 10, false).await, Err(ActError::Refused(_))));

    let first = systemd.restart_other(&pipe, LIMIT).await.expect("a restart");
    assert_ne!(systemd.restart_other(&pipe, LIMIT).await.expect("a restart"), first);
    let absent = systemd.restart_other(&name("absent.service"), LIMIT).await;
    assert_eq!(absent, Err(ActError::NotStartable(NotStartable::NotFound)));
    assert_eq!(systemd.restart_other(&quitter, LIMIT).await, Err(ActError::NotRunning));

    let beating = name("beating.service");
    let first = systemd.watchdog(&beating).await.expect("a time");
    assert!(first > 0);
    let began = std::time::Instant::now();
    while systemd.watchdog(&beating).await.expect("a time") == first {
        assert!(began.elapsed() < LIMIT, "no ping is seen");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(systemd.watchdog(&agent).await, Ok(0), "it has none");
    systemd.stop(&beating, LIMIT).await.expect("a stop");
    systemd.stop(&beating, LIMIT).await.expect("a stop of what is down");
}
