# shellcheck shell=bash
# One node: its files, its runner (a process that lives as long as the node exists, holds the mounts and starts nspawn),
# and the ways to start, stop and enter it.

# $DIR/NODE/state is booting, on (nspawn has a PID 1; systemd need not be done) or off.

# --- files -------------------------------------------------------------------------------------------------------------

node_make() { # NODE: files and network, no process yet
    local node=$1 d=$DIR/$1 layer=$DIR/$1/layer number
    [ ! -f "$d/number" ] || return 0
    number=$(net_number "$node")
    mkdir -p "$d/root"
    case $(stat -f -c %T "$DIR") in
        overlayfs) # cannot be the upper layer of an overlay
            layer=/dev/shm/$PREFIX/$node
            mkdir -p "$layer"
            ln -sfn "$layer" "$d/layer"
            ;;
    esac
    mkdir -p "$layer/upper/etc/keyholder" "$layer/work"
    chmod 755 "$layer/upper" "$layer/upper/etc" "$layer/upper/etc/keyholder"
    tr -d - </proc/sys/kernel/random/uuid >"$layer/upper/etc/machine-id"
    printf '%s\n' "$node" | tee "$layer/upper/etc/hostname" >"$layer/upper/etc/keyholder/node"
    mkfifo -m 600 "$d/ctl"
    base_path >"$d/base"
    echo off >"$d/state"
    echo "$number" >"$d/number" # last: from here on the node exists
}

# A path on the host at which the node's root can be read and written, whether it is up or not.
node_root() {
    local pid
    if pid=$(leader "$1"); then
        printf '/proc/%s/root\n' "$pid"
    elif pid=$(recorded "$1" runner); then
        printf '/proc/%s/root%s/%s/root\n' "$pid" "$DIR" "$1"
    else
        die "node '$1' has lost its runner ('lab boot $1' starts a new one)"
    fi
}

node_hosts() { # write /etc/hosts into all nodes
    local n
    for n in $(nodes); do net_hosts >"$(node_root "$n")/etc/hosts"; done
}

# --- runner ------------------------------------------------------------------------------------------------------------

runner_start() { # NODE
    local wrap=()
    recorded "$1" runner >/dev/null && return 0
    rm -f "$DIR/$1/runner" "$DIR/$1/leader"
    if [ -d /run/systemd/system ]; then
        wrap=(systemd-run --scope --quiet --collect "--unit=$PREFIX-$1" -p Delegate=yes)
    fi
    setsid "${wrap[@]}" unshare --mount --propagation private \
        "$LAB" --dir "$DIR" __runner "$1" </dev/null >>"$DIR/$1/console.log" 2>&1 7>&- 8>&- 9>&- &
    until_ok 10 runner_ready "$1" || {
        tail -n 5 "$DIR/$1/console.log" >&2
        die "the runner of node '$1' does not start"
    }
}
runner_ready() { recorded "$1" runner >/dev/null; }

# The process itself. It owns the state: on each "boot" it starts nspawn, and again after a reboot from inside (133).
runner_main() {
    local node=$1 d=$DIR/$1 fd cg request code boots=0
    for fd in "/proc/$BASHPID/fd"/*; do # what the caller had open would stay open as long as the node lives
        fd=${fd##*/}
        if [ "$fd" -gt 2 ] && [ "$fd" -lt 255 ]; then exec {fd}>&-; fi
    done
    cg=$(cg_enter "$node")
    mount -t overlay overlay -o "lowerdir=$(cat "$d/base"),upperdir=$d/layer/upper,workdir=$d/layer/work" "$d/root"
    mkdir -p /run/systemd/nspawn
    mount -t tmpfs tmpfs /run/systemd/nspawn # its locks and sockets stay in this mount namespace
    exec 6<>"$d/ctl"
    echo "$BASHPID" >"$d/runner.new" && mv "$d/runner.new" "$d/runner"
    while read -r request <&6; do
        [ "$request" = boot ] || continue
        code=133
        while [ "$code" -eq 133 ]; do
            boots=$((boots + 1))
            echo "--- $node: boot $boots, $(date -u +%FT%T.%3NZ)"
            echo booting >"$d/state"
            net_on "$node"
            code=0
            nspawn "$node" "$cg/node" || code=$?
            rm -f "$d/leader"
            net_off "$node"
            cg_clear "$cg/node"
            echo "--- $node: nspawn ended with $code, $(date -u +%FT%T.%3NZ)"
        done
        echo off >"$d/state"
    done
}

nspawn() { # NODE CGROUP
    local pid kid d=$DIR/$1
    (
        echo "$BASHPID" >"$2/cgroup.procs"
        # bpf: IPAddressAllow= and device policies; @keyring: KeyringMode=; CAP_NET_ADMIN: the node's own network.
        # Already inside the namespace, because nspawn mounts /sys before it enters it: /sys/class/net would be the host's.
        exec nsenter --net="$d/netns" env -i PATH="$NODE_PATH" LANG=C.UTF-8 systemd-nspawn --quiet --settings=no --directory="$d/root" \
            --machine="kh-$LAB_ID-$1" --hostname="$1" --register=no --keep-unit --private-users=no \
            --network-namespace-path="$d/netns" --link-journal=no --resolv-conf=off --timezone=off \
            --capability=CAP_NET_ADMIN,CAP_BPF,CAP_PERFMON --system-call-filter='bpf @keyring' \
            --console=read-only --boot
    ) 6>&- &
    pid=$!
    while kill -0 "$pid" 2>/dev/null; do
        if kid=$(nspawn_leader "$pid"); then
            echo "$kid" >"$d/leader.new" && mv "$d/leader.new" "$d/leader"
            echo on >"$d/state"
            break
        fi
        sleep 0.01
    done
    wait "$pid"
}

