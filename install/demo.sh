#!/usr/bin/env bash
# `install.sh --demo`: two real nodes on this machine, and what keyholder does for them, told live.
# Every time, state, name and number that is printed was asked of the nodes; what does not happen ends the demo.
set -eEuo pipefail

HERE=$(dirname -- "$(dirname -- "$(realpath -- "${BASH_SOURCE[0]}")")")
LAB=$HERE/tests/lab/lab
DIR=/run/keyholder-demo.$$
DEADLINE=20 # seconds for anything the story waits for; all of it usually takes less than one

# shellcheck source=common.sh
. "$HERE/install/common.sh"
# shellcheck source=build.sh
. "$HERE/install/build.sh"
# shellcheck source=demo/tell.sh
. "$HERE/install/demo/tell.sh"
# shellcheck source=demo/ask.sh
. "$HERE/install/demo/ask.sh"
# shellcheck source=demo/stage.sh
. "$HERE/install/demo/stage.sh"
# shellcheck source=demo/scenes.sh
. "$HERE/install/demo/scenes.sh"
# shellcheck source=demo/stuck.sh
. "$HERE/install/demo/stuck.sh"
# shellcheck source=demo/lanes.sh
. "$HERE/install/demo/lanes.sh"

say() { printf 'demo: %s\n' "$*"; }
die() {
    printf 'demo: %s\n' "$*" >&2
    exit 1
}

# Something did not happen: what was seen instead, and where to read on.
fail() {
    trap - ERR
    {
        printf '\n%s %s\n' "$(paint bad 'demo: it did not happen:')" "$*"
        printf '\nThe last that ai-core saw:\n'
        printf '    %s\n' "${saw[@]: -8}"
        printf '\nkeyholder status, on ai-core:\n'
        on ai-core keyholder status 2>&1 | sed 's/^/    /' || :
    } >&2
    exit 1
}

# Whatever the reason: nothing of the demo stays behind, except what was asked for and what explains a failure.
finish() {
    local code=$? node kept
    trap - EXIT ERR
    trap '' INT TERM HUP PIPE
    case $code in 0 | 129 | 130 | 141 | 143) ;; *) code=1 ;; esac
    [ -z "${watch_pid-}" ] || kill "$watch_pid" 2>/dev/null || :
    if [ "$code" -eq 1 ] && [ -n "$(lab list)" ]; then
        kept=$(mktemp -d /var/tmp/keyholder-demo.XXXXXX)
        for node in "${NODES[@]}"; do lab journal "$node" "$kept/$node" >/dev/null 2>&1 || :; done
        cp "$OUT/install.log" "$kept" 2>/dev/null || :
        printf "\ndemo: failed; the nodes' journals are in %s\n" "$kept" >&2
    fi
    if [ "$keep" = yes ] && [ "$code" -le 1 ] && [ -n "$(lab list)" ]; then
        told_kept || :
    else
        lab down
        case $code in
            0) say "the two nodes are gone again, and nothing of them is left" ;;
            130) say "interrupted; the nodes are gone, and nothing of them is left" ;;
        esac
    fi
    rm -rf -- "$OUT"
    exit "$code"
}

keep=${1:?install.sh --demo calls this} binary=${2-}
[ "$EUID" -eq 0 ] || die "root is needed, because real nodes are booted: sudo ./install.sh --demo"
OUT=$(mktemp -d)
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP
trap 'exec >/dev/null; exit 141' PIPE
trap 'printf "demo: %s, line %d: %s: exit code %d\n" "${BASH_SOURCE[0]##*/}" "$LINENO" "$BASH_COMMAND" "$?" >&2' ERR

set_up
began=$SECONDS
killed_and_repaired_at_home
killed_and_repaired_from_next_door
stopped_and_forgotten
start_limit
supervisor_and_worker
a_loop_hangs
rehearsed
stranger
a_read_beside_a_long_write
killed_in_a_write
a_queue_that_grows
curtain
