//! What may happen to a lane's server, how the lane lives through it, and who gives tasks meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::{Duration, Instant};

use super::house::{ELECTED, House};
use super::rig::{Client, Dice, Lane, Rig, task, until, within};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    /// SIGKILL, and started again before anybody else is elected.
    Dies,
    /// It answers nobody for a while.
    Paused,
    /// It is made a replica of nobody, and a master again.
    ReadOnly,
    /// It has no memory left.
    Full,
    /// SIGKILL, and the sentinels elect the other.
    FailsOver,
    /// The sentinels elect the other while it lives.
    HandsOver,
}

pub(super) const FAULTS: [Fault; 6] =
    [Fault::Dies, Fault::Paused, Fault::ReadOnly, Fault::Full, Fault::FailsOver, Fault::HandsOver];

/// A lane is back so soon after its server. Once in twenty times this machine may have had other things to do.
const WANTED: Duration = Duration::from_secs(5);

/// What it did to the lanes, over all faults of one kind.
#[derive(Default)]
pub(super) struct Toll {
    times: u32,
    /// How long the server was no good, with a lane that lived through all of it, and what that lane used of a processor.
    away: Duration,
    ticks: u64,
    /// The longest time from the server's return to the next result, and how often that was more than is [`WANTED`].
    slowest: Duration,
    pub(super) late: u32,
}

impl Toll {
    /// More than a few ticks and a twentieth of a processor: a share alone says nothing of an outage of half a second.
    pub(super) fn is_a_busy_loop(&self) -> bool {
        self.ticks as f64 > 5.0 + 5.0 * self.away.as_secs_f64()
    }

    /// In percent of one processor.
    fn share(&self) -> f64 {
        self.ticks as f64 * 0.01 * 100.0 / self.away.as_secs_f64().max(1e-9)
    }
}

impl fmt::Display for Toll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (times, slowest, share, away) = (self.times, self.slowest, self.share(), self.away);
        write!(f, "{times} times, back within {slowest:.1?}, {share:.1} % of a processor in {away:.1?}")
    }
}

pub(super) struct Given {
    pub(super) action: &'static str,
    raw: String,
    /// The replica has it too.
    safe: bool,
}

pub(super) struct Storm {
    pub(super) house: House,
    pub(super) rig: Rig,
    pub(super) dice: Dice,
    pub(super) given: Vec<Given>,
    /// Not known to be answered for good: an answer can be lost with the server that has it.
    open: BTreeSet<usize>,
    /// A failover took them along, with their answers if they had any; they were given again.
    pub(super) again: BTreeSet<usize>,
    pub(super) tolls: BTreeMap<Fault, Toll>,
}

impl Storm {
    pub(super) fn new(rig: Rig) -> Self {
        let (house, dice) = (House::new(), Dice::new());
        Self {
            house,
            rig,
            dice,
            given: Vec::new(),
            open: BTreeSet::new(),
            again: BTreeSet::new(),
            tolls: BTreeMap::new(),
        }
    }

    pub(super) fn lane(&self) -> Lane {
        self.rig.lane_at("write", &self.house.url(), &[], &[])
    }

    /// Ends a lane as nobody could prevent.
    pub(super) fn kill(&self, lane: Lane) {
        assert!(lane.loudest_minute() <= 5, "{:?}", lane.said());
        lane.die();
    }

    /// A connection to the master, when there is one.
    pub(super) fn client(&self) -> Client {
        within(ELECTED, "a master answers", || {
            let master = self.house.master()?;
            self.house.servers[master].try_conn().map(|conn| Client::over(conn, "write"))
        })
    }

