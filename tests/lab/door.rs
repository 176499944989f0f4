//! The real door of a real supervisor: strangers, peers that overreach, replays and floods. Nothing of it reaches a worker, all
//! of it is in the audit, and a genuine order gets through meanwhile.

use std::io::{ErrorKind, Read};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Lab, SOON, service, wait};
use crate::orders::{OFTEN, relaunch, relaunched};
use crate::speak::{self, Place, Speech, framed, knock};

const SECOND: Duration = Duration::from_secs(1);

struct House {
    lab: Lab,
    refused: usize,
}

#[test]
fn nobody_but_a_peer_with_a_grant_moves_anything_and_everything_refused_is_one_audit_line() {
    let lab = Lab::boot("door", &["mars", "ai-core"]);
    for unit in ["agent", "sealed"] {
        lab.write("mars", &format!("/etc/systemd/system/{unit}.service"), &service(""));
    }
    lab.sh("mars", "systemctl daemon-reload && systemctl start agent sealed");
    lab.install();
    let workers = format!("agent: {{ {OFTEN} }}\nsealed: {{ unit: sealed.service }}");
    let fleet = lab.fleet(&[("mars", "ai-core", &workers), ("ai-core", "mars", "")]);
    // ai-core may do everything with `agent` and nothing with `sealed`.
    lab.deploy(&fleet.replace("on: mars, workers: [\"*\"]", "on: mars, workers: [agent]"));

    let mut house = House { refused: refusals(&lab).len(), lab };
    let before = house.runs();
    house.strangers();
    house.overreach();
    assert_eq!(house.runs(), before, "a worker was touched");
    assert_eq!(house.lab.evidence("mars", "acting"), Vec::<String>::new());
    house.replays();
    house.floods();
}

/// What mars refused. A supervisor that gives up waiting for a slow one hangs up, which is on record there as it should be; nothing
/// that is done here reads so.
fn refusals(lab: &Lab) -> Vec<String> {
    let mut lines = lab.evidence("mars", "refused");
    lines.retain(|line| !line.contains("it hung up"));
    lines
}

impl House {
    fn runs(&self) -> [String; 2] {
        ["agent.service", "sealed.service"].map(|unit| self.lab.property("mars", unit, "InvocationID"))
    }

    /// There is exactly one more refusal in the journal, and it says this.
    fn one_line(&mut self, words: &str) {
        let lab = &self.lab;
        let lines = wait(&format!("a refusal is on record: {words}"), SOON, || {
            let lines = refusals(lab);
            (lines.len() > self.refused).then_some(lines)
        });
        assert_eq!(lines.len(), self.refused + 1, "{lines:#?}");
        assert!(
            lines.last().is_some_and(|line| line.contains(words)),
            "{words:?} is not in {:?}",
            lines.last()
        );
        self.refused = lines.len();
    }

    /// Who proves no pinned key gets no answer.
    fn strangers(&mut self) {
        let tls = |more: &str| {
            format!(
                "head -c 300 /root/fleet.yaml | timeout 8 openssl s_client -quiet -connect 192.0.2.10:7433 {more} 2>/dev/null"
            )
        };
        let plain = |text: &str| format!("printf '{text}' | timeout 8 nc 192.0.2.10 7433");
        self.lab.sh(
            "ai-core",
            "openssl req -x509 -newkey ed25519 -nodes -keyout /root/other.key -out /root/other.pem -subj /CN=mars 2>&1",
        );
        let other = "-alpn keyholder/1 -cert /root/other.pem -key /root/other.key";
        for (line, words) in [
            (tls("-tls1_3 -alpn keyholder/1"), "certificate"),
            (tls(&format!("-tls1_3 {other}")), "pin"),
            (tls(&format!("-tls1_2 {other}")), "TLS 1.3"),
            (tls("-tls1_3 -alpn http/1.1 -cert /root/other.pem -key /root/other.key"), "keyholder/1"),
            (plain("GET / HTTP/1.1\\r\\nHost: mars\\r\\n\\r\\n"), "HTTP"),
            (plain("\\000\\000\\000\\034{\"hello\":{\"node\":\"ai-core\"}}"), "TLS"),
        ] {
            let output = self.lab.try_sh("ai-core", &line);
            assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{line}");
            self.one_line(words);
        }
    }

