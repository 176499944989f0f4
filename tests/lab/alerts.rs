//! An alert calls a person: a hook outside root, once for each, with the record itself; and a storm is a few calls and a
//! count. What was seen is told to whoever follows the events, at the same time and as loudly as it is meant.

use std::io::{BufRead as _, BufReader};
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

use crate::harness::{Lab, SOON, service, wait};
use crate::scene::SECOND;

/// More critical workers than a minute has calls.
const CROWD: usize = 12;
/// It may write nowhere, so it says what it is and what it was told, and systemd puts that into the journal.
const HOOK: &str = "#!/bin/sh\n[ $# -eq 0 ] || exit 9\n\
    echo \"uid $(id -u) $(grep CapEff /proc/self/status | tr -s '\\t' ' ') $(touch /etc/keyholder/x 2>/dev/null && echo writes)\"\ncat\n";

/// `keyholder events --json` on mars, open from before the story until its end.
struct Events {
    child: Child,
    lines: Arc<Mutex<Vec<Value>>>,
}

impl Events {
    fn open(lab: &Lab) -> Self {
        let mut child = lab.spawn("mars", "exec keyholder events --json");
        let lines = Arc::<Mutex<Vec<Value>>>::default();
        let (out, to) = (BufReader::new(child.stdout.take().expect("a pipe")).lines(), Arc::clone(&lines));
        thread::spawn(move || {
            for line in out.map_while(Result::ok) {
                to.lock().expect("nobody panicked").push(serde_json::from_str(&line).expect("JSON"));
            }
        });
        let events = Self { child, lines };
        wait("what was before is told", SOON, || (!events.all().is_empty()).then_some(()));
        events
    }

    fn all(&self) -> Vec<Value> {
        self.lines.lock().expect("nobody panicked").clone()
    }

