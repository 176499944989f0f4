//! Tasks from giving to proof, on real nodes: which lane ran what, shown by what journald itself says.

use serde_json::Value;

use crate::harness::{Lab, SOON, wait};

const MARS: &str = r#"version: 1
node: mars
actions:
  service.logs:
    mode: read
    argv: [/usr/bin/journalctl, -q, -u, "{unit}", -n, "{lines}", --no-pager]
    params: { unit: { enum: [victim.service] }, lines: { int: { min: 1, max: 200 } } }
  queue.length:
    mode: read
    argv: [/usr/bin/redis-cli, -h, 192.0.2.40, LLEN, "tasks:maintenance:mars"]
    rate: { at_most: 3, per: 1h }
  sudo.try:
    mode: read
    argv: [/usr/local/bin/sudo-try]
  forge:
    mode: read
    argv: [/usr/local/bin/forge]
  service.restart:
    mode: write
    argv: [/usr/bin/sudo, -n, --, /usr/bin/systemctl, restart, "{unit}"]
    params: { unit: { enum: [victim.service] } }
    idempotent: true
  slow.write:
    mode: write
    argv: [/usr/bin/sudo, -n, --, /usr/bin/systemd-run, --quiet, --pipe, --wait, --collect, /usr/local/bin/until-told]
    timeout: 2m
"#;

const AI_CORE: &str = r#"version: 1
node: ai-core
actions:
  queue.length_mars_peer:
    mode: read
    only_here: true
    argv: [/usr/bin/redis-cli, -h, 192.0.2.40, LLEN, "tasks:maintenance:mars"]
"#;

