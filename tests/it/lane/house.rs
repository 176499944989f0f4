//! A master, a replica and three sentinels that elect.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::rig::within;
use crate::redis_server::{Redis, Sentinel};

/// How long a master may be gone before another is elected: longer than it takes to start one again.
const DOWN_AFTER: Duration = Duration::from_secs(2);

/// How long an election may take. A sentinel whose timer comes more than two seconds late, as on a machine that stalls, changes
/// nothing for thirty seconds ("TILT" in its documentation), and each of the three may have its own thirty.
pub(super) const ELECTED: Duration = Duration::from_secs(120);

pub(super) struct House {
    pub(super) servers: [Redis; 2],
    pub(super) sentinels: [Sentinel; 3],
}

impl House {
    pub(super) fn new() -> Self {
        // Whatever is acknowledged is in the file of a server that dies, but not of the machine: nobody cuts the power here.
        let args = ["--appendonly", "yes", "--appendfsync", "no", "--repl-diskless-sync-delay", "0"];
        let servers = [Redis::start(&args), Redis::start(&args)];
        let master = servers[0].port();
        let mut replica = servers[1].conn();
        redis::cmd("REPLICAOF").arg("127.0.0.1").arg(master).exec(&mut replica).unwrap();
        let sentinels = [(); 3].map(|()| Sentinel::start(master, 2, DOWN_AFTER));
        let house = Self { servers, sentinels };
        house.settle();
        house
    }

    pub(super) fn url(&self) -> String {
        let nodes = self.sentinels.each_ref().map(|sentinel| format!("127.0.0.1:{}", sentinel.port()));
        format!("redis-sentinel://{}/mymaster", nodes.join(","))
    }

    /// Which server is the master for this sentinel.
    fn named_by(&self, sentinel: &Sentinel) -> Option<usize> {
        // One that hangs has the others asked.
        let mut conn = sentinel.try_conn()?;
        let asked = redis::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg("mymaster").query(&mut conn);
        let (_, port): (String, u16) = asked.ok()?;
        self.servers.iter().position(|server| server.port() == port)
    }

    /// Which server is the master, if a sentinel and it itself say so: only then can a lane know.
    pub(super) fn master(&self) -> Option<usize> {
        let is = |named: &usize| role(&self.servers[*named]).as_deref() == Some("master");
        self.sentinels.iter().find_map(|sentinel| self.named_by(sentinel).filter(is))
    }

    /// Waits until there is one.
    pub(super) fn some_master(&self) -> usize {
        within(ELECTED, "there is a master", || self.master())
    }

    /// Whether all agree and the replica has everything: only then can another be elected without losing much.
    pub(super) fn is_settled(&self) -> bool {
        let Some(master) = self.master() else { return false };
        let agreed = self.sentinels.iter().all(|sentinel| {
            let quorum = sentinel.ask::<String>(&["CKQUORUM", "mymaster"]);
            self.named_by(sentinel) == Some(master) && quorum.is_ok_and(|said| said.starts_with("OK 3 "))
        });
        let replica = info(&self.servers[1 - master]);
        let knows = |what: &str| replica.lines().any(|line| line == what);
        let follows = knows("role:slave")
            && knows("master_link_status:up")
            && knows(&format!("master_port:{}", self.servers[master].port()));
        // A replica that the sentinels have not met is none that they elect.
        let met = self.sentinels.iter().all(|sentinel| {
            let replicas = sentinel.ask::<Vec<std::collections::BTreeMap<String, String>>>(&["REPLICAS", "mymaster"]);
            replicas.is_ok_and(|all| matches!(&all[..], [one] if one["master-link-status"] == "ok" && one["flags"] == "slave"))
        });
        agreed && follows && met
    }

    pub(super) fn settle(&self) {
        within(ELECTED, "master, replica and sentinels agree", || self.is_settled().then_some(()));
    }

    /// The master dies and another is elected; says which, and since when it is the master.
    pub(super) fn fail_over(&mut self) -> (usize, Instant) {
        let old = self.some_master();
        self.servers[old].kill();
        self.elected_after(old)
    }

    /// When that one is dead already.
    pub(super) fn elected_after(&self, old: usize) -> (usize, Instant) {
        self.signal(1 - old, Signal::SIGCONT);
        self.elected(1 - old)
    }

    /// From now on the replica hears of nothing, until [`fail_over`](Self::fail_over): what the master acknowledges is lost.
    pub(super) fn cut_off_replica(&self) {
        let master = self.some_master();
        self.signal(1 - master, Signal::SIGSTOP);
        let mut conn = self.servers[master].conn();
        redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("replica").exec(&mut conn).unwrap();
    }

    fn signal(&self, server: usize, signal: Signal) {
        kill(Pid::from_raw(self.servers[server].pid()), signal).unwrap();
    }

    /// The master is alive and another takes its place; it is the master for a lane when the sentinels say so.
    pub(super) fn hand_over(&self) -> (usize, Instant) {
        let old = self.some_master();
        within(ELECTED, "the sentinels begin", || {
            self.sentinels[0].ask::<()>(&["FAILOVER", "mymaster"]).ok()
        });
        let named = || self.sentinels.iter().all(|sentinel| self.named_by(sentinel) == Some(1 - old));
        within(ELECTED, "all sentinels name it", || named().then_some(()));
        self.elected(1 - old)
    }

    fn elected(&self, new: usize) -> (usize, Instant) {
        within(ELECTED, "it is elected", || self.master().filter(|master| *master == new));
        (new, Instant::now())
    }
}

fn role(server: &Redis) -> Option<String> {
    let mut conn = server.try_conn()?;
    let role: Vec<redis::Value> = redis::cmd("ROLE").query(&mut conn).ok()?;
    redis::from_redis_value_ref(role.first()?).ok()
}

fn info(server: &Redis) -> String {
    let Some(mut conn) = server.try_conn() else { return String::new() };
    redis::cmd("INFO").arg("replication").query(&mut conn).unwrap_or_default()
}
