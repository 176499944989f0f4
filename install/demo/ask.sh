# shellcheck shell=bash
# Asking the nodes. Times are microseconds of systemd's own timestamps, or of the wall clock that both nodes share.

NODES=(mars ai-core)
saw=("nothing")

lab() { "$LAB" --dir "$DIR" "$@"; }
on() { lab exec "$@" </dev/null; }
now() { printf %s "${EPOCHREALTIME/[.,]/}"; }
show() { on mars systemctl show -P "$2" "$1"; } # UNIT PROPERTY

until_true() { # WHAT COMMAND...: a state, with a deadline
    local what=$1 end=$((SECONDS + DEADLINE))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || fail "$what (waited for $DEADLINE s)"
        sleep 0.02
    done
}

# PID 1 stamps everything with both clocks; their difference turns its monotonic times into wall clock times.
measure_clocks() {
    local wall mono
    { read -r _ wall && read -r _ mono; } < <(on mars busctl get-property org.freedesktop.systemd1 /org/freedesktop/systemd1 \
        org.freedesktop.systemd1.Manager UserspaceTimestamp UserspaceTimestampMonotonic)
    offset=$((wall - mono))
}

# --- ai-core's view, as it comes ---------------------------------------------------------------------------------------------

stamp() {
    local line
    while IFS= read -r line; do printf '%s %s\n' "${EPOCHREALTIME/[.,]/}" "$line"; done
}
start_watch() {
    mkfifo "$OUT/watch"
    "$LAB" --dir "$DIR" exec ai-core keyholder status mars --watch </dev/null >"$OUT/watch" 2>&1 &
    watch_pid=$!
    exec {watch}< <(stamp <"$OUT/watch")
    next_line $((SECONDS + DEADLINE)) || fail "'keyholder status mars --watch' shows something on ai-core"
}
next_line() { # END (in SECONDS): sets $at and $line; false if there is none by then
    local left=$(($1 - SECONDS)) code=0
    [ "$left" -gt 0 ] || return 1
    IFS=' ' read -r -t "$left" -u "$watch" at line || code=$?
    [ "$code" -ne 1 ] || fail "ai-core goes on watching (its 'keyholder status --watch' has ended)"
    [ "$code" -eq 0 ] || return 1
    saw+=("$line")
}
# Tells what ai-core sees from $since on, until it sees PATTERN. Sets $first: how long after $since the first news came.
follow() { # PATTERN WHAT
    local end=$((SECONDS + DEADLINE))
    first=
    while next_line "$end"; do
        [ "$at" -ge "$since" ] || continue # of an earlier scene
        first=${first:-$((at - since))}
        seen $((at - since)) "$line"
        [[ ! $line =~ $1 ]] || return 0
    done
    fail "ai-core sees $2 (waited for $DEADLINE s)"
}

# --- a worker's fall and its return ------------------------------------------------------------------------------------------

# The state before a scene. Sets $worker, $unit, $run, $left and $seq.
before() { # WORKER UNIT
    worker=$1 unit=$2
    run=$(show "$unit" InvocationID)
    left=$(show "$unit" ActiveExitTimestampMonotonic)
    seq=$(on mars keyholder audit -n 1 --json | jq '.outcome.audit[-1].seq // 0')
}
# What ai-core knows of a worker of mars; 3 only says that something is not well.
reported() { # WORKER FIELD
    { on ai-core keyholder status "mars/$1" --json || [ $? -eq 3 ]; } | jq -r ".outcome.status.workers[0].$2"
}
has_left() { [ "$(show "$unit" ActiveExitTimestampMonotonic)" != "$left" ]; }
# When systemd saw the unit go down, by the wall clock. Sets $since and $fall.
fell() {
    until_true "systemd on mars sees $unit go down" has_left
    fall=$(show "$unit" ActiveExitTimestampMonotonic)
    since=$((fall + offset))
}
follow_up() { follow "$(settled)" "mars/$worker up again, and staying up"; }
settled() { printf '^mars/%s is healthy: running( \\(was [a-z]+\\))?$' "$worker"; }

# The records of mars's own audit trail since the scene began, of one kind: their texts.
records() { # EVENT SUBJECT
    on mars keyholder audit -n 200 --json |
        jq -r --argjson seq "$seq" --arg event "$1" --arg subject "$2" \
            '.outcome.audit[] | select(.seq > $seq and .event == $event and .subject == $subject) | .text'
}

# The worker runs again: once, under a new invocation, by whom it had to be, and ai-core knows that very run.
returned() { # WHO-PATTERN
    local acts state new up known
    state=$(show "$unit" ActiveState) new=$(show "$unit" InvocationID) up=$(show "$unit" ActiveEnterTimestampMonotonic)
    [ "$state" = active ] && [ "$new" != "$run" ] || fail "$unit runs under a new invocation (it is $state, $new)"
    mapfile -t acts < <(records acting "mars/$worker")
    [ ${#acts[@]} -eq 1 ] || fail "mars/$worker is relaunched once (it was ${#acts[@]} times: ${acts[*]})"
    who=${acts[0]#"relaunching $unit: "}
    [[ $who =~ $1 ]] || fail "the relaunch of mars/$worker is by '$1' (it was by '$who')"
    known=$(reported "$worker" invocation)
    [ "$known" = "$new" ] || fail "ai-core knows the run $new of mars/$worker (it knows $known)"
    took=$((up + offset - since))
    result "running again $(paint good "$(human "$took")") after $2, relaunched once, and it stayed up"
    result "mars's audit trail: \"${acts[0]}\""
    result "invocation ${run:0:8} -> ${new:0:8}; ai-core knows the new one"
}
