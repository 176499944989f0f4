# shellcheck shell=bash
# The lanes: what they may do, by which sudoers lines, and their start. Without a catalog of this node there are none.

settle_catalogs() {
    local file to
    [ -z "$catalogs" ] || for file in "$catalogs"/catalog_*.yaml; do
        [ -e "$file" ] || die "--catalogs: there is no catalog_NODE.yaml in $catalogs"
        to=$ETC/$(basename -- "$file")
        if [ ! -e "$to" ]; then
            put "$file" "$to" 644
        elif ! cmp -s -- "$file" "$to"; then
            say "$to is kept; it differs from $file. To replace it:"
            say "    install -m 644 $file $to && ./install.sh && systemctl reload 'keyholder-lane-*'"
        fi
    done
    has_catalog=no
    [ ! -e "$ETC/catalog_$node.yaml" ] || has_catalog=yes
    if [ "$has_catalog" = no ]; then
        drop_sudoers
        return
    fi
    if [ "$ready" = yes ]; then "$BIN" check -q || die "the catalogs were refused (above), so nothing was started"; fi
    settle_sudoers
}

made_here() { [[ $1 == *'made by `keyholder catalog sudoers`'* ]]; } # TEXT

# Without a catalog nothing may be run as root.
drop_sudoers() {
    [ -e "$SUDOERS" ] || return 0
    if made_here "$(<"$SUDOERS")"; then
        say "there is no $ETC/catalog_$node.yaml any more, so its sudoers lines go as well"
        remove "$SUDOERS"
    else
        say "$SUDOERS is kept although there is no $ETC/catalog_$node.yaml: it was not made here" >&2
    fi
}

# Exactly the lines that the catalog needs. sudo reads no file with a dot in its name, so that it never sees a half one.
settle_sudoers() {
    local made is=''
    made=$("$BIN" catalog sudoers "$node") || die "'keyholder catalog sudoers' failed"
    if [ -e "$SUDOERS" ]; then
        is=$(<"$SUDOERS")
        if ! made_here "$is" && [ "$is" != "$made" ]; then
            say "$SUDOERS is kept: it was not made here. What the catalog needs: keyholder catalog sudoers $node" >&2
            if [[ " $moving " == *" write "* ]]; then
                say "its lines must be for the user keyholder-write, as which the write lane runs from its next start on" >&2
                moving=${moving/write/}
            fi
            return
        fi
    elif [[ $made != *NOPASSWD* ]]; then
        return # nothing of it needs sudo
    fi
    if ! command -v visudo >/dev/null; then
        say "there is no sudo on this host, and the catalog needs it; install it and run this again" >&2
        return
    fi
    printf '%s\n' "$made" | visudo -cqf - || die "visudo refuses the sudoers lines of catalog_$node.yaml"
    sudoers_made=$made
    # The lane that still runs as the former user begins tasks until it is told to leave.
    [[ " $moving " != *" write "* ]] || made+=$'\n'$(sed -n 's/^keyholder-write /keyholder /p' <<<"$made")
    put_text "$made" "$SUDOERS" 440
}

# Which lanes run before anything is put anywhere. Those that come up meanwhile (the supervisor starts what is dead) are new.
note_lanes() {
    local mode
    ran_before=' ' moving='' sudoers_made=''
    for mode in write read; do
        ! systemctl is-active -q "keyholder-lane-$mode.service" 2>/dev/null || ran_before+="$mode "
        [ "$(lane_user "$mode")" != keyholder ] || moving+=" $mode"
    done
}

# Both lanes ran as the user keyholder before each had a user of its own.
lane_user() { # MODE: as whom its process runs, nobody if there is none
    local pid
    pid=$(systemctl show -P MainPID "keyholder-lane-$1.service" 2>/dev/null) || :
    [ "${pid:-0}" -le 0 ] || stat -c %U "/proc/$pid" 2>/dev/null || :
}

# They change their user by themselves: each finishes what it runs, takes nothing more, and is started again by PID 1, which
# gives the state directory to the new user. Tasks wait in Redis meanwhile. Nobody waits long here: whatever a lane still runs
# has been through sudo already, and it may be what runs this script.
move_lanes() {
    local mode end=$((SECONDS + 60))
    for mode in $moving; do
        [ "$(systemctl show -P User "keyholder-lane-$mode.service")" = "keyholder-$mode" ] || continue
        say "keyholder-lane-$mode.service changes to the user keyholder-$mode when it has finished what it runs"
        systemctl restart --no-block "keyholder-lane-$mode.service"
        changed=$((changed + 1))
    done
    for mode in $moving; do
        while [ "$(lane_user "$mode")" = keyholder ] && [ "$SECONDS" -lt "$end" ]; do sleep 0.2; done
        [ "$(lane_user "$mode")" != keyholder ] || say "keyholder-lane-$mode.service still runs a task as the user keyholder"
    done
    [[ " $moving " != *" write "* ]] || [ -z "$sudoers_made" ] || put_text "$sudoers_made" "$SUDOERS" 440
}

# A running lane is never touched: it finishes what it has, and whoever upgrades says when it starts anew.
start_lanes() {
    local unit mode said
    [ "$has_catalog" = yes ] || return 0
    said=$("$BIN" status "$node" --json) || :
    for mode in write read; do
        unit=keyholder-lane-$mode.service
        [[ $said == *"\"$unit\""* ]] || continue
        if ! systemctl is-enabled -q "$unit" 2>/dev/null; then
            systemctl enable -q "$unit"
            changed=$((changed + 1))
        fi
        if systemctl is-active -q "$unit"; then
            if [[ $ran_before == *" $mode "* && " $moving " != *" $mode "* ]] && was_replaced "$BIN" "$UNITS/$unit" "$ETC/catalog_$node.yaml"; then
                say "$unit still runs as before: systemctl restart $unit, when it suits you"
            fi
        else
            # It is ready with its first connection to Redis, which may be late.
            systemctl reset-failed "$unit" 2>/dev/null || :
            systemctl start --no-block "$unit"
            changed=$((changed + 1))
        fi
    done
    [ -z "${moving// /}" ] || move_lanes
    said=$(timeout 10 "$BIN" queue "$node" 2>&1) || say "warning: the lanes' Redis cannot be used from here yet: $said" >&2
}