    /// The events of a worker whose text has this in it.
    fn of(&self, worker: &str, text: &str) -> Vec<Value> {
        let mine = |line: &Value| {
            line["subject"] == format!("mars/{worker}")
                && line["text"].as_str().is_some_and(|t| t.contains(text))
        };
        self.all().into_iter().filter(mine).collect()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the hook has said in all its runs.
fn hook(lab: &Lab) -> Vec<String> {
    let said = lab.sh("mars", "journalctl --sync; journalctl -o cat --no-pager -t keyholder-alert");
    said.lines().map(str::to_owned).collect()
}

/// What it was told.
fn told(lab: &Lab) -> Vec<Value> {
    hook(lab).iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[test]
fn an_alert_calls_a_person_and_nobody_is_called_for_less() {
    let names: Vec<String> = (1..=CROWD).map(|n| format!("c{n:02}")).collect();
    let mut units = vec!["critical", "normal", "aux", "loops"];
    units.extend(names.iter().map(String::as_str));
    let files: Vec<(String, String)> =
        units.iter().map(|unit| (format!("{unit}.service"), service(""))).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(name, body)| (name.as_str(), body.as_str())).collect();
    let mut workers = String::from(
        "normal: { unit: normal.service }\nloops: { unit: loops.service }\naux: { unit: aux.service, blast_radius: auxiliary }\n",
    );
    for critical in ["critical"].into_iter().chain(names.iter().map(String::as_str)) {
        workers.push_str(&format!("{critical}: {{ unit: {critical}.service, blast_radius: critical }}\n"));
    }
    let lab = Lab::pair("alerts", &files, &workers);
    let events = Events::open(&lab);

    without_a_hook_nothing_is_started(&lab, &events);
    what_systemd_restarts_again_and_again_is_said(&lab, &events);
    lab.write("mars", "/etc/keyholder/alert", HOOK);
    lab.sh("mars", "chmod 755 /etc/keyholder/alert");
    less_than_critical_is_told_and_nobody_is_called(&lab, &events);
    a_critical_death_is_told_to_a_person(&lab, &events);
    a_hook_that_others_can_write_is_not_run(&lab);
    a_storm_is_a_few_calls_and_a_count(&lab, &events, &names);
}

/// Whoever has no hook pays nothing for it.
fn without_a_hook_nothing_is_started(lab: &Lab, events: &Events) {
    lab.sh("mars", "systemctl kill -s KILL critical");
    let alert = || events.of("critical", "fell").into_iter().find(|event| event["event"] == "alert");
    let alert = wait("its death is told", SOON, alert);
    assert!(alert["text"].as_str().expect("a text").contains("its last journal lines"), "{alert}");
    lab.verified("critical");
    wait("its end is told", SOON, || (!events.of("critical", "the alert is over").is_empty()).then_some(()));
    let started = lab.sh("mars", "journalctl --sync; journalctl -o cat --no-pager UNIT=keyholder-alert@*.service + _SYSTEMD_UNIT=keyholder-alert@*.service | wc -l");
    assert_eq!(started.trim(), "0");
    assert_eq!(told(lab), [] as [Value; 0]);
}

/// Whenever somebody looks it is up or about to be, and no start limit ends that.
fn what_systemd_restarts_again_and_again_is_said(lab: &Lab, events: &Events) {
    let restart = "[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestart=always\nRestartSec=100ms\n";
    lab.write("mars", "/etc/systemd/system/loops.service.d/loops.conf", restart);
    lab.sh("mars", "systemctl daemon-reload");
    // By hand it may be started as often as somebody likes.
    for _ in 0..4 {
        lab.sh("mars", "systemctl restart loops");
    }
    lab.write(
        "mars",
        "/etc/systemd/system/loops.service.d/loops.conf",
        &format!("{restart}ExecStart=\nExecStart=/bin/sh -c 'sleep 0.2; exit 7'\n"),
    );
    assert!(events.of("loops", "again and again").is_empty(), "{:?}", events.all());
    lab.sh("mars", "systemctl daemon-reload; systemctl restart --no-block loops");
    let told = wait("it is told", SOON, || {
        events.of("loops", "falls again and again").into_iter().find(|event| event["event"] == "alert")
    });
    assert_eq!((&told["event"], &told["priority"]), (&"alert".into(), &3.into()), "{told}");
    assert!(told["text"].as_str().expect("a text").contains("lastly after exit code 7"), "{told}");
    wait("both say so", SOON, || {
        let said = ["mars", "ai-core"].map(|node| lab.sh(node, "keyholder status mars/loops || :"));
        said.iter()
            .all(|said| said.contains("left to systemd, which restarts it again and again"))
            .then_some(())
    });
    let said = lab.tell("mars", "keyholder doctor").1;
    assert!(said.contains("mars/loops is") && said.contains("keyholder explain mars/loops"), "{said}");
    lab.sh("mars", "keyholder hold mars/loops --for 30m --why 'it has been seen'; systemctl stop loops");
    assert_eq!(events.of("loops", "falls again and again").len(), 1, "once");
}

/// All three are seen alike; what differs is who hears of it.
fn less_than_critical_is_told_and_nobody_is_called(lab: &Lab, events: &Events) {
    lab.sh("mars", "systemctl kill -s KILL normal aux");
    for worker in ["normal", "aux"] {
        let dead = wait("its death is told", SOON, || events.of(worker, "-> dead").pop());
        assert_eq!((&dead["event"], &dead["priority"]), (&"observed".into(), &4.into()), "{dead}");
        lab.verified(worker);
    }
    // What nothing depends on may be stopped by anybody: it is in the trail, and nobody is called.
    lab.sh("mars", "systemctl stop aux");
    let stopped = wait("its stop is told", SOON, || events.of("aux", "no hold was declared").pop());
    assert_eq!(stopped["event"], "observed", "{stopped}");
    lab.sh("mars", "systemctl start aux");
    assert_eq!(told(lab), [] as [Value; 0]);
}

fn a_critical_death_is_told_to_a_person(lab: &Lab, events: &Events) {
    lab.sh("mars", "systemctl kill -s SEGV critical");
    let line = wait("the hook is told", SOON, || told(lab).into_iter().find(|line| line["event"] == "alert"));
    let event = wait("the stream has it", SOON, || {
        events.all().into_iter().find(|event| event["seq"] == line["seq"])
    });
    assert_eq!(line["node"], "mars");
    for field in ["seq", "at", "event", "priority", "message_id", "by", "subject", "text"] {
        assert_eq!(line[field], event[field], "{field}: {line} and {event}");
    }
    assert_eq!((&line["event"], &line["priority"]), (&"alert".into(), &3.into()));
    assert!(line["text"].as_str().expect("a text").contains("signal 11 (SEGV)"), "{line}");
    // The same in the journal, under the same kind, and in the audit, under the same number.
    let id = line["message_id"].as_str().expect("an id");
    wait("the journal has it", SOON, || {
        let line = format!(
            "journalctl --sync; journalctl -o cat --no-pager MESSAGE_ID={id} KEYHOLDER_SUBJECT=mars/critical"
        );
        lab.sh("mars", &line).contains("signal 11 (SEGV)").then_some(())
    });
    let audit: Value = serde_json::from_str(&lab.sh("mars", "keyholder audit -n 100 --json")).expect("JSON");
    let audit = audit["outcome"]["audit"].as_array().expect("lines").clone();
    assert!(audit.iter().any(|one| one["seq"] == line["seq"] && one["text"] == line["text"]), "{line}");
    // Outside root: no rights, nothing to write on.
    let who = hook(lab).into_iter().find(|line| line.starts_with("uid ")).expect("who it was");
    let uid: u32 = who.split(' ').nth(1).and_then(|uid| uid.parse().ok()).expect("a uid");
    assert!((61184..=65519).contains(&uid), "a dynamic user: {who}");
    assert!(who.contains("CapEff: 0000000000000000") && !who.contains("writes"), "{who}");
    lab.verified("critical");
    // Whoever was called is told that it is over.
    let end = wait("the hook is told of the end", SOON, || {
        told(lab)
            .into_iter()
            .find(|line| line["event"] == "alert-ended" && line["subject"] == "mars/critical")
    });
    assert!(end["text"].as_str().expect("a text").contains("well again after"), "{end}");
    let left = || lab.sh("mars", "systemctl list-units --all --no-legend 'keyholder-alert@*'");
    wait("nothing is left of it", SOON, || left().trim().is_empty().then_some(()));
    // The group may look.
    let seen = lab.sh("mars", "setpriv --reuid=nobody --regid=nogroup --groups=keyholder keyholder events --no-follow -n 100 --json");
    assert!(seen.contains("signal 11 (SEGV)"), "{seen}");
}

fn a_hook_that_others_can_write_is_not_run(lab: &Lab) {
    let before = told(lab).len();
    lab.sh("mars", "chmod 775 /etc/keyholder/alert; systemctl kill -s KILL critical");
    wait("it is said why nobody was called", SOON, || {
        let said = lab.sh("mars", "journalctl --sync; journalctl -o cat --no-pager -t keyholder-alert");
        said.contains("others may write to the file /etc/keyholder/alert").then_some(())
    });
    assert_eq!(told(lab).len(), before);
    let doctor = lab.try_sh("mars", "keyholder doctor");
    let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(doctor.contains("/etc/keyholder/alert is not run"), "{doctor}");
    lab.sh("mars", "chmod 755 /etc/keyholder/alert");
    lab.verified("critical");
}

fn a_storm_is_a_few_calls_and_a_count(lab: &Lab, events: &Events, names: &[String]) {
    lab.sh("mars", &format!("systemctl kill -s KILL {}", names.join(" ")));
    for name in names {
        wait("each death is told", SOON, || (!events.of(name, "fell").is_empty()).then_some(()));
        lab.verified(name);
        wait("and its end", SOON, || (!events.of(name, "the alert is over").is_empty()).then_some(()));
    }
    let mine = |line: &Value| names.iter().any(|name| line["subject"] == format!("mars/{name}"));
    let called = || told(lab).iter().filter(|line| mine(line)).count();
    let count = wait("the rest is counted", 60 * SECOND + SOON, || {
        told(lab).into_iter().find(|line| {
            line["text"].as_str().is_some_and(|text| text.contains("more alerts came within 60 s"))
        })
    });
    let counted = count["text"].as_str().and_then(|text| text.split(' ').next()?.parse::<usize>().ok());
    let counted = counted.unwrap_or_else(|| panic!("how many? {count}"));
    // Each was called for, and its end told, or it was counted.
    wait("each was told or counted", SOON, || (called() + counted >= 2 * CROWD).then_some(()));
    let called = called();
    assert_eq!(called + counted, 2 * CROWD, "{called} calls; {count}");
    assert!(called <= 10, "a minute has ten calls: {called}; {count}");
}
