# shellcheck shell=bash
# Checks of the commands themselves.

quick_deps() {
    local t=${EPOCHREALTIME/./}
    lab deps
    [ $((${EPOCHREALTIME/./} - t)) -lt 200000 ]
}
two_at_once() { # the same lab, twice at the same time: one makes it, the other finds it
    lab up mars venus &
    local first=$!
    lab up mars venus
    wait "$first"
    is "$(lab list | wc -l)" 2
}
both_running() {
    is "$(lab exec mars systemctl is-system-running)" running
    is "$(lab exec venus systemctl is-system-running)" running
}
exec_passes_on() {
    is "$(echo hello | mars cat)" hello
    code_is 7 mars sh -c 'exit 7'
    code_is 125 lab exec nosuch true
    is "$(mars pwd)" /
    # shellcheck disable=SC2016
    is "$(SECRET=1 lab exec mars sh -c 'echo "${SECRET-none}"')" none
    is "$(mars cat /proc/self/cgroup | sed -n 's/^0:://p')" /lab.exec
}
killed_exec() { # who kills `lab exec` (a test that ran out of time) kills the command
    lab exec mars sleep 777 &
    local pid=$!
    soon mars pgrep -f 'sleep 777'
    kill -KILL "$(pgrep -f -- "--pdeathsig KILL sleep 777" | head -n 1)"
    wait "$pid" || :
    soon fails mars pgrep -x sleep
}
two_labs() {
    "$HERE/lab" --dir "$RUN.b" up mars
    is "$("$HERE/lab" --dir "$RUN.b" exec mars ip -br -4 addr show eth0 | awk '{print $3}')" 192.0.2.10/24
    "$HERE/lab" --dir "$RUN.b" down
    both_running
}
names() {
    is "$(mars hostname) $(mars cat /etc/hostname /etc/keyholder/node | tr '\n' ' ')" "mars mars mars "
    is "$(mars getent hosts venus | awk '{print $1}')" 192.0.2.20
    is "$(mars ls /sys/class/net | tr '\n' ' ')" "eth0 lo "
}
copies() {
    printf '#!/bin/sh\necho new\n' >"$OUT/tool"
    chmod 755 "$OUT/tool"
    lab cp "$OUT/tool" mars:/usr/local/bin/
    is "$(mars tool)" new
    lab cp mars:/usr/local/bin/tool "$OUT/back"
    cmp "$OUT/tool" "$OUT/back"
    mkdir -p "$OUT/tree/sub" && echo x >"$OUT/tree/sub/file"
    lab cp "$OUT/tree" mars:/opt
    is "$(mars cat /opt/tree/sub/file)" x
    is "$(cat "$(lab root mars)/opt/tree/sub/file")" x
}
