# shellcheck shell=bash disable=SC2034
# Words, paths and small helpers that every part of the lab uses.

CACHE=${KEYHOLDER_LAB_CACHE:-/var/cache/keyholder-lab}
[[ $CACHE == /* ]] || CACHE=$PWD/$CACHE
DIR=${KEYHOLDER_LAB_DIR:-/run/keyholder-lab}
BOOT_DEADLINE=${KEYHOLDER_LAB_BOOT_DEADLINE:-30} # seconds until "running" or "degraded"
NODE_PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

say() { printf 'lab: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit "${LAB_EXIT:-1}"
}

need_root() { [ "$EUID" -eq 0 ] || die "root is needed: namespaces, mounts and cgroups are made here"; }

short_hash() { # 32-bit FNV-1a; no child process, because every `lab exec` comes by here
    local i c hash=2166136261
    for ((i = 0; i < ${#1}; i++)); do
        printf -v c %d "'${1:i:1}"
        hash=$((((hash ^ (c & 255)) * 16777619) & 0xffffffff))
    done
    printf %08x "$hash"
}

# Sets DIR (absolute) and everything that is named after it.
use_dir() {
    DIR=$(realpath -m -- "$1")
    case $DIR in
        *[,:\\\"\'[:space:]]*) die "'$DIR': a lab directory may not contain , : \\ quotes or blanks (overlayfs options)" ;;
        / | /run | /tmp | /var | /var/tmp | /dev | /dev/shm | /home | /root)
            die "'$DIR' is no directory for a lab: 'lab down' removes it" ;;
    esac
    LAB_ID=$(short_hash "$DIR")
    PREFIX=keyholder-lab-$LAB_ID # cgroups, scopes
    NETNS=kh-$LAB_ID             # network namespace of the bridge
}

# The lock cannot live in DIR, which `lab down` removes. It is unlinked by `down`, so a
# process that got the lock checks that what it locked is still what the name means.
lock_lab() {
    local file=/run/lock/$PREFIX.lock
    mkdir -p /run/lock
    while :; do
        exec 9>"$file"
        flock -w 120 9 || die "another lab command has held $file for two minutes"
        [ "$(stat -c %i "$file" 2>/dev/null)" = "$(stat -L -c %i /proc/self/fd/9)" ] && return
    done
}
unlock_lab() { exec 9>&-; }

lock_node() {
    exec 8>"$DIR/$1/lock"
    flock -w 120 8 || die "another lab command has held node $1 for two minutes"
}
unlock_node() { exec 8>&-; }

valid_name() {
    [[ $1 =~ ^[a-z][a-z0-9-]{0,30}$ ]] || die "'$1' is not a node name (small letters, digits, '-', at most 31)"
}
need_node() {
    [ -n "${1-}" ] || die "which node? ('lab list' shows them)"
    valid_name "$1"
    [ -f "$DIR/$1/number" ] || die "there is no node '$1' in $DIR ('lab up $1' makes it, 'lab list' shows what there is)"
}
nodes() {
    local n
    for n in "$DIR"/*/number; do [ -f "$n" ] && basename "$(dirname "$n")"; done
    return 0
}

# Is that pid alive, and is it ours? A recorded pid may have been given to somebody else.
ours() {
    [ -n "${1-}" ] && [ -r "/proc/$1/cgroup" ] && [[ $(<"/proc/$1/cgroup") == *"/$PREFIX"* ]]
}
recorded() { # NODE FILE -> pid, if it is alive and ours
    local pid
    { read -r pid <"$DIR/$1/$2"; } 2>/dev/null || return 1
    ours "$pid" && printf '%s\n' "$pid"
}
leader() { recorded "$1" leader; }
need_leader() {
    leader "$1" || die "node '$1' is not up ('lab boot $1' boots it, $DIR/$1/console.log may say why)"
}

# Waits until a command succeeds. Polling a state beats both an edge that may be missed and a sleep.
until_ok() { # SECONDS CMD...
    local end=$((SECONDS + $1 + 1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.02
    done
}
