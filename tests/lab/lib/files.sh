# shellcheck shell=bash
# Files in and out of a node, up or not.

# Runs a command on the node's root: in the node if it is up, else in a chroot, so that links mean what they mean there.
at_root() { # NODE CMD...
    local pid
    if pid=$(leader "$1"); then
        (enter "$1" "$pid" "${@:2}")
    else
        pid=$(recorded "$1" runner) || die "node '$1' has lost its runner ('lab boot $1' starts a new one)"
        nsenter -t "$pid" -m -- chroot "$DIR/$1/root" /usr/bin/env -i PATH="$NODE_PATH" "${@:2}"
    fi
}

files_cp() {
    [ "${1-}" != -r ] || shift
    [ $# -eq 2 ] || die "cp: lab cp SRC NODE:DST, or lab cp NODE:SRC DST"
    if [[ $2 =~ ^[a-z][a-z0-9-]*:. ]]; then
        need_node "${2%%:*}"
        files_in "${2%%:*}" "$1" "${2#*:}"
    elif [[ $1 =~ ^[a-z][a-z0-9-]*:. ]]; then
        need_node "${1%%:*}"
        files_out "${1%%:*}" "${1#*:}" "$2"
    else
        die "cp: neither '$1' nor '$2' is NODE:PATH"
    fi
}

# The scripts below run in the node; a destination that is a directory takes the source's name, as cp does.
# A file is replaced by rename: a running binary can be replaced, and nobody sees half of one.
files_in() { # NODE SRC DST
    local name mode
    name=$(basename -- "$2")
    if [ -d "$2" ]; then
        # shellcheck disable=SC2016
        tar -C "$2" -c . | at_root "$1" sh -c 'd=$1; [ ! -d "$d" ] || d=$d/$2; mkdir -p "$d" &&
            tar -x --no-same-owner -C "$d"' cp "$3" "$name"
    else
        [ -r "$2" ] || die "cp: cannot read '$2'"
        mode=$(stat -L -c %a -- "$2")
        # shellcheck disable=SC2016
        at_root "$1" sh -c 'd=$1; [ ! -d "$d" ] || d=$d/$2; cat >"$d.lab-new" && chmod "$3" "$d.lab-new" &&
            mv -T "$d.lab-new" "$d"' cp "$3" "$name" "$mode" <"$2"
    fi
}
files_out() { # NODE SRC DST
    local dst=$3
    [ ! -d "$dst" ] || dst=$dst/$(basename -- "$2")
    if at_root "$1" test -d "$2"; then
        mkdir -p "$dst"
        at_root "$1" tar -C "$2" -c . | tar -x --no-same-owner -C "$dst"
    else
        at_root "$1" test -r "$2" || die "cp: node '$1' has no '$2'"
        at_root "$1" cat "$2" >"$dst"
    fi
}

# Read from the upper layer, which is there in every state, also when the runner is lost.
node_journal() { # NODE DIR
    local pid to=${2-} from=$DIR/$1/layer/upper/var/log/journal
    [ -n "$to" ] || die "journal: into which directory?"
    mkdir -p "$to"
    rm -rf "$to/journal"
    if pid=$(leader "$1"); then # bounded: a scenario may have stopped journald
        (enter "$1" "$pid" timeout 5 journalctl --sync) </dev/null >/dev/null 2>&1 || say "$1: journald does not sync"
        [ ! -d "/proc/$pid/root/run/log/journal" ] || cp -a "/proc/$pid/root/run/log/journal" "$to/journal"
    fi
    mkdir -p "$to/journal"
    [ ! -d "$from" ] || cp -a "$from/." "$to/journal/"
    cp "$DIR/$1/console.log" "$to/console.log"
    journalctl --directory="$to/journal" -o short-precise --no-pager >"$to/journal.txt" ||
        die "no readable journal of $1 in $to/journal"
}