/// Runs `keyholder run … --json` on ai-core: exit code and what was said about the one step.
fn run(lab: &Lab, args: &str) -> (i32, Value) {
    let output = lab.try_sh("ai-core", &format!("keyholder run {args} --json --timeout 20s"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let told = serde_json::from_str(said.trim())
        .unwrap_or(Value::String(format!("{said}{}", String::from_utf8_lossy(&output.stderr))));
    (output.status.code().unwrap_or(-1), told)
}

fn prove(lab: &Lab, at: &str, args: &str) -> (i32, Value) {
    let output = lab.try_sh(at, &format!("keyholder prove {args} --json"));
    let verdict: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or(Value::String(String::from_utf8_lossy(&output.stderr).into_owned()));
    (output.status.code().unwrap_or(-1), verdict["outcome"]["proof"].clone())
}

fn exposure(lab: &Lab, unit: &str) -> f64 {
    let said = lab.sh("mars", &format!("systemd-analyze security --no-pager {unit} | tail -n 1"));
    said.split("level for")
        .nth(1)
        .and_then(|rest| rest.split(": ").nth(1)?.split(' ').next()?.parse().ok())
        .expect(&said)
}

#[test]
fn a_task_takes_the_path_that_the_catalog_names_and_the_journal_proves_it() {
    let lab = Lab::boot("paths", &["mars", "ai-core"]);
    lab.write("mars", "/etc/systemd/system/victim.service", "[Service]\nExecStart=/bin/sleep infinity\n");
    lab.write(
        "mars",
        "/usr/local/bin/sudo-try",
        "#!/bin/sh\nexec sudo -n -- /usr/bin/systemctl restart victim.service\n",
    );
    lab.write(
        "mars",
        "/usr/local/bin/forge",
        "#!/usr/bin/python3\nimport socket, time\ns = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n\
         s.connect('/run/systemd/journal/socket')\nfor id in open('/run/ids').read().split():\n    \
         s.send(f'MESSAGE=executed\\nMESSAGE_ID=5f7b6e0c1d8a4b36a2c9d40e7f1832b5\\nKEYHOLDER_TASK_ID={id}\\nKEYHOLDER_LANE=read\\n\
         KEYHOLDER_STATUS=ok\\n'.encode())\n# Until journald has looked whose it is.\ntime.sleep(0.5)\n",
    );
    lab.write("mars", "/usr/local/bin/until-told", "#!/bin/sh\nuntil [ -e /run/told ]; do sleep 0.1; done\n");
    lab.sh("mars", "chmod 755 /usr/local/bin/*; systemctl daemon-reload; systemctl start victim");
    lab.write("ai-core", "/etc/redis/redis.conf", "bind 192.0.2.40\nprotected-mode no\nmaxmemory-policy noeviction\nappendonly yes\ndir /var/lib/redis\nsupervised systemd\n");
    lab.sh("ai-core", "systemctl restart redis-server");
    lab.install();
    let key = lab.sh("ai-core", "keyholder key generate --task 2>/dev/null");
    let lanes = "write: { lane: write }\nread: { lane: read }";
    let fleet = lab.fleet(&[("mars", "ai-core", lanes), ("ai-core", "mars", "read: { lane: read }")]);
    let top = format!(
        "version: 1\nredis: {{ url: \"redis://192.0.2.40:6379\" }}\ntask_keys: {{ ai-core: \"{}\" }}\nlanes: {{ read_routing: true }}\n",
        key.trim()
    );
    lab.sh("mars", "mkdir -p /root/catalogs");
    lab.sh("ai-core", "mkdir -p /root/catalogs");
    for node in ["mars", "ai-core"] {
        lab.write(node, "/root/catalogs/catalog_mars.yaml", MARS);
        lab.write(node, "/root/catalogs/catalog_ai-core.yaml", AI_CORE);
    }
    lab.deploy_with(&fleet.replace("version: 1\n", &top), "--catalogs /root/catalogs");
    wait("the lanes of mars serve", SOON, || {
        let up = |unit| lab.property("mars", unit, "ActiveState") == "active";
        (up("keyholder-lane-write") && up("keyholder-lane-read")).then_some(())
    });
    assert!(exposure(&lab, "keyholder-lane-read.service") <= 2.0);
    assert!(exposure(&lab, "keyholder-lane-write.service") <= 6.5);

    // A long write runs; a read goes by it, and the journal says which lane ran which.
    let slow = lab.sh("ai-core", "keyholder run mars slow.write --no-wait").trim().to_owned();
    wait("the write runs", SOON, || {
        lab.sh("ai-core", "keyholder queue mars").contains("  running ").then_some(())
    });
    let (code, told) = run(&lab, "mars service.logs unit=victim.service lines=5 --prove");
    let read = told["task"].as_str().unwrap_or_default().to_owned();
    assert_eq!((code, &told["proof"]["verdict"]), (0, &"proved".into()), "{told:#}");
    assert_eq!(
        (&told["lane"], &told["result"]["unit"]),
        (&"read".into(), &"keyholder-lane-read.service".into())
    );
    assert!(lab.sh("ai-core", "keyholder queue mars").contains("  running "), "the write still ran then");
    assert_eq!(prove(&lab, "ai-core", &format!("{read} --node mars --lane write")).1["verdict"], "refuted");
    lab.sh("mars", "touch /run/told");
    wait("the write is done", SOON, || (prove(&lab, "mars", &slow).0 == 0).then_some(()));
    assert_eq!(prove(&lab, "mars", &slow).1["lane"], "write");
    if let Some(to) = std::env::var_os("KEYHOLDER_GOLDEN") {
        std::fs::write(to, golden(&lab, &read)).unwrap();
    }

    // sudo in each lane: works where it must, is refused where it must be.
    let (code, told) = run(&lab, "mars service.restart unit=victim.service --why rehearsal --prove");
    assert_eq!(
        (code, &told["result"]["status"], &told["lane"]),
        (0, &"ok".into(), &"write".into()),
        "{told:#}"
    );
    let (code, told) = run(&lab, "mars sudo.try");
    assert_eq!((code, &told["result"]["status"]), (1, &"failed".into()), "{told:#}");

    // Refusals: before anything is given, by the lane, and for what nobody signed.
    let (code, told) = run(&lab, "mars queue.length_mars_peer");
    assert_eq!(
        (code, &told["refused"][0]["text"]),
        (5, &"unknown_action 'queue.length_mars_peer' on mars".into()),
        "{told:#}"
    );
    for _ in 0..3 {
        assert_eq!(run(&lab, "mars queue.length").0, 0);
    }
    let (code, told) = run(&lab, "mars queue.length");
    assert_eq!(
        (code, &told["result"]["refusal"]["text"]),
        (5, &"rate_limit: queue.length: 3+1 in 3600 s > 3".into()),
        "{told:#}"
    );
    let now = lab.sh("ai-core", "date -u +%Y-%m-%dT%H:%M:%SZ");
    let task = format!(
        r#"{{"id":"w-in-r","action":"service.restart","params":{{"unit":"victim.service"}},"by":"lab","issued_at":"{}"}}"#,
        now.trim()
    );
    // An id that nobody has signed is not used up by a refusal: the answer is under the hash of the bytes.
    let hash = lab.sh("ai-core", &format!("printf %s '{task}' | sha256sum | cut -d ' ' -f 1"));
    let hash = format!("sha256:{}", hash.trim());
    for (queue, id, code) in [
        ("tasks:maintenance:mars:read", "w-in-r", "mode_mismatch"),
        ("tasks:maintenance:mars", hash.as_str(), "unsigned"),
    ] {
        lab.sh("ai-core", &format!("redis-cli -h 192.0.2.40 LPUSH {queue} '{task}'"));
        wait(code, SOON, || {
            let json = lab.sh("ai-core", &format!("redis-cli -h 192.0.2.40 GET '{{{queue}}}:result:{id}'"));
            json.contains(code).then_some(())
        });
    }
    lab.sh("ai-core", "keyholder queue mars drop w-in-r --why 'nobody signed it'");

    // Who only says so is no lane.
    let forged = "019ad020-c580-7000-8000-0123456789ab";
    lab.sh("mars", &format!("printf 'MESSAGE=executed\\nMESSAGE_ID=5f7b6e0c1d8a4b36a2c9d40e7f1832b5\\nKEYHOLDER_TASK_ID={forged}\\nKEYHOLDER_LANE=read\\nKEYHOLDER_STATUS=ok\\n' | logger --journald"));
    let (code, proof) = prove(&lab, "ai-core", &format!("{forged} --node mars"));
    assert_eq!(
        (code, &proof["verdict"], &proof["evidence"][0]["shows"]),
        (1, &"refuted".into(), &"forged".into()),
        "{proof:#}"
    );

    // Nor does a task of the read lane speak for a lane, although its unit is the lane's.
    let never = "019ad020-c580-7000-8000-0123456789ac";
    lab.write("mars", "/run/ids", &format!("{slow}\n{never}\n"));
    assert_eq!(prove(&lab, "mars", &slow).1["verdict"], "proved");
    assert_eq!(run(&lab, "mars forge").1["result"]["status"], "ok");
    for (id, verdict) in [(slow.as_str(), "proved"), (never, "refuted")] {
        let (_, proof) = prove(&lab, "mars", id);
        let forged = proof["evidence"].as_array().is_some_and(|all| {
            all.iter().any(|one| one["shows"] == "forged" && one["unit"] == "keyholder-lane-read.service")
        });
        assert!(proof["verdict"] == verdict && forged, "{proof:#}");
    }

    // journald away while a task could have run: whatever else the journal says, it proves nothing.
    lab.sh("mars", "systemctl restart systemd-journald");
    let (code, told) = run(&lab, "mars service.logs unit=victim.service lines=5 --prove");
    assert_eq!((code, &told["proof"]["verdict"]), (3, &"inconclusive".into()), "{told:#}");

    // A dead lane: the tasks wait, doctor says so, and so does the other node by its own action.
    lab.sh("ai-core", "keyholder hold mars/write --for 10m --why 'the scenario'");
    lab.sh("mars", "systemctl stop keyholder-lane-write");
    lab.sh("ai-core", "keyholder run mars service.restart unit=victim.service --no-wait");
    let (_, told) = run(&lab, "ai-core queue.length_mars_peer");
    assert_eq!(told["result"]["ran"]["stdout"]["head"]["text"], "1\n", "{told:#}");
    wait("doctor notices", SOON, || {
        let said = lab.try_sh("ai-core", "keyholder doctor");
        String::from_utf8_lossy(&said.stdout)
            .contains("1 task waits for the write lane of mars, and nobody serves it")
            .then_some(())
    });
    lab.sh("ai-core", "keyholder release mars/write");

    // What could not be done: thrown away with a reason, which the audit has.
    wait("the lane is back", SOON, || {
        (lab.property("mars", "keyholder-lane-write", "ActiveState") == "active").then_some(())
    });
    let again = task.replace("service.restart", "service.logs").replacen("\"}", "\",\"lines\":1}", 1);
    lab.sh("ai-core", &format!("redis-cli -h 192.0.2.40 LPUSH tasks:maintenance:mars:read '{again}'"));
    wait("the second task of one id is dead-lettered", SOON, || {
        lab.sh("ai-core", "keyholder queue mars").contains("dead      w-in-r").then_some(())
    });
    // Nobody signed it: it gets no signature here.
    let (code, said) = lab.tell("ai-core", "keyholder queue mars requeue w-in-r --why 'an id of its own'");
    assert!(code == 5 && said.contains("nobody signed it"), "{code}: {said}");
    assert!(said.contains("keyholder run mars service.logs lines=1 unit="), "{said}");
    lab.sh("ai-core", "keyholder queue mars drop w-in-r --why 'nobody signed that either'");
    requeue(&lab);
    lab.sh("ai-core", "redis-cli -h 192.0.2.40 LPUSH tasks:maintenance:mars '{'");
    let dead = wait("it is dead-lettered", SOON, || {
        let seen = lab.sh("ai-core", "keyholder queue mars --json");
        let lane: Value = serde_json::from_str(seen.lines().next()?).ok()?;
        lane["dead"][0]["sha256"].as_str().map(str::to_owned)
    });
    let short: String = dead.chars().take(12).collect();
    assert!(
        !lab.try_sh("ai-core", &format!("keyholder queue mars requeue {short} --why x")).status.success()
    );
    lab.sh("ai-core", &format!("keyholder queue mars drop {short} --why 'a test of mine'"));
    assert_eq!(lab.sh("ai-core", "keyholder queue mars").matches("0 dead-lettered").count(), 2);
    let audit = lab.sh("ai-core", "keyholder audit");
    assert!(
        audit.contains(&format!("drop of the dead-lettered task {dead}")) && audit.contains("a test of mine"),
        "{audit}"
    );
}

/// A lane that does not know the key yet refuses; once it does, the same bytes run, under their own id.
fn requeue(lab: &Lab) {
    let restart = |said: &mut String| {
        let (code, told) = lab.tell("ai-core", "keyholder run mars service.restart unit=victim.service");
        *said = told;
        code
    };
    let name = |from: &str, to: &str, wanted: i32| {
        lab.sh("mars", &format!("sed -i '/^task_keys/s/{from}:/{to}:/' /etc/keyholder/fleet.yaml"));
        lab.sh("mars", "systemctl reload keyholder-lane-write");
        let mut said = String::new();
        wait("the lane has read its keys again", SOON, || (restart(&mut said) == wanted).then_some(()));
        said
    };
    let said = name("ai-core", "somebody", 5);
    assert!(said.contains("unsigned: no key \"ai-core\" is known here"), "{said}");
    let seen = lab.sh("ai-core", "keyholder queue mars --json");
    let lane: Value = serde_json::from_str(seen.lines().next().unwrap_or_default()).unwrap();
    let dead = &lane["dead"][0];
    assert_eq!(dead["asks"], "service.restart unit=victim.service", "{lane:#}");
    let id = dead["id"].as_str().unwrap_or_default().to_owned();
    name("somebody", "ai-core", 0);
    let said =
        lab.sh("ai-core", &format!("keyholder queue mars requeue {id} --why 'mars knows the key now'"));
    assert_eq!(said.trim(), format!("requeued task {id}, unchanged"));
    wait("it has run under its own id", SOON, || {
        let key = format!("{{tasks:maintenance:mars}}:result:{id}");
        let json = lab.sh("ai-core", &format!("redis-cli -h 192.0.2.40 GET '{key}'"));
        json.contains(r#""status":"ok""#).then_some(())
    });
}

/// What the node's journal has for a proof, as the golden test reads it.
fn golden(lab: &Lab, task: &str) -> String {
    let out = |fields: &str| {
        lab.sh("mars", &format!("journalctl --no-pager -q --all -o json --output-fields=MESSAGE,MESSAGE_ID,KEYHOLDER_TASK_ID,KEYHOLDER_LANE,KEYHOLDER_STATUS,UNIT,INVOCATION_ID,_SYSTEMD_UNIT,_SYSTEMD_INVOCATION_ID,_PID,_BOOT_ID,_TRANSPORT {fields}"))
    };
    let claims = out(&format!("KEYHOLDER_TASK_ID={task}"));
    let units =
        |field: &str| format!("{field}=keyholder-lane-write.service {field}=keyholder-lane-read.service");
    let around = out(&format!(
        "MESSAGE_ID=c1a94d7e2f0b4c5d8e6f3a7b90d21c48 {} + _PID=1 {} + _TRANSPORT=driver",
        units("_SYSTEMD_UNIT"),
        units("UNIT")
    ));
    let first = out("| head -n 1");
    format!("{}\n\n{}\n\n{}\n", claims.trim(), around.trim(), first.trim())
}
