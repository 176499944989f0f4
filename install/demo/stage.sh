# shellcheck shell=bash
# The stage: what this machine needs, a binary, two nodes with keyholder on them as an operator would install it.

GRACE=100ms # how long ai-core leaves a worker with `repair_by: peer` to its node

# What the lab needs, and the few things more. The lab's words are its own, so: a shell of its own.
demo_deps() (
    # shellcheck source=../../tests/lab/lib/common.sh
    . "$HERE/tests/lab/lib/common.sh"
    # shellcheck source=../../tests/lab/lib/deps.sh
    . "$HERE/tests/lab/lib/deps.sh"
    DEPS+=(jq:jq "$@")
    lab_deps
)

# Sets $binary: the one that was given, one that is newer than its sources, or a new one.
demo_binary() {
    local built=${CARGO_TARGET_DIR:-$HERE/target}/release/keyholder start=$SECONDS
    if [ -n "$binary" ]; then
        say "using $binary"
    elif [ -x "$built" ] && [ -z "$(find "$HERE"/src "$HERE"/Cargo.* -newer "$built" -print -quit)" ]; then
        binary=$built
        say "using $built, which is newer than its sources"
    else
        demo_deps cc:gcc cc:libc6-dev
        build
        say "built in $((SECONDS - start)) s"
    fi
    "$binary" --version >/dev/null || die "$binary does not run on this machine"
}

set_up() {
    demo_deps
    demo_binary
    say "booting two nodes; each is a Debian with a systemd of its own (the first time, that Debian is fetched)"
    lab up "${NODES[@]}" 2>&1 | sed 's/^/   /'
    measure_clocks
    workers
    queues
    install_all
    start_watch
    told_stage
}

# The workers of mars do next to nothing; what matters is that each is a unit of systemd.
workers() {
    on mars sh -eu -c '
        unit() { printf "%s\n" "[Unit]" "$2" "[Service]" "ExecStart=/bin/sleep infinity" "$3" \
            "[Install]" "WantedBy=multi-user.target" >"/etc/systemd/system/$1.service"; }
        unit web "" ""
        unit agent "" ""
        unit crawler "StartLimitBurst=3
StartLimitIntervalSec=1h" "Restart=always
RestartSec=0"
        systemctl daemon-reload
        systemctl enable -q --now web agent crawler'
    demo_looper
}

# The lanes' queues are on ai-core. Keeping workers alive needs none of it.
queues() {
    on ai-core sh -eu -c "
        printf '%s\\n' 'bind 0.0.0.0' 'protected-mode no' 'save \"\"' >>/etc/redis/redis.conf
        systemctl start redis-server"
}

fleet_file() { # PIN-OF-MARS PIN-OF-AI-CORE TASK-KEY
    cat <<YAML
version: 1
redis: { url: "redis://ai-core:6379" }
task_keys: { ai-core: "$3" }
lanes: { read_routing: true }
nodes:
  mars:
    address: 192.0.2.10:7433
    pins: ["$1"]
    watched_by: [ai-core]
    workers:
      web:     { unit: web.service }
      agent:   { unit: agent.service, repair_by: peer, grace: $GRACE }
      crawler: { unit: crawler.service, repair_by: peer, grace: $GRACE }
      looper:
        unit: looper.service
        stuck: { heartbeat: { file: /run/looper/beat, older_than: 1s }, nudge: { signal: SIGUSR1 } }
      write:   { lane: write, repair_by: peer, grace: $GRACE }
      read:    { lane: read }
  ai-core:
    address: 192.0.2.40:7433
    pins: ["$2"]
    watched_by: [mars]
    workers:
      write:   { lane: write }
      read:    { lane: read }
grants:
  - { from: ai-core, on: mars, workers: ["*"], verbs: [status, relaunch, nudge, repipe, drill, prove] }
  - { from: mars, on: ai-core, workers: ["*"], verbs: [status, relaunch, nudge, repipe, drill, prove] }
YAML
}

install_node() { # NODE ARG...
    on "$1" /root/src/install.sh --binary /root/keyholder "${@:2}" >>"$OUT/install.log" 2>&1 || {
        tail -n 20 "$OUT/install.log" >&2
        die "install.sh failed on $1"
    }
}
install_all() {
    local node part pins=()
    for node in "${NODES[@]}"; do
        on "$node" mkdir -p /root/src
        for part in install.sh install units; do lab cp "$HERE/$part" "$node:/root/src/"; done
        lab cp "$binary" "$node:/root/keyholder"
        lab cp "$(dirname -- "$binary")/keyholder-supervisor" "$node:/root/"
        install_node "$node" --node "$node"
        pins+=("$(on "$node" keyholder key show)")
    done
    fleet_file "${pins[@]}" "$(on ai-core keyholder key generate --task 2>>"$OUT/install.log")" >"$OUT/fleet.yaml"
    demo_catalogs "$OUT/catalogs"
    for node in "${NODES[@]}"; do
        lab cp "$OUT/fleet.yaml" "$node:/root/fleet.yaml"
        lab cp "$OUT/catalogs" "$node:/root/"
        install_node "$node" --fleet /root/fleet.yaml --catalogs /root/catalogs
        say "installed on $node: $(on "$node" keyholder --version), key ${pins[0]:0:20}..."
        pins=("${pins[@]:1}")
    done
    for node in "${NODES[@]}"; do until_true "on $node, all is well" all_well "$node"; done
}
all_well() { on "$1" keyholder status >/dev/null 2>&1; }

told_stage() {
    flow <<'STAGE'

Two hosts: mars works, ai-core is its neighbour and watches it. On both runs keyholder, a small supervisor beside
systemd. Each has a door (a TCP port; TLS, and nothing counts but the other's key), through which the neighbour sees
what happens and may order a relaunch. This is what fleet.yaml says of the workers on mars:

STAGE
    sed -n '/^  mars:/,/^  ai-core:/{/^    workers:/,/^  [a-z]/p}' "$OUT/fleet.yaml" | grep '^    '
    flow <<STAGE

web is repaired by mars itself, which is the default; agent and crawler are left to the neighbour, after $GRACE of grace.
looper shows that its loop moves by touching a file; the others have only systemd's word that they are alive.
write and read are keyholder's own; they come last.
What ai-core sees comes from 'keyholder status mars --watch' there, as it arrives. The times are systemd's own.
STAGE
}