    /// A peer with a valid key that asks for more than it may, or in words that there are not.
    fn overreach(&mut self) {
        let mut peer = Speech::peer(&self.lab, "ai-core", "mars").greet("ai-core");
        let good = speak::relaunch(&peer.nonce, 1);
        let with = |field: &str, value: Value| {
            let mut request = good.clone();
            request[field] = value;
            request
        };
        for (request, code, words) in [
            (with("worker", json!("sealed")), "no_grant", "ai-core may not relaunch mars/sealed"),
            (with("worker", json!("nobody")), "no_grant", "ai-core may not relaunch mars/nobody"),
            (with("verb", json!({"explode": {}})), "malformed", "explode"),
            (with("verb", json!({"audit": {"last": 5}})), "local_only", "audit"),
            (with("verb", json!({"relaunch": {"force": true}})), "not_root", "force"),
            (with("unit", json!("sealed.service")), "malformed", "unit"),
            (with("worker", json!("agent.service")), "malformed", "agent.service"),
            (with("worker", json!("../agent")), "malformed", "../agent"),
            (with("target_node", json!("ai-core")), "wrong_node", "this is mars"),
            (with("because", json!("x\u{1b}[2J")), "malformed", "control"),
        ] {
            let verdict = peer.ask(&request);
            assert_eq!(verdict["refused"]["code"], code, "{request}: {verdict}");
            self.one_line(words);
        }
        let mut long = good.to_string();
        long.insert_str(1, &" ".repeat(4097 - "{\"request\":}".len() - long.len()));
        let long = format!("{{\"request\":{long}}}");
        assert_eq!(long.len(), 4097);
        peer.send(&framed(long.as_bytes()));
        assert_eq!(peer.verdict().expect("a refusal")["refused"]["code"], "too_large");
        peer.end();
        self.one_line("4097 bytes");

        let mut peer = Speech::peer(&self.lab, "ai-core", "mars");
        peer.say(&json!({"hello": {
            "node": "mars", "version": "0", "boot_nonce": "0".repeat(32), "fleet_hash": format!("sha256:{}", "0".repeat(64)),
        }}));
        assert_eq!(peer.verdict().expect("a refusal")["refused"]["code"], "wrong_node");
        peer.end();
        self.one_line("the hello says mars");

        let mut peer = Speech::peer(&self.lab, "ai-core", "mars").greet("ai-core");
        let begun = Instant::now();
        for byte in framed(good.to_string().as_bytes()).chunks(1).take(4) {
            peer.send(byte);
            // The slow client's own pace.
            std::thread::sleep(SECOND);
        }
        peer.end();
        assert!(begun.elapsed() < SOON, "a frame took {:?}", begun.elapsed());
        self.one_line("5 s");
    }

    /// The same request twice acts once; after the supervisor has started anew, it does not act at all.
    fn replays(&mut self) {
        for peer in [true, false] {
            let greet = |lab: &Lab| match peer {
                true => Speech::peer(lab, "ai-core", "mars").greet("ai-core"),
                false => Speech::local(lab, "mars").greet("local"),
            };
            let mut speech = greet(&self.lab);
            let order = speak::relaunch(&speech.nonce, if peer { 71 } else { 72 });
            let first = speech.ask(&order);
            let after = self.runs();
            assert_eq!(relaunched(&first)["invocation"], after[0].as_str());
            assert_eq!(speech.ask(&order), first, "the copy got another answer");
            assert_eq!(
                greet(&self.lab).ask(&order),
                first,
                "the copy over another connection got another answer"
            );
            assert_eq!(self.runs(), after, "the copy acted");

            let pid = self.supervisor();
            self.lab.sh("mars", "systemctl kill -s KILL keyholder.service");
            wait("another supervisor", SOON, || {
                let now = self.supervisor();
                (now != pid
                    && now != "0"
                    && self.lab.property("mars", "keyholder.service", "SubState") == "running")
                    .then_some(())
            });
            speech.end();
            let mut speech = greet(&self.lab);
            assert_ne!(speech.nonce, order["boot_nonce"]);
            assert_eq!(speech.ask(&order)["refused"]["code"], "stale_nonce");
            self.one_line("earlier run");
            assert_eq!(self.runs(), after, "the replay acted");
        }
    }

    fn supervisor(&self) -> String {
        self.lab.property("mars", "keyholder.service", "MainPID")
    }

    /// A thousand sockets that say nothing: from nowhere in the fleet, and from the peer's own address.
    fn floods(&mut self) {
        for place in [Place::bridge(&self.lab), Place::of(&self.lab, "ai-core")] {
            let descriptors = || -> usize {
                let line = "ls /proc/$(systemctl show -P MainPID keyholder.service)/fd | wc -l";
                self.lab.sh("mars", line).trim().parse().expect("a number")
            };
            let (before, begun) = (descriptors(), Instant::now());
            let crowd =
                place.within(|| (0..1000).map(|_| knock("mars").expect("it is taken")).collect::<Vec<_>>());
            let (verdict, took) = relaunch(&self.lab, "ai-core", "mars/agent");
            relaunched(&verdict);
            assert!(took < SOON, "{took:?} while they came");
            let crowd = crowd.join().expect("a thousand connections");
            let (verdict, took) = relaunch(&self.lab, "ai-core", "mars/agent");
            relaunched(&verdict);
            assert!(took < SOON, "{took:?} while they were there");
            let now = descriptors();
            assert!(now <= before + 40, "{now} descriptors, {before} before");
            for mut socket in crowd {
                socket.set_read_timeout(Some(SOON)).expect("a deadline");
                // An end or a reset, but no byte, and not nothing.
                let end = socket.read(&mut [0; 1]);
                let kept = end.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
                assert!(
                    !kept && end.as_ref().copied().unwrap_or(0) == 0,
                    "{end:?} after {:?}",
                    begun.elapsed()
                );
            }
            let lines = refusals(&self.lab).len();
            assert!(lines > self.refused && lines < self.refused + 40, "{} lines", lines - self.refused);
            wait("the flood is over", SOON, || {
                let lines = refusals(&self.lab).len();
                (std::mem::replace(&mut self.refused, lines) == lines && descriptors() <= before + 4)
                    .then_some(())
            });
        }
    }
}
