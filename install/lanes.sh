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
    [ "$has_catalog" = yes ] || return 0
    if [ "$ready" = yes ]; then "$BIN" check -q || die "the catalogs were refused (above), so nothing was started"; fi
    settle_sudoers
}

# Exactly the lines that the catalog needs. sudo reads no file with a dot in its name, so that it never sees a half one.
settle_sudoers() {
    local made is=''
    made=$("$BIN" catalog sudoers "$node") || die "'keyholder catalog sudoers' failed"
    if [ -e "$SUDOERS" ]; then
        is=$(<"$SUDOERS")
        if [[ $is != *'made by `keyholder catalog sudoers`'* ]] && [ "$is" != "$made" ]; then
            say "$SUDOERS is kept: it was not made here. What the catalog needs: keyholder catalog sudoers $node" >&2
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
    put_text "$made" "$SUDOERS" 440
}

# Which lanes run before anything is put anywhere. Those that come up meanwhile (the supervisor starts what is dead) are new.
note_lanes() {
    local mode
    ran_before=' '
    for mode in write read; do
        ! systemctl is-active -q "keyholder-lane-$mode.service" 2>/dev/null || ran_before+="$mode "
    done
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
            if [[ $ran_before == *" $mode "* ]] && was_replaced "$BIN" "$UNITS/$unit" "$ETC/catalog_$node.yaml"; then
                say "$unit still runs as before: systemctl restart $unit, when it suits you"
            fi
        else
            # It is ready with its first connection to Redis, which may be late.
            systemctl reset-failed "$unit" 2>/dev/null || :
            systemctl start --no-block "$unit"
            changed=$((changed + 1))
        fi
    done
    said=$(timeout 10 "$BIN" queue "$node" 2>&1) || say "warning: the lanes' Redis cannot be used from here yet: $said" >&2
}
