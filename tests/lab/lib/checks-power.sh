# shellcheck shell=bash
# Checks of power, cables and of what is left at the end.

silent_death() { # a peer of a host without power hears nothing, and a host that came back knows nothing
    lab exec mars sh -c 'sleep 60 | nc -l -p 5001' &
    soon mars sh -c 'grep -qi :1389 /proc/net/tcp'
    lab exec venus sh -c 'sleep 60 | nc -n 192.0.2.10 5001; echo closed >/run/heard-closed' &
    soon lab exec venus sh -c 'ss -Htn state established dst 192.0.2.10 | grep -q 5001'
    lab cut mars
    sleep 0.5 # that something does not come can only be waited for
    lab exec venus sh -c 'ss -Htn state established dst 192.0.2.10 | grep -q 5001'
    fails pings venus mars
    lab boot mars
    pings venus mars
    lab exec venus sh -c 'ss -Htn state established dst 192.0.2.10 | grep -q 5001'
    lab exec venus pkill nc
}
power_cut() {
    local before
    mars touch /var/survivor
    mars systemctl start sleeper
    before=$(boot_id mars)
    lab cut mars
    fails mars true
    fails pings venus mars
    echo put-in-while-off >"$OUT/off"
    lab cp "$OUT/off" mars:/etc/off
    lab journal mars "$OUT/dead"
    grep -q hello-journal "$OUT/dead/journal.txt"
    lab boot mars
    is "$(mars cat /etc/off)" put-in-while-off
    mars test -e /var/survivor
    fails mars systemctl is-active sleeper
    fails is "$(boot_id mars)" "$before"
    is "$(mars journalctl --list-boots --quiet --no-pager | wc -l)" 2
}
clean_reboot() {
    local before pid
    before=$(boot_id mars) pid=$(lab leader mars)
    lab reboot mars
    fails is "$(boot_id mars)" "$before"
    fails is "$(lab leader mars)" "$pid"
    mars journalctl -b -1 --quiet | grep -q 'Reached target.*[Rr]eboot'
    is "$(mars systemctl is-system-running)" running
}
reboot_from_inside() {
    local pid
    pid=$(lab leader mars)
    mars systemctl --no-block reboot
    soon another_leader "$pid"
    lab wait mars
}
another_leader() {
    local now
    now=$(lab leader mars) && [ "$now" != "$1" ]
}
power_off_and_on() {
    lab exec venus sh -c 'sleep 600 | cat' & # what we run in there must not keep it from going down
    soon lab exec venus pgrep sleep
    lab poweroff venus
    is "$(lab list | awk '$1 == "venus" { print $3 }')" off
    lab boot venus
    both_running
}
cable() {
    lab unplug venus
    fails pings mars venus
    is "$(lab exec venus cat /sys/class/net/eth0/carrier)" 0
    lab plug venus
    soon pings mars venus
    soon pings mars venus-v6
}
heard() { # FROM TO: does a datagram get there, within a second?
    local word=$RANDOM$RANDOM end code=1
    lab exec "$2" sh -c 'exec nc -u -l -p 5000 >/run/heard' &
    soon lab exec "$2" sh -c 'grep -qi :1388 /proc/net/udp'
    lab exec "$1" sh -c "echo $word | nc -u -w 0 $2 5000"
    end=$((${EPOCHREALTIME/./} + 1000000))
    while [ "$code" -ne 0 ] && [ "${EPOCHREALTIME/./}" -lt "$end" ]; do
        lab exec "$2" grep -qx "$word" /run/heard && code=0
    done
    lab exec "$2" pkill nc
    wait $! || :
    return "$code"
}
one_way() {
    pings mars venus # neighbours known, so that only the datagram itself can be lost
    lab loss venus in
    fails heard mars venus
    heard venus mars
    lab loss venus out
    fails heard venus mars
    lab heal venus
    soon pings mars venus
    heard mars venus
    heard venus mars
}
lost_runner() { # the lab's own process is killed: the node can still be cut and booted
    kill -KILL "$(cat "$RUN/venus/runner")"
    lab cut venus
    lab boot venus
    lab exec venus true
}
live_journal() {
    lab journal mars "$OUT/live"
    grep -q hello-journal "$OUT/live/journal.txt"
    ls "$OUT"/live/journal/*/system.journal
    test -s "$OUT/live/console.log"
}
nothing_left() {
    local id pids
    id=$(lab id)
    pids=$(for n in mars venus; do cat "$RUN/$n/leader" "$RUN/$n/runner"; done)
    lab down
    lab down # again: nothing to do, no complaint
    fails test -e "$RUN"
    fails grep -F "$RUN" /proc/self/mountinfo
    soon fails grep -qs "keyholder-lab-$id" /proc/[0-9]*/cgroup # dead runners are the host's PID 1's to reap
    fails ip netns exec "kh-$id" true
    fails test -e "/run/netns/kh-$id"
    is "$(find /sys/fs/cgroup -name "keyholder-lab-$id*" 2>/dev/null | wc -l)" 0
    fails test -e "/run/lock/keyholder-lab-$id.lock"
    for id in $pids; do fails grep -qs '^State:.[^Z]' "/proc/$id/status"; done
}
half_way() { # what is left of a lab whose directory somebody removed can still be ended
    lab up mars
    rm -rf "${RUN:?}"
    lab down
    fails test -e "/run/netns/kh-$(lab id)"
    is "$(find /sys/fs/cgroup -name "keyholder-lab-$(lab id)*" | wc -l)" 0
}
