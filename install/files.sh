# shellcheck shell=bash
# What is put where. Every file is replaced in one step, and what was there before is kept until all is well.

changed=0 replaced=() backup='' timer_is_new=no

# put SRC DST MODE: nothing if it is there already. $changed counts what was not.
put() {
    local src=$1 dst=$2 mode=$3
    if cmp -s -- "$src" "$dst" && [ "$(stat -c %a -- "$dst")" = "$mode" ]; then return; fi
    [ -n "$backup" ] || backup=$(mktemp -d /var/tmp/keyholder-install.XXXXXX)
    if [ -e "$dst" ]; then
        mkdir -p "$backup$(dirname -- "$dst")"
        cp -a -- "$dst" "$backup$dst"
    fi
    replaced+=("$dst")
    changed=$((changed + 1))
    mkdir -p "$(dirname -- "$dst")"
    install -m "$mode" -- "$src" "$dst.new"
    mv -T -- "$dst.new" "$dst"
    say "$dst"
}
# Removes a file so that put_back can bring it back.
remove() { # DST
    local dst=$1
    [ -n "$backup" ] || backup=$(mktemp -d /var/tmp/keyholder-install.XXXXXX)
    mkdir -p "$backup$(dirname -- "$dst")"
    cp -a -- "$dst" "$backup$dst"
    replaced+=("$dst")
    changed=$((changed + 1))
    rm -f -- "$dst"
    say "removed $dst"
}
put_text() { # TEXT DST MODE
    local from
    from=$(mktemp)
    printf '%s\n' "$1" >"$from"
    put "$from" "$2" "$3"
    rm -f "$from"
}
was_replaced() { # DST...: was one of them?
    local one dst
    for one in "${replaced[@]}"; do
        for dst in "$@"; do [ "$one" != "$dst" ] || return 0; done
    done
    return 1
}

# On any failure: everything as it was, the supervisor included.
put_back() {
    local dst
    trap - EXIT
    [ ${#replaced[@]} -gt 0 ] || exit 1
    say "it failed: putting back what was there before" >&2
    for dst in "${replaced[@]}"; do
        if [ -e "$backup$dst" ]; then
            cp -a -- "$backup$dst" "$dst.new"
            mv -T -- "$dst.new" "$dst"
        else
            rm -f -- "$dst"
        fi
    done
    restore_service || say "the supervisor that ran before does not come up either: journalctl -u keyholder" >&2
    forget_backup
    exit 1
}
forget_backup() { [ -z "$backup" ] || rm -rf -- "$backup"; }

# The supervisor's binary lies beside the command's, and both are of one version. Sets $supervisor.
find_supervisor() {
    local is supervisors
    supervisor=$(dirname -- "$binary")/keyholder-supervisor
    [ -x "$supervisor" ] || die "there is no $supervisor; it belongs beside $binary"
    is=$("$binary" --version) || die "$binary does not run on this host"
    supervisors=$("$supervisor" --version) || die "$supervisor does not run on this host"
    [ "${is#* }" = "${supervisors#* }" ] || die "$binary and $supervisor are not of one version ($is, $supervisors)"
}

# The two binaries, and all that goes with them.
install_binaries() {
    local unit shell file made
    put "$binary" "$BIN" 755
    put "$supervisor" "$SUPERVISOR" 755
    [ -e "$UNITS/keyholder-drill.timer" ] || timer_is_new=yes
    for unit in "$HERE"/units/*.{socket,service,timer}; do put "$unit" "$UNITS/$(basename -- "$unit")" 644; done
    put "$HERE/units/sysusers.d/keyholder.conf" /usr/local/lib/sysusers.d/keyholder.conf 644
    put "$HERE/units/tmpfiles.d/keyholder.conf" /usr/local/lib/tmpfiles.d/keyholder.conf 644
    put "$HERE/install/needrestart.conf" "$NEEDRESTART" 644
    made=$(mktemp -d)
    "$binary" man "$made" >/dev/null || die "'keyholder man' failed"
    for file in "$made"/*.1; do put "$file" "$SHARE/man/man1/$(basename -- "$file")" 644; done
    rm -rf -- "$made"
    for shell in "${!COMPLETIONS[@]}"; do
        file=${COMPLETIONS[$shell]}
        made=$("$binary" completions "$shell") || die "'keyholder completions $shell' failed"
        put_text "$made" "$file" 644
    done
}
declare -A COMPLETIONS=(
    [bash]=$SHARE/bash-completion/completions/keyholder
    [zsh]=$SHARE/zsh/site-functions/_keyholder
    [fish]=$SHARE/fish/vendor_completions.d/keyholder.fish
)

# Whose name this is. Sets $node.
settle_name() {
    local is=''
    ! [ -e "$ETC/node" ] || read -r is <"$ETC/node" || :
    node=${node:-${is:-$(hostname -s)}}
    if [ -z "$is" ]; then
        put_text "$node" "$ETC/node" 644
    elif [ "$is" != "$node" ]; then
        die "$ETC/node says that this host is '$is', not '$node'. If that is wrong, change it there"
    fi
}

# Sets $pin. A key is made once and never replaced here ('keyholder key' rotates it).
settle_key() {
    pin=$("$BIN" key show 2>/dev/null) || {
        "$BIN" key generate >/dev/null || die "'keyholder key generate' failed"
        changed=$((changed + 1))
        pin=$("$BIN" key show)
    }
}

# Sets $ready: no if there is none yet. A file that fails the check starts nothing.
settle_fleet() {
    ready=yes
    if [ -e "$ETC/fleet.yaml" ]; then
        if [ -n "$fleet" ] && ! cmp -s -- "$fleet" "$ETC/fleet.yaml"; then
            say "$ETC/fleet.yaml is kept; it differs from $fleet. To replace it:"
            say "    install -m 644 $fleet $ETC/fleet.yaml && systemctl reload keyholder"
        fi
    elif [ -n "$fleet" ]; then
        put "$fleet" "$ETC/fleet.yaml" 644
    else
        ready=no
        return
    fi
    "$BIN" check -q --no-catalogs || die "the configuration was refused (above), so nothing was started"
}

# The door listens on this node's own address, as the fleet file has it. Sets $door.
install_door() {
    local listen said
    said=$("$BIN" check --json --no-catalogs)
    # The first address in it is this node's own.
    [[ $said =~ \"address\":\ *\"((\[[0-9a-f:.%]+\]|[0-9.]+):[0-9]+)\" ]] ||
        die "'keyholder check --json' names no address for $node"
    door=${BASH_REMATCH[1]}
    listen=$door
    if [ "$listen_any" = yes ]; then listen=${door##*:} door="port $listen of every address"; fi
    put_text "# Written by install.sh from this node's address in fleet.yaml; run it again after a change.
[Socket]
ListenStream=$listen" "$DROPIN" 644
}
