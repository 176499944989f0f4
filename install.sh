#!/usr/bin/env bash
# Installs, upgrades or removes keyholder on this host. See `./install.sh --help`.
set -euo pipefail
umask 022

HERE=$(dirname -- "$(realpath -- "${BASH_SOURCE[0]}")")
# shellcheck source=install/common.sh
. "$HERE/install/common.sh"
# shellcheck source=install/files.sh
. "$HERE/install/files.sh"
# shellcheck source=install/service.sh
. "$HERE/install/service.sh"
# shellcheck source=install/lanes.sh
. "$HERE/install/lanes.sh"
# shellcheck source=install/build.sh
. "$HERE/install/build.sh"

usage() {
    cat <<'USAGE'
usage: sudo ./install.sh [--node NAME] [--fleet FILE] [--catalogs DIR] [--binary FILE] [--listen-any]
       sudo ./install.sh --uninstall [--purge]
       sudo ./install.sh --demo [--keep] [--binary FILE]

Installs this host as a node, or upgrades it: the same command, as often as you like. It asks nothing, never overwrites
what is in /etc/keyholder, checks the configuration before it starts anything, and goes back to what ran before if the
new supervisor does not come up. Workers are never touched.

  --node NAME     what fleet.yaml calls this host (default: /etc/keyholder/node, else the short host name)
  --fleet FILE    becomes /etc/keyholder/fleet.yaml if there is none yet
  --catalogs DIR  its catalog_*.yaml go to /etc/keyholder, if they are not there yet. With this node's own there, sudoers lines
                  are made from it (only those), and the lanes that fleet.yaml names for it are started
  --binary FILE   a built `keyholder`, with `keyholder-supervisor` beside it; without it cargo builds both here first
  --listen-any    the door listens on all addresses instead of this node's own from fleet.yaml
  --uninstall     stops and removes keyholder; keeps /etc/keyholder, /var/lib/keyholder and /var/lib/keyholder-lane …
  --purge         … unless this is given as well: keys, history, ledgers and users are gone then
  --demo          boots two real nodes on this machine and shows what keyholder does (also without systemd as PID 1): about
                  a minute, after the build; afterwards nothing of it is left …
  --keep          … unless this is given as well: the nodes stay, to play with

Exit codes: 0 done (or nothing to do), 1 it failed and everything is as it was before, 2 wrong usage.
USAGE
}

parse() {
    action=install node='' fleet='' catalogs='' binary='' listen_any=no purge=no keep=no
    while [ $# -gt 0 ]; do
        case $1 in
            --node | --fleet | --catalogs | --binary) [ $# -gt 1 ] || misuse "$1 needs a value" ;;&
            --node) node=$2; shift ;;
            --fleet) fleet=$(realpath -e -- "$2" 2>/dev/null) || misuse "--fleet: there is no '$2'"; shift ;;
            --catalogs) catalogs=$(realpath -e -- "$2" 2>/dev/null) || misuse "--catalogs: there is no '$2'"; shift ;;
            --binary) binary=$(realpath -e -- "$2" 2>/dev/null) || misuse "--binary: there is no '$2'"; shift ;;
            --listen-any) listen_any=yes ;;
            --uninstall) action=uninstall ;;
            --purge) purge=yes ;;
            --demo) action=demo ;;
            --keep) keep=yes ;;
            -h | --help) usage; exit ;;
            *) misuse "unknown option '$1'" ;;
        esac
        shift
    done
    [ "$purge" = no ] || [ "$action" = uninstall ] || misuse "--purge goes with --uninstall"
    [ "$keep" = no ] || [ "$action" = demo ] || misuse "--keep goes with --demo"
    [ "$action" != demo ] || [ -z "$node$fleet$catalogs" ] || misuse "--demo has nodes and a fleet of its own"
}

need_host() {
    [ "$EUID" -eq 0 ] || die "root is needed: sudo ./install.sh"
    [ -d /run/systemd/system ] ||
        die "systemd is not PID 1 here, so there is nothing to supervise with ('./install.sh --demo' boots nodes of its own)"
    local version
    version=$(systemctl --version | awk 'NR == 1 { print int($2) }')
    [ "$version" -ge 250 ] || die "systemd $version is too old: 250 is needed; 252 (Debian 12) and 257 (Debian 13) are tested"
    # Whoever may open a file may lock it, so only root may.
    umask 077
    exec 9>>"$LOCK"
    umask 022
    chmod 600 "$LOCK"
    flock -n 9 || die "another install.sh is running (it holds $LOCK)"
}

install_node() {
    need_host
    [ -n "$binary" ] || build
    find_supervisor
    was_enabled=no
    ! systemctl is-enabled -q keyholder.socket 2>/dev/null || was_enabled=yes
    note_lanes
    trap put_back EXIT # until the end is reached
    install_binaries
    systemd-sysusers keyholder.conf
    systemd-tmpfiles --create keyholder.conf
    settle_name
    settle_key
    settle_fleet
    settle_catalogs
    if [ "$ready" = yes ]; then
        install_door
        start
        start_lanes
    else
        systemctl daemon-reload
    fi
    trap - EXIT
    forget_backup
    if [ "$ready" = yes ]; then told_next; else told_fleet; fi
}

told_next() {
    if [ "$changed" -eq 0 ]; then
        say "nothing to do: this is $("$BIN" --version), running as node $node"
    else
        say "$("$BIN" --version) runs as node $node; the door is at $door"
    fi
    cat <<NEXT

This node's pin, for its entry in every node's fleet.yaml:
    $pin
Next: the same fleet.yaml on every node, 'systemctl reload keyholder' after each change, then
    keyholder doctor            is everything as it should be, and do the peers accept us?
    keyholder status            the fleet as this node sees it
    keyholder matrix            what would be seen and repaired, and what not
    keyholder drill --all       rehearse it now: a way back that was never walked is none; from now on
                                keyholder-drill.timer does so each night (never with a critical worker)
NEXT
}

told_fleet() {
    cat <<NEXT
install: installed, but not started: there is no $ETC/fleet.yaml yet.

This node's pin, for its entry there:
    $pin
Next: write fleet.yaml with the pins of all nodes (README.md, "Two hosts"), then run
    sudo ./install.sh --fleet fleet.yaml
NEXT
}

parse "$@"
case $action in
    install) install_node ;;
    uninstall) need_host; uninstall ;;
    demo) exec "$HERE/install/demo.sh" "$keep" "$binary" ;;
esac