nspawn_leader() { # PID of nspawn -> its child that is PID 1 inside and has become systemd
    local kid
    for kid in $(pgrep -P "$1"); do
        if [[ $(cat "/proc/$kid/comm" 2>/dev/null) =~ ^(systemd|init)$ ]] &&
            grep -qs $'^NSpid:.*\t1$' "/proc/$kid/status"; then
            echo "$kid"
            return 0
        fi
    done
    return 1
}

# Off, or nobody is there any more (a runner that was killed can no longer say so).
node_off() {
    [ "$(cat "$DIR/$1/state" 2>/dev/null)" = off ] ||
        { ! recorded "$1" runner && ! leader "$1"; } >/dev/null
}

# --- entering ----------------------------------------------------------------------------------------------------------

# Replaces this process by a command in the node, as root, with the node's environment and not the host's.
enter() { # NODE LEADER CMD...
    local root cg
    # A cgroup in the node's tree, but of no unit's. Without it (no cgroup2 on the host) all but the accounting still works.
    if root=$(cg_root) && read -r cg <"$DIR/$1/cgroup"; then
        cg=$root$cg/node/payload/lab.exec
        { mkdir -p "$cg" && echo "$BASHPID" >"$cg/cgroup.procs"; } || :
    fi
    # Not nsenter's own fork: that parent stops itself when its child is stopped, which systemd-shutdown does to all, and then
    # the child is never reaped and the node never ends. sh just waits. pdeathsig: who kills `lab exec` kills the command.
    # shellcheck disable=SC2016
    exec nsenter --no-fork -t "$2" -m -u -i -n -p -C -r -w -- /bin/sh -c '"$@"; exit "$?"' sh \
        /usr/bin/env -i PATH="$NODE_PATH" HOME=/root USER=root LOGNAME=root SHELL=/bin/bash LANG=C.UTF-8 \
        TERM="${TERM:-dumb}" /usr/bin/setpriv --pdeathsig KILL "${@:3}"
}

# --- power -------------------------------------------------------------------------------------------------------------

node_request_boot() {
    runner_start "$1"
    echo booting >"$DIR/$1/state"
    echo boot >"$DIR/$1/ctl"
}

# Waits until systemd in the node says that it is done, and says how long that took since $2 (EPOCHREALTIME).
node_wait() { # NODE SINCE
    local pid state=none end=$((SECONDS + BOOT_DEADLINE)) left
    while left=$((end - SECONDS)) && [ "$left" -gt 0 ]; do
        if node_off "$1"; then
            break
        elif pid=$(leader "$1") && [ -S "/proc/$pid/root/run/systemd/private" ]; then
            state=$( (enter "$1" "$pid" timeout "$left" systemctl is-system-running --wait) 2>/dev/null </dev/null) || :
            case $state in
                running | degraded) break ;;
            esac
        fi
        sleep 0.03
    done
    case $state in
        running) ;;
        degraded)
            say "$1 is degraded:"
            (enter "$1" "$pid" systemctl --failed --no-legend --plain) >&2 </dev/null || :
            ;;
        *)
            tail -n 20 "$DIR/$1/console.log" >&2
            # All nodes share root's limit with this host, and each takes about seven.
            ! grep -q 'inotify.*Too many open files' "$DIR/$1/console.log" ||
                say "this host is out of inotify instances: end other nodes, or: sysctl fs.inotify.max_user_instances=512"
            die "node '$1' did not come up in $BOOT_DEADLINE s (last state: ${state:-none}); all of it: $DIR/$1/console.log"
            ;;
    esac
    say "$1 ($(node_address "$1")) $state after $(since "$2") s"
}
node_address() { echo "192.0.2.$(cat "$DIR/$1/number")"; }
since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.2f", b - a }'; }

node_boot() {
    local start=$EPOCHREALTIME
    lock_node "$1"
    node_off "$1" || die "node '$1' is up, or on its way"
    node_request_boot "$1"
    unlock_node
    node_wait "$1" "$start"
}

# As if somebody had pulled the plug: PID 1 dies, the kernel kills all others in its pid namespace. The port goes first,
# because the kernel closes the dead processes' connections and a host without power sends no FIN.
node_cut() {
    local pid cg
    pid=$(need_leader "$1")
    cg=$(cg_root)$(cat "$DIR/$1/cgroup")/node
    net_port "$1" down
    kill -KILL "$pid"
    cg_kill "$cg/payload" # the host's ends of `lab exec`; all others are dead
    until_ok 10 node_off "$1" || die "node '$1' does not die: $(cg_procs "$cg" | tr '\n' ' ')"
}

# systemctl may lose its connection and fail although PID 1 has heard it: what counts is that the node goes.
node_ask() { # NODE LEADER VERB CMD...: ask systemd, and wait until CMD says that the node has gone
    local patience=$((BOOT_DEADLINE + 60)) said
    said=$( (enter "$1" "$2" systemctl --no-wall --no-block "$3") </dev/null 2>&1) || patience=5
    until_ok "$patience" "${@:4}" ||
        die "node '$1' does not $3 in $patience s${said:+: $said} ('lab cut $1' does not ask)"
}
node_poweroff() {
    local pid
    pid=$(need_leader "$1")
    node_ask "$1" "$pid" poweroff node_off "$1"
}
node_reboot() {
    local pid start=$EPOCHREALTIME
    pid=$(need_leader "$1")
    node_ask "$1" "$pid" reboot node_changed "$1" "$pid"
    node_wait "$1" "$start"
}
node_changed() {
    local now
    now=$(leader "$1") && [ "$now" != "$2" ]
}
