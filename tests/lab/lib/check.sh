# shellcheck shell=bash
# What the selftest checks with. A check is a function that runs with -e: any line of it may fail it.

check() { # NAME CMD...: CMD must succeed
    local name=$1 t=$EPOCHREALTIME code
    shift
    # Not `if "$@"`: bash switches -e off in there, and only the last line of a check would count.
    set +e
    (
        set -e
        trap 'echo "failed: line $LINENO: $BASH_COMMAND"' ERR
        "$@"
    ) >"$OUT/log" 2>&1
    code=$?
    set -e
    if [ "$code" -eq 0 ]; then
        awk -v n="$name" -v a="$t" -v b="$EPOCHREALTIME" 'BEGIN { printf "ok    %-62s %5.2f s\n", n, b - a }'
    else
        printf 'FAIL  %s\n' "$name"
        sed 's/^/      | /' "$OUT/log"
        failed=$((failed + 1))
    fi
}
impossible() { printf -- '--    %s\n' "$*"; }
is() { [ "$1" = "$2" ] || { echo "expected '$2', got '$1'"; return 1; }; }
fails() { ! "$@"; }
code_is() { # CODE CMD...
    local want=$1 code=0
    shift
    "$@" || code=$?
    is "$code" "$want"
}
soon() { # CMD...: within ten seconds
    local end=$((SECONDS + 10))
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.05
    done
}
pings() { lab exec "$1" ping -c 1 -W 1 -n "$2"; }
unit() { # NAME LINE...: a service in mars
    local name=$1
    shift
    printf '%s\n' '[Service]' "$@" | mars tee "/etc/systemd/system/$name.service"
    mars systemctl daemon-reload
}
show() { mars systemctl show -P "$2" "$1"; }
boot_id() { lab exec "$1" cat /proc/sys/kernel/random/boot_id; }
