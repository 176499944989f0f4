# shellcheck shell=bash
# Each node lives in a cgroup of its own, in the version 2 hierarchy. That is where its processes are found and killed, and
# what FreezeUnit needs. The host's own cgroup mounts are never changed: a node's runner mounts cgroup2 in its private
# mount namespace, and with systemd as the host's PID 1 it asks systemd for a delegated scope.

# Where the host has cgroup2: /sys/fs/cgroup, .../unified (hybrid), or nowhere (then in the lab's own directory).
cg_root() {
    local where kind
    while read -r _ where kind _; do
        if [ "$kind" = cgroup2 ]; then
            printf '%s\n' "$where"
            return
        fi
    done </proc/self/mounts
    [ -d "$DIR" ] || return 1
    mkdir -p "$DIR/.cgroup2"
    mount -t cgroup2 cgroup2 "$DIR/.cgroup2" && printf '%s\n' "$DIR/.cgroup2"
}

# In the runner, in its private mount namespace: own cgroup, as $CG/{runner,node}. Prints $CG.
cg_enter() { # NODE
    local own level controllers
    [ "$(stat -f -c %T /sys/fs/cgroup)" = cgroup2fs ] || mount -t cgroup2 cgroup2 /sys/fs/cgroup
    own=$(sed -n 's/^0:://p' "/proc/$$/cgroup")
    [[ $own == *"/$PREFIX"* ]] || own=/$PREFIX/$1 # no scope was made for us
    own=${own%/runner}
    mkdir -p "/sys/fs/cgroup$own/runner" "/sys/fs/cgroup$own/node"
    echo "$$" >"/sys/fs/cgroup$own/runner/cgroup.procs"
    # Hand down what controllers there are. Where they are all on version 1 there are none: TasksMax, MemoryMax do nothing.
    level=
    while read -r part; do
        controllers=$(sed 's/[^ ]*/+&/g' "/sys/fs/cgroup$level/cgroup.controllers")
        echo "$controllers" >"/sys/fs/cgroup$level/cgroup.subtree_control" 2>/dev/null || :
        [ "$level" = "$own" ] && break
        level=$level/$part
    done < <(tr / '\n' <<<"${own#/}/")
    printf '%s\n' "$own" >"$DIR/$1/cgroup"
    printf '%s\n' "/sys/fs/cgroup$own"
}

cg_clear() { # DIR: remove the empty cgroups below it
    [ ! -d "$1" ] || find "$1" -mindepth 1 -depth -type d -exec rmdir {} + 2>/dev/null || :
}

cg_of_lab() { # all cgroups of this lab, whoever made them
    local root
    root=$(cg_root) || return 0
    find "$root" -maxdepth 4 -type d \( -name "$PREFIX" -o -name "$PREFIX-*.scope" \) 2>/dev/null
}
cg_procs() { find "$1" -name cgroup.procs -exec cat {} + 2>/dev/null || :; }

cg_empty() { grep -qs '^populated 0' "$1/cgroup.events" || [ ! -d "$1" ]; }

cg_kill() { # CGROUP: SIGKILL all in it, wait, remove it
    local pid
    [ -d "$1" ] || return 0
    if [ -e "$1/cgroup.kill" ]; then
        echo 1 >"$1/cgroup.kill"
    else # before Linux 5.14
        [ ! -e "$1/cgroup.freeze" ] || echo 1 >"$1/cgroup.freeze"
        for pid in $(cg_procs "$1"); do [ "$pid" -eq 0 ] || kill -KILL "$pid" 2>/dev/null || :; done
        [ ! -e "$1/cgroup.freeze" ] || echo 0 >"$1/cgroup.freeze"
    fi
    until_ok 10 cg_empty "$1" || say "processes in $1 do not die: $(cg_procs "$1" | tr '\n' ' ')"
    cg_clear "$1"
    rmdir "$1" 2>/dev/null || :
}
