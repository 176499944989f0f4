# shellcheck shell=bash
# Starting, restarting and stopping, each with a deadline. Workers are never touched.

answers() { # within 20 s? 3 is an answer too: something in the fleet is not well.
    local end=$((SECONDS + 20)) code
    while :; do
        code=0
        timeout 10 "$BIN" status >/dev/null 2>&1 || code=$?
        case $code in 0 | 3) return ;; esac
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.1
    done
}

# Does a supervisor run whose binary has been replaced since (by a run of this script that was interrupted)?
runs_old_binary() {
    local pid
    pid=$(systemctl show -P MainPID keyholder.service)
    [ "${pid:-0}" -gt 0 ] && [[ $(readlink "/proc/$pid/exe") == *' (deleted)' ]]
}

start() {
    if [ "$changed" -gt 0 ]; then systemctl daemon-reload; fi
    if was_replaced "$UNITS/keyholder.socket" "$DROPIN" || ! systemctl is-active -q keyholder.socket; then
        # A socket cannot be bound while its service runs. Whoever knocks in between is refused and tries again.
        systemctl stop keyholder.socket keyholder.service 2>/dev/null || :
    fi
    if ! systemctl is-enabled -q keyholder.socket keyholder.service 2>/dev/null; then
        systemctl enable -q keyholder.socket keyholder.service
        changed=$((changed + 1))
    fi
    # Once: an operator who has switched it off is not contradicted by the next upgrade.
    if [ "$was_enabled" = no ] || [ "$timer_is_new" = yes ]; then
        systemctl enable -q keyholder-drill.timer && systemctl start keyholder-drill.timer
    fi
    systemctl start keyholder.socket || die "the door cannot be opened: journalctl -u keyholder.socket"
    if was_replaced "$SUPERVISOR" "$UNITS/keyholder.service" || runs_old_binary; then
        restart_service
    elif ! systemctl is-active -q keyholder.service; then
        changed=$((changed + 1))
        restart_service
    fi
    answers || {
        journalctl -u keyholder.service -n 20 --no-pager >&2 || :
        die "the supervisor does not answer"
    }
}
restart_service() {
    systemctl reset-failed keyholder.service 2>/dev/null || :
    timeout 60 systemctl restart keyholder.service || {
        journalctl -u keyholder.service -n 20 --no-pager >&2 || :
        die "the supervisor does not start"
    }
}

# After the files were put back: what ran before runs again, what did not does not.
restore_service() {
    systemctl stop keyholder.socket keyholder.service 2>/dev/null || :
    [ "$timer_is_new" = no ] || systemctl disable -q --now keyholder-drill.timer 2>/dev/null || :
    if [ "$was_enabled" = yes ]; then
        systemctl daemon-reload
        systemctl start keyholder.socket keyholder.service && answers
    else
        systemctl disable -q keyholder.socket keyholder.service 2>/dev/null || :
        systemctl daemon-reload
    fi
}

uninstall() {
    local file name
    systemctl disable -q --now keyholder-drill.timer keyholder.socket keyholder.service keyholder-lane-{write,read}.service 2>/dev/null || :
    for file in "$BIN" "$SUPERVISOR" "$UNITS"/keyholder.{socket,service} "$UNITS"/keyholder-drill.{timer,service} "$UNITS"/keyholder-{lane-write,lane-read,alert@}.service "$SUDOERS" "$DROPIN" "$NEEDRESTART" /usr/local/lib/{sysusers,tmpfiles}.d/keyholder.conf \
        "$SHARE"/man/man1/keyholder{,-*}.1 "${COMPLETIONS[@]}"; do
        [ ! -e "$file" ] || { rm -f -- "$file" && say "removed $file"; }
    done
    rmdir --ignore-fail-on-non-empty "$(dirname "$DROPIN")" "$(dirname "$NEEDRESTART")" /etc/needrestart 2>/dev/null || :
    rm -rf /run/keyholder
    systemctl daemon-reload
    systemctl reset-failed keyholder.socket keyholder.service 2>/dev/null || :
    if [ "$purge" = yes ]; then
        # Before the users: their numbers may be given to others afterwards.
        rm -rf -- "$ETC" "$STATE" "$LEDGERS"
        for name in keyholder-write keyholder-read keyholder; do
            ! getent passwd "$name" >/dev/null || userdel "$name" || say "the user $name is kept" >&2
            ! getent group "$name" >/dev/null || groupdel "$name" || say "the group $name is kept" >&2
        done
        say "keyholder is gone, with its configuration, key and history"
    else
        say "keyholder is gone; kept: $ETC, $STATE and $LEDGERS (--purge removes them too)"
    fi
}
