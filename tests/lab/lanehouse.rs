//! Two nodes with lanes, as the README has them installed: Redis and whoever gives tasks on `ai-core`, the shipped catalogs, and
//! on `mars` a write that runs for as long as a scenario wants.

use serde_json::Value;

use crate::falls::open_redis;
use crate::harness::{Lab, SOON, repo, wait};

/// What `mars` can besides what is shipped. A write that ends when somebody opens the gate costs no processor meanwhile.
const MORE: &str = r#"
  lab.write:
    mode: write
    description: runs until the gate is opened, and must not run twice
    argv: [/usr/local/bin/gate]
    timeout: 5m
  lab.read:
    mode: read
    description: does nothing, so that nothing but the way is measured
    argv: [/usr/bin/true]
  lab.root:
    mode: write
    description: needs root's rights, and must not run twice
    argv: [/usr/bin/sudo, -n, --, /usr/local/sbin/rooted]
  lab.again:
    mode: write
    description: restarts the lane that runs it, and waits for that
    argv: [/usr/bin/sudo, -n, --, /usr/bin/systemctl, restart, keyholder-lane-write.service]
  lab.later:
    mode: write
    description: restarts the lane that runs it, and does not wait
    argv: [/usr/bin/sudo, -n, --, /usr/bin/systemctl, --no-block, restart, keyholder-lane-write.service]
  lab.script:
    mode: write
    description: is a script that restarts the lane in the middle
    argv: [/usr/bin/sudo, -n, --, /usr/local/sbin/restarts]
  lab.upgrade:
    mode: write
    description: the same, run by PID 1
    argv: [/usr/bin/sudo, -n, --, /usr/bin/systemd-run, --quiet, --pipe, --wait, --collect, /usr/local/sbin/restarts]
  lab.intrude:
    mode: read
    description: tries to reach the write lane
    argv: [/usr/local/bin/intrude]
  lab.stubborn:
    mode: write
    description: is root's, so that the lane cannot end it, and does not listen
    argv: [/usr/bin/sudo, -n, --, /usr/local/sbin/stubborn]
    timeout: 1s
"#;

/// Boots `mars` and `ai-core` with both lanes each, reads routed to the write lane. `more` goes into the workers `write` of
/// `mars`, such as `, repair_by: peer`.
pub(crate) fn house(name: &'static str, more: &str) -> Lab {
    let lab = Lab::boot(name, &["mars", "ai-core"]);
    open_redis(&lab);
    lab.install();
    let key = lab.sh("ai-core", "keyholder key generate --task");
    let approver = lab.sh("ai-core", "keyholder key generate --approver");
    let shipped = |node: &str| {
        std::fs::read_to_string(repo("catalogs").join(format!("catalog_{node}.yaml"))).expect("it is shipped")
    };
    for node in ["mars", "ai-core"] {
        lab.write(node, "/root/catalogs/catalog_mars.yaml", &(shipped("mars") + MORE));
        lab.write(node, "/root/catalogs/catalog_ai-core.yaml", &shipped("ai-core"));
    }
    lab.write("mars", "/usr/local/bin/gate", "#!/bin/sh\nread -r _ </run/gate\n");
    lab.write(
        "mars",
        "/usr/local/sbin/stubborn",
        "#!/bin/sh\ntrap '' TERM\nuntil [ -e /run/let-go ]; do sleep 0.1; done\n",
    );
    lab.sh("mars", "chmod 755 /usr/local/bin/gate /usr/local/sbin/stubborn; mkfifo -m 666 /run/gate");
    let lanes = "write: { lane: write }\nread: { lane: read }";
    let mars = format!("write: {{ lane: write{more} }}\nread: {{ lane: read }}");
    let fleet = lab.fleet(&[("mars", "ai-core", &mars), ("ai-core", "mars", lanes)]).replace(
        "version: 1\n",
        &format!(
            "version: 1\nredis: {{ url: \"redis://ai-core:6379\" }}\ntask_keys: {{ ai-core: \"{}\" }}\n\
                 approver_keys: {{ ada: \"{}\" }}\nlanes: {{ read_routing: false }}\n",
            key.trim(),
            approver.trim()
        ),
    );
    lab.deploy_with(&fleet, "--catalogs /root/catalogs");
    for (node, lane) in [("mars", "write"), ("mars", "read"), ("ai-core", "write"), ("ai-core", "read")] {
        wait(&format!("the {lane} lane of {node} serves, as the other node sees it"), SOON, || {
            let lane = lab.lane(if node == "mars" { "ai-core" } else { "mars" }, node, lane);
            (lane["connected"] == true && lane["waiting"] == 0).then_some(())
        });
    }
    lab
}

impl Lab {
    /// What `at` knows of what a lane says of itself.
    pub(crate) fn lane(&self, at: &str, node: &str, lane: &str) -> Value {
        self.worker(at, node, lane)["lane"].clone()
    }

    /// Has the fleet's reads go to the read lanes, in the documented order: those run already.
    pub(crate) fn route_reads(&self) {
        for node in ["mars", "ai-core"] {
            self.sh(node, "sed -i 's/read_routing: false/read_routing: true/' /etc/keyholder/fleet.yaml && keyholder check -q && systemctl reload keyholder");
        }
    }

    /// Gives the write that waits for the gate, and waits until it runs; its id.
    pub(crate) fn begin_write(&self) -> String {
        let id = self.sh("ai-core", "keyholder run mars lab.write --no-wait").trim().to_owned();
        wait("the write runs, as ai-core sees it", SOON, || {
            (self.lane("ai-core", "mars", "write")["in_flight"][0]["id"] == id.as_str()).then_some(())
        });
        id
    }

    /// Lets the write end.
    pub(crate) fn open_gate(&self) {
        self.sh("mars", "timeout 10 sh -c 'echo >/run/gate'");
    }

    /// Waits until a lane's unit is ready in another run than `before`.
    pub(crate) fn new_lane_run(&self, node: &str, unit: &str, before: &str) {
        self.new_run(node, unit, before, SOON);
    }

    /// What became of a task of `mars`.
    pub(crate) fn result(&self, queue: &str, id: &str) -> Value {
        wait(&format!("a result of {id}"), SOON, || {
            let json = self.sh("ai-core", &format!("redis-cli GET '{{{queue}}}:result:{id}'"));
            serde_json::from_str(json.trim()).ok()
        })
    }
}
