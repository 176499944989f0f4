# shellcheck shell=bash
# Checks of what systemd, D-Bus, the journal and the kernel do inside a node.

restarts() {
    unit sleeper ExecStart='/bin/sleep infinity'
    mars systemctl start sleeper
    local before
    before=$(show sleeper InvocationID)
    mars systemctl restart sleeper
    fails is "$(show sleeper InvocationID)" "$before"
    is "$(show sleeper ActiveState)" active
}
dbus() {
    mars busctl call org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager \
        RestartUnit ss sleeper.service replace
    mars busctl list --acquired
}
journal_works() {
    mars logger -t selftest hello-journal
    mars journalctl --sync
    mars journalctl -t selftest -o cat | grep hello-journal
    mars sh -c 'ls /var/log/journal/*/system.journal'
    is "$(mars journalctl -t selftest -o json -n 1 | grep -o '"_BOOT_ID":"[^"]*"' | cut -d'"' -f4)" \
        "$(boot_id mars | tr -d -)"
}
sudo_works() {
    mars useradd --system keytest
    echo 'keytest ALL=(root) NOPASSWD: /usr/bin/id -u' | mars tee /etc/sudoers.d/keytest
    is "$(mars setpriv --reuid keytest --regid keytest --clear-groups sudo -n -- /usr/bin/id -u)" 0
    fails mars setpriv --reuid keytest --regid keytest --clear-groups sudo -n -- /usr/bin/id -un
}
# Every probe says a word if it gets through. Uncaged all must, or the silence of the caged run would prove nothing.
sandbox_probes() {
    cat <<'PROBES'
exec >/var/lib/$1/out 2>&1
cat /proc/self/status
touch /var/lib/$1/file
chmod 600 /var/lib/$1/file && echo CHMOD
touch /usr/written && echo USR-WRITABLE
[ -e /proc/meminfo ] && echo PROC-FULL
ls -d /tmp/seen-outside && echo TMP-SHARED
unshare -u true && echo NAMESPACES
[ -e /dev/console ] && echo DEVICES
[ -w /root ] && echo HOME
python3 -c 'import mmap; mmap.mmap(-1, 4096, prot=7)' && echo WRITE-EXECUTE
python3 -c 'import socket; socket.socket()' && echo INET
true
PROBES
}
probed() { # UNIT LINE...: the probes in a unit with these directives; what they say is in /var/lib/UNIT/out
    unit "$1" Type=oneshot RemainAfterExit=yes "StateDirectory=$1" ExecStart="/bin/sh /usr/local/bin/probes $1" "${@:2}"
    mars systemctl start "$1"
}
# Seccomp is 2 for everything below nspawn, so the number of filters and a refused call are what counts.
sandbox() {
    local free caged filters
    sandbox_probes | mars tee /usr/local/bin/probes >/dev/null
    mars touch /tmp/seen-outside
    probed free >/dev/null
    free=$(mars cat /var/lib/free/out)
    echo "$free"
    is "$(grep -cE '^[A-Z]+(-[A-Z]+)?$' <<<"$free")" 9
    probed caged NoNewPrivileges=yes CapabilityBoundingSet= 'SystemCallFilter=~fchmodat fchmodat2 chmod' \
        SystemCallErrorNumber=EUCLEAN ProtectSystem=strict PrivateTmp=yes ProtectHome=yes ProtectProc=invisible \
        ProcSubset=pid RestrictNamespaces=yes MemoryDenyWriteExecute=yes PrivateDevices=yes ProtectKernelTunables=yes \
        RestrictAddressFamilies=AF_UNIX KeyringMode=private >/dev/null
    caged=$(mars cat /var/lib/caged/out)
    echo "$caged"
    grep -qx $'CapEff:\t0000000000000000' <<<"$caged"
    grep -qx $'CapBnd:\t0000000000000000' <<<"$caged"
    grep -qx $'NoNewPrivs:\t1' <<<"$caged"
    grep -qx $'Seccomp:\t2' <<<"$caged"
    filters=$(sed -n 's/^Seccomp_filters:\t//p' <<<"$free")
    [ "$(sed -n 's/^Seccomp_filters:\t//p' <<<"$caged")" -gt "$filters" ]
    grep -q 'chmod.*Structure needs cleaning' <<<"$caged"
    fails grep -E '^[A-Z]+(-[A-Z]+)?$' <<<"$caged"
}
unprivileged_reading() { # ProtectProc: what a caged non-root user sees of others
    is "$(mars systemd-run --quiet --pipe --wait -p DynamicUser=yes sh -c '[ -d /proc/1 ] && echo seen')" seen
    is "$(mars systemd-run --quiet --pipe --wait -p DynamicUser=yes -p ProtectProc=invisible \
        sh -c '[ -d /proc/1 ] && echo seen || echo hidden')" hidden
}
ip_filter() {
    is "$(mars systemd-run --quiet --pipe --wait -p IPAddressDeny=any -p IPAddressAllow=192.0.2.20 \
        sh -c 'ping -c 1 -W 1 venus >/dev/null && echo venus; ping -c 1 -W 1 192.0.2.1 >/dev/null && echo other; :')" venus
}
freezes() {
    mars systemctl start sleeper
    mars systemctl freeze sleeper
    local state
    state=$(show sleeper FreezerState)
    mars systemctl thaw sleeper
    is "$state" frozen
    is "$(show sleeper FreezerState)" running
}
# A task that spins inside a frozen unit makes no progress: the kernel does it, not only systemd's word for it.
really_frozen() {
    unit spinner "ExecStart=/bin/sh -c 'while :; do echo >>/run/spin; sleep 0.01; done'"
    mars systemctl start spinner
    soon mars test -s /run/spin
    mars systemctl freeze spinner
    local a b
    a=$(mars stat -c %s /run/spin)
    sleep 0.3
    b=$(mars stat -c %s /run/spin)
    mars systemctl thaw spinner
    mars systemctl stop spinner
    is "$b" "$a"
}
redis_works() {
    mars systemctl start redis-server
    is "$(mars redis-cli ping)" PONG
    mars systemctl stop redis-server
}
