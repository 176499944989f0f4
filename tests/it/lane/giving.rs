//! `keyholder run` and `keyholder queue` against a real server and a real lane.

use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::rig::{Client, Lane, Rig, until};
use crate::redis_server::Redis;

const ACTIONS: &str = "
  hello:
    mode: read
    argv: [DIR/hello, \"{name}\"]
    params: { name: { enum: [ada, bob] } }
    rate: { at_most: 3, per: 1h }
  note:
    mode: write
    argv: [DIR/note]
  fail:
    mode: write
    argv: [DIR/fail]
  delicate:
    mode: write
    argv: [DIR/note]
    approval: required
";

/// A node's files, a server, and who gives tasks to it.
struct Scene {
    rig: Rig,
    redis: Redis,
}

impl Scene {
    /// `more` is for the top of the fleet file.
    fn new(more: &str) -> Self {
        Self::with(more, Redis::start(&[]))
    }

    fn with(more: &str, redis: Redis) -> Self {
        let scene = Self { rig: Rig::new(ACTIONS), redis };
        scene.rig.program("hello", "echo \"hello $1\"; printf '\\033[2J' >&2");
        scene.rig.program("note", "echo noted >>DIR/log");
        scene.rig.program("fail", "exit 7");
        let key = scene.keyholder(&["key", "generate", "--task", "--key-dir", "DIR"]);
        let key = String::from_utf8(key.stdout).unwrap();
        let approver = scene.keyholder(&["key", "generate", "--approver", "--key-dir", "DIR"]);
        let approver = String::from_utf8(approver.stdout).unwrap();
        let fleet = format!(
            "version: 1\nredis: {{ url: \"{}\" }}\ntask_keys: {{ ada: \"{}\" }}\napprover_keys: {{ eve: \"{}\" \
             }}\n{more}\nnodes:\n  mars: {{ address: \
             \"192.0.2.10:7433\" }}\n  venus: {{ address: \"192.0.2.20:7433\" }}\n",
            scene.redis.url(""),
            key.trim(),
            approver.trim()
        );
        std::fs::write(scene.rig.path("fleet.yaml"), fleet).unwrap();
        scene
    }

    /// Runs keyholder; `DIR` in an argument is the scene's directory.
    fn keyholder(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn command(&self, args: &[&str]) -> Command {
        let dir = self.rig.dir.path().to_str().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_keyholder"));
        command.args(args.iter().map(|arg| arg.replace("DIR", dir))).env_remove("KEYHOLDER_REDIS");
        command
    }

    fn run(&self, args: &[&str]) -> Told {
        let files = [
            "--timeout",
            "20s",
            "--fleet",
            "DIR/fleet.yaml",
            "--key",
            "DIR/task.pem",
            "--approver-key",
            "DIR/approve.pem",
        ];
        let files = if args.iter().any(|arg| ["--timeout", "--no-wait"].contains(arg)) {
            &files[2..]
        } else {
            &files
        };
        Told::of(self.keyholder(&[&["run"], args, files].concat()))
    }

    fn queue(&self, args: &[&str]) -> Told {
        let files = ["--fleet", "DIR/fleet.yaml", "--socket", "DIR/no.sock"];
        Told::of(self.keyholder(&[&["queue", "mars"], args, &files[..]].concat()))
    }

    /// A lane that believes the fleet file's keys only; the one on its command line is nobody's.
    fn lane(&self, mode: &str) -> Lane {
        let nobody = format!("nobody=ed25519:{}", "0".repeat(64));
        let fleet = self.rig.path("fleet.yaml");
        self.rig.lane_with(mode, &self.redis, &["--fleet", fleet.to_str().unwrap(), "--signer", &nobody], &[])
    }

    fn waiting(&self) -> [u64; 2] {
        ["write", "read"].map(|mode| {
            let mut client = Client::new(&self.redis, mode);
            let key = client.keys.queue.clone();
            client.length(&key)
        })
    }
}

#[derive(Debug)]
struct Told {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Told {
    fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

#[test]
fn a_signed_task_is_run_and_its_output_end_and_path_are_told() {
    let scene = Scene::new("");
    let _lane = scene.lane("write");
    let told = scene.run(&["mars", "hello", "name=ada"]);
    assert_eq!((told.code, told.out.as_str()), (Some(0), "hello ada\n"), "{told:?}");
    assert!(
        told.err.contains("mars hello: ok, exit code 0, ") && told.err.contains("; write lane, task "),
        "{told:?}"
    );
    assert!(told.err.contains("\\x1b[2J") && !told.err.contains('\x1b'), "{told:?}");

    let told = scene.run(&["mars", "fail", "--json"]);
    let step: Value = serde_json::from_str(&told.out).unwrap();
    assert_eq!((told.code, &step["result"]["ran"]["exit_code"]), (Some(1), &7.into()), "{step:#}");

    for _ in 0..2 {
        assert_eq!(scene.run(&["mars", "hello", "name=bob"]).code, Some(0));
    }
    let told = scene.run(&["mars", "hello", "name=bob"]);
    assert_eq!(told.code, Some(5));
    assert!(
        told.err.contains("refused, not run: rate_limit: hello: 3+1 in 3600 s > 3; write lane"),
        "{told:?}"
    );
}

#[test]
fn a_plan_is_checked_whole_before_anything_is_given_and_ends_at_the_first_failure() {
    let scene = Scene::new("");
    let plan =
        |steps: &str| std::fs::write(scene.rig.path("plan.yaml"), format!("steps: [{steps}]\n")).unwrap();
    plan("{ node: mars, action: note }, { node: mars, action: queue.length_mars_peer }");
    let told = scene.run(&["--plan", "DIR/plan.yaml"]);
    assert_eq!(told.code, Some(5), "{told:?}");
    assert_eq!(
        told.err,
        "keyholder: error: step[1]: unknown_action 'queue.length_mars_peer' on mars; what there is: keyholder \
         catalog show mars\n"
    );
    for (args, code) in [
        (&["mars", "hello", "name=$(id)"][..], 5),
        (&["mars", "hello", "name=ada", "argv=/bin/sh"], 5),
        (&["pluto", "hello", "name=ada"], 4),
        (&["venus", "hello", "name=ada"], 1),
        (&["mars", "hello", "ada"], 2),
    ] {
        assert_eq!(scene.run(args).code, Some(code), "{args:?}");
    }
    assert_eq!(scene.waiting(), [0, 0]);

    let _lane = scene.lane("write");
    plan("{ node: mars, action: note }, { node: mars, action: fail }, { node: mars, action: note }");
    let told = scene.run(&["--plan", "DIR/plan.yaml"]);
    assert_eq!(told.code, Some(1));
    assert!(told.err.contains("step[1] did not succeed; the 1 after it were not submitted"), "{told:?}");
    assert_eq!(scene.rig.log(), ["noted"]);
}

#[test]
fn a_key_that_no_lane_would_believe_gives_nothing() {
    let scene = Scene::new("");
    std::fs::remove_file(scene.rig.path("task.pem")).unwrap();
    let told = scene.run(&["mars", "note"]);
    assert!(told.code == Some(5) && told.err.contains("keyholder key generate --task"), "{told:?}");
    scene.keyholder(&["key", "generate", "--task", "--key-dir", "DIR"]);
    let told = scene.run(&["mars", "note"]);
    assert!(told.code == Some(5) && told.err.contains("in no line of `task_keys`"), "{told:?}");
    assert_eq!(scene.waiting(), [0, 0]);
}

#[test]
fn reads_go_to_the_read_lane_when_the_fleet_says_so_and_what_waits_is_shown() {
    let scene = Scene::new("lanes: { read_routing: true }");
    let told = scene.run(&["mars", "hello", "name=ada", "--timeout", "300ms"]);
    assert!(told.code == Some(6) && told.err.contains("it stays in the read lane of mars"), "{told:?}");
    let id = scene.run(&["mars", "note", "--no-wait"]).out;
    assert_eq!(scene.waiting(), [1, 1]);
    let told = scene.queue(&[]);
    assert!(
        told.out.contains("mars write lane (tasks:maintenance:mars): 1 waiting, 0 in flight"),
        "{told:?}"
    );
    assert!(told.out.contains("NOBODY serves it") && told.out.contains(id.trim()), "{told:?}");
    let _lanes = [scene.lane("write"), scene.lane("read")];
    let told = scene.run(&["mars", "hello", "name=bob"]);
    assert!(told.code == Some(0) && told.err.contains("; read lane, task "), "{told:?}");
    until("the write is done", || (scene.rig.log() == ["noted"]).then_some(()));
    let told = scene.queue(&[]);
    assert!(told.out.contains("0 waiting") && told.out.contains("served by host "), "{told:?}");
}

#[test]
fn without_anybody_to_keep_the_record_a_dead_letter_stays_where_it_is() {
    let scene = Scene::new("");
    let _lane = scene.lane("write");
    let mut client = Client::new(&scene.redis, "write");
    client.push(b"{");
    let dead = until("it is dead-lettered", || client.dead().first().cloned());
    let hash = dead["sha256"].as_str().unwrap().to_owned();
    let told = scene.queue(&["drop", &hash[..12], "--why", "a test"]);
    assert!(told.code == Some(6) && told.err.contains("nothing was touched"), "{told:?}");
    let told = scene.queue(&["requeue", &hash[..12], "--why", "a test"]);
    assert!(told.code == Some(5) && told.err.contains("is not requeued: nobody signed it"), "{told:?}");
    assert_eq!(scene.queue(&["drop", "zz", "--why", "a test"]).code, Some(1));
    assert_eq!(scene.queue(&["drop", &hash]).code, Some(2));
    assert_eq!(client.dead().len(), 1);
}

#[test]
fn a_server_that_dies_and_comes_back_while_a_result_is_waited_for_is_asked_again() {
    let mut scene = Scene::with("", Redis::start(&["--appendonly", "yes", "--appendfsync", "always"]));
    let args =
        ["run", "mars", "note", "--timeout", "25s", "--fleet", "DIR/fleet.yaml", "--key", "DIR/task.pem"];
    let waits = scene.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the task waits", || (scene.waiting() == [1, 0]).then_some(()));
    scene.redis.kill();
    scene.redis.come_back();
    let _lane = scene.lane("write");
    let told = Told::of(waits.wait_with_output().unwrap());
    assert!(told.code == Some(0) && told.err.contains("mars note: ok"), "{told:?}");
    assert_eq!(scene.rig.log(), ["noted"]);
}

#[test]
fn who_gives_and_who_looks_get_by_with_the_users_of_their_roles() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/catalogs/redis-users.acl");
    let scene = Scene::with("", Redis::start(&["--include", file]));
    let url = |user: &str| scene.redis.url(&format!("{user}:CHANGE-ME@"));
    let lane = ("KEYHOLDER_REDIS", url("lane-write"));
    let _lane = scene.rig.lane_with("write", &scene.redis, &[], &[(lane.0, &lane.1)]);
    let asked = |user: &str, args: &[&str]| {
        let files = ["--fleet", "DIR/fleet.yaml"];
        let mut command = scene.command(&[args, &files].concat());
        Told::of(command.env("KEYHOLDER_REDIS", url(user)).output().unwrap())
    };
    let run = ["run", "mars", "note", "--key", "DIR/task.pem", "--timeout", "20s"];
    let told = asked("producer", &run);
    // The lane here knows no key, so what is signed is nobody's word; that it says so is all that is wanted.
    assert!(told.code == Some(5) && told.err.contains("unsigned: no key"), "{told:?}");
    let told = asked("watcher", &["queue", "mars"]);
    assert!(told.code == Some(0) && told.out.contains("served by host"), "{told:?}");
    assert_eq!(asked("watcher", &run).code, Some(1), "who looks gives nothing");
}

#[test]
fn a_lane_believes_no_keys_that_others_than_root_could_have_written() {
    let scene = Scene::new("");
    let fleet = scene.rig.path("fleet.yaml");
    std::fs::set_permissions(&fleet, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let mut lane = scene.lane("write");
    assert_eq!(lane.end(), Some(1));
    // Its last line may still be on its way.
    lane.wait_for("the fleet file is not valid");
}

#[test]
fn what_the_catalog_wants_approved_is_given_to_nobody_without_a_persons_word() {
    let scene = Scene::new("");
    let _lane = scene.lane("write");
    let told = scene.run(&["mars", "delicate"]);
    assert!(
        told.code == Some(5)
            && told.err.contains("approval_required: step[0] delicate on mars; no task was submitted")
            && told.err.contains("--yes"),
        "{told:?}"
    );
    std::fs::write(
        scene.rig.path("plan.yaml"),
        "steps: [{ node: mars, action: note }, { node: mars, action: delicate }]\n",
    )
    .unwrap();
    let told = scene.run(&["--plan", "DIR/plan.yaml"]);
    assert!(told.code == Some(5) && told.err.contains("step[1] delicate on mars"), "{told:?}");
    assert_eq!((scene.waiting(), scene.rig.log()), ([0, 0], Vec::new()), "not even the step before it");
    assert_eq!(scene.run(&["mars", "delicate", "--yes"]).code, Some(0));
    assert_eq!(scene.rig.log(), ["noted"]);

    // At a terminal, somebody is asked.
    let at_a_terminal = |answer: &str| {
        let dir = scene.rig.dir.path().display().to_string();
        let keyholder = env!("CARGO_BIN_EXE_keyholder");
        let command = format!(
            "{keyholder} run mars delicate --fleet {dir}/fleet.yaml --key {dir}/task.pem \
             --approver-key {dir}/approve.pem"
        );
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--command", &command, "/dev/null"]);
        let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), answer.as_bytes()).unwrap();
        Told::of(child.wait_with_output().unwrap())
    };
    let no = at_a_terminal("\n");
    assert!(
        no.code == Some(5) && no.out.contains("step[0] on mars: delicate") && no.out.contains("[y/N]"),
        "{no:?}"
    );
    // On a terminal lines end between words, wherever that is.
    let words = no.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("it was not approved"), "{no:?}");
    assert_eq!(scene.rig.log(), ["noted"]);
    assert_eq!(at_a_terminal("y\n").code, Some(0));
    assert_eq!(scene.rig.log(), ["noted", "noted"]);

    // A word that no lane would take is not asked for, whoever says yes.
    let strange = scene.rig.path("approve.pem");
    std::fs::remove_file(&strange).unwrap();
    let told = scene.run(&["mars", "delicate", "--yes"]);
    assert!(told.code == Some(5) && told.err.contains("keyholder key generate --approver"), "{told:?}");
    scene.keyholder(&["key", "generate", "--approver", "--key-dir", "DIR"]);
    let told = scene.run(&["mars", "delicate", "--yes"]);
    assert!(told.code == Some(5) && told.err.contains("in no line of `approver_keys`"), "{told:?}");
    assert_eq!((scene.waiting(), scene.rig.log().len()), ([0, 0], 2));
}

/// However it comes: signed without an approval, or not signed where nobody has to sign.
#[test]
fn a_lane_runs_nothing_that_wants_an_approval_and_has_none() {
    let scene = Scene::new("");
    // A catalog that another host may have: there it wants no approval, so `keyholder run` gives none.
    let catalog = scene.rig.path("catalog_mars.yaml");
    let wanted = std::fs::read_to_string(&catalog).unwrap();
    let lane = scene.lane("write");
    lane.wait_for("serving");
    std::fs::write(&catalog, wanted.replace("    approval: required\n", "")).unwrap();
    let told = scene.run(&["mars", "delicate"]);
    assert!(
        told.code == Some(5) && told.err.contains("unapproved: delicate on mars needs a person's"),
        "{told:?}"
    );
    let mut client = Client::new(&scene.redis, "write");
    let dead = until("it is dead-lettered", || client.dead().first().cloned());
    assert_eq!(dead["code"], "unapproved");
    assert!(scene.queue(&[]).out.contains("  delicate  "), "the listing says what it asks for");
    assert_eq!(lane.leave(), Some(0));
    std::fs::write(&catalog, wanted).unwrap();
    let unsigned = scene.rig.lane("write", &scene.redis);
    unsigned.wait_for("serving");
    let raw = super::rig::task("bare", "delicate", "{}");
    client.push(raw.as_bytes());
    until("it is dead-lettered", || (client.dead().len() == 2).then_some(()));
    assert_eq!(client.dead()[0]["code"], "unapproved");
    assert_eq!(scene.rig.log(), [""; 0]);
}

/// What Redis holds about a task of somebody else's is not shown as its result.
#[test]
fn a_result_that_is_another_tasks_is_not_believed() {
    let scene = Scene::new("");
    let lane = scene.lane("write");
    let other = scene.run(&["mars", "note", "--json"]);
    let other: Value = serde_json::from_str(&other.out).unwrap();
    assert_eq!(lane.leave(), Some(0));
    let waits = scene
        .command(&[
            "run",
            "mars",
            "note",
            "--timeout",
            "25s",
            "--fleet",
            "DIR/fleet.yaml",
            "--key",
            "DIR/task.pem",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut client = Client::new(&scene.redis, "write");
    let queue = client.keys.queue.clone();
    let raw = until("the task waits", || {
        let raw: Option<String> = redis::cmd("LINDEX").arg(&queue).arg(0).query(&mut client.conn).unwrap();
        raw
    });
    let envelope: Value = serde_json::from_str(&raw).unwrap();
    let task: Value = serde_json::from_str(envelope["task"].as_str().unwrap()).unwrap();
    let key = client.keys.result(task["id"].as_str().unwrap());
    redis::cmd("SET").arg(key).arg(other["result"].to_string()).exec(&mut client.conn).unwrap();
    let told = Told::of(waits.wait_with_output().unwrap());
    assert!(told.code == Some(1) && told.err.contains("somebody writes results there"), "{told:?}");
}