    pub(super) fn give(&mut self, many: u64) {
        let mut client = self.client();
        for _ in 0..many {
            let n = self.given.len();
            let action = if self.dice.below(4) == 0 { "again" } else { "once" };
            let raw = task(&format!("t{n}"), action, &format!(r#"{{"n":{n}}}"#));
            let wait = self.dice.below(2) == 0;
            let given = redis::cmd("LPUSH").arg(&client.keys.queue).arg(&raw).exec(&mut client.conn);
            let safe = given.is_ok() && wait && replicated(&mut client, 100);
            self.given.push(Given { action, raw, safe });
            self.open.insert(n);
        }
    }

    /// Gives again what a failover has lost; answers with how many are not answered for good.
    pub(super) fn look_after(&mut self) -> usize {
        let mut client = self.client();
        // If the replica has this, it has all the answers that are seen after it.
        let mut answered = BTreeSet::new();
        for &n in &self.open {
            let (raw, keys) = (&self.given[n].raw, &client.keys);
            let mut pipe = redis::pipe();
            pipe.atomic().cmd("LPOS").arg(&keys.queue).arg(raw).cmd("LPOS").arg(&keys.in_flight).arg(raw);
            pipe.cmd("EXISTS").arg(keys.result(&format!("t{n}")));
            type Seen = (Option<u64>, Option<u64>, bool);
            // A connection that sentinels cut: the next time.
            let Ok(seen) = pipe.query::<Seen>(&mut client.conn) else { return self.open.len() };
            match seen {
                (_, _, true) => drop(answered.insert(n)),
                (None, None, false) => {
                    assert!(!self.given[n].safe, "t{n} is lost, although the replica had it");
                    let given = redis::cmd("LPUSH").arg(&client.keys.queue).arg(raw).exec(&mut client.conn);
                    if given.is_ok() {
                        self.again.insert(n);
                    }
                }
                (Some(_), _, false) | (_, Some(_), false) => {}
            }
        }
        if self.house.is_settled() && replicated(&mut client, 1000) {
            self.open.retain(|n| !answered.contains(n));
        }
        self.open.len()
    }

    /// Something happens to the server, and the lane that is there afterwards is back soon.
    pub(super) fn strike(&mut self, fault: Fault, lane: Lane) -> Lane {
        self.house.settle();
        self.look_after();
        if fault == Fault::FailsOver && self.dice.below(2) == 0 {
            self.house.cut_off_replica();
        }
        // What may be in the hands of nobody but the master when it happens.
        let many = 1 + self.dice.below(5);
        self.give(many);
        std::thread::sleep(Duration::from_micros(self.dice.below(150_000)));
        let replaced = self.dice.below(3) == 0;
        let (began, ticks) = (Instant::now(), lane.ticks());
        let master = self.house.some_master();
        self.begin(fault, master);
        let mut lane = Some(lane);
        if replaced {
            // It starts into the outage.
            lane.take().into_iter().for_each(|lane| self.kill(lane));
        }
        let lane = lane.unwrap_or_else(|| self.lane());
        let back = self.end(fault, master);
        let (away, ticks) = (back - began, lane.ticks().saturating_sub(ticks));

        // Any next result will do: what has piled up takes its time.
        let before = until("it answers", || results(&mut self.client()));
        self.probe();
        until("a result after the outage", || {
            results(&mut self.client()).is_some_and(|now| now > before).then_some(())
        });
        let toll = self.tolls.entry(fault).or_default();
        toll.times += 1;
        toll.slowest = toll.slowest.max(back.elapsed());
        if !replaced {
            toll.away += away;
            toll.ticks += ticks;
        }
        let took = back.elapsed();
        toll.late += u32::from(took > WANTED);
        assert!(took < 4 * WANTED, "{fault:?}: back after {took:?}: {:?}", lane.said());
        if fault == Fault::FailsOver {
            self.house.servers[master].come_back();
        }
        self.look_after();
        lane
    }

    /// Something to do for a lane that finds the master. Which one that is may have changed once more: a machine that stalls
    /// has the sentinels elect another.
    fn probe(&mut self) {
        let n = self.given.len();
        let raw = task(&format!("t{n}"), "again", &format!(r#"{{"n":{n}}}"#));
        until("it takes a task", || {
            let mut client = self.client();
            redis::cmd("LPUSH").arg(&client.keys.queue).arg(&raw).exec(&mut client.conn).ok()
        });
        self.given.push(Given { action: "again", raw, safe: false });
        self.open.insert(n);
    }

    fn begin(&mut self, fault: Fault, master: usize) {
        let server = &mut self.house.servers[master];
        match fault {
            Fault::Dies => server.kill(),
            Fault::Paused => tell(server, &["CLIENT", "PAUSE", "1000"]),
            Fault::ReadOnly => tell(server, &["REPLICAOF", "127.0.0.1", "1"]),
            Fault::Full => tell(server, &["CONFIG", "SET", "maxmemory", "100kb"]),
            Fault::FailsOver | Fault::HandsOver => {}
        }
    }

    /// Ends it; says since when there is a master again.
    fn end(&mut self, fault: Fault, master: usize) -> Instant {
        let lasts = Duration::from_millis(100 + self.dice.below(500));
        match fault {
            Fault::Dies => {
                std::thread::sleep(lasts);
                self.house.servers[master].come_back();
            }
            Fault::Paused => std::thread::sleep(Duration::from_secs(1)),
            Fault::ReadOnly => {
                std::thread::sleep(lasts);
                tell(&self.house.servers[master], &["REPLICAOF", "NO", "ONE"]);
            }
            Fault::Full => {
                std::thread::sleep(lasts);
                tell(&self.house.servers[master], &["CONFIG", "SET", "maxmemory", "0"]);
            }
            Fault::FailsOver => return self.house.fail_over().1,
            Fault::HandsOver => return self.house.hand_over().1,
        }
        Instant::now()
    }
}

fn results(client: &mut Client) -> Option<u64> {
    redis::cmd("LLEN").arg(&client.keys.results).query(&mut client.conn).ok()
}

fn replicated(client: &mut Client, within_ms: u64) -> bool {
    // WAIT is about what this connection has written.
    let fence = redis::cmd("SET").arg("fence").arg(1).exec(&mut client.conn);
    let replicas = redis::cmd("WAIT").arg(1).arg(within_ms).query::<u64>(&mut client.conn);
    fence.is_ok() && replicas.is_ok_and(|replicas| replicas > 0)
}

fn tell(server: &crate::redis_server::Redis, words: &[&str]) {
    redis::cmd(words[0]).arg(&words[1..]).exec(&mut server.conn()).unwrap();
}
