# shellcheck shell=bash
# What the host must have. `command:package`, looked up by command, so that nothing is asked of apt when all is there.

DEPS=(systemd-nspawn:systemd-container debootstrap:debootstrap ip:iproute2 nsenter:util-linux unshare:util-linux
    flock:util-linux setsid:util-linux nft:nftables journalctl:systemd dbus-daemon:dbus wget:wget tar:tar
    mount:mount realpath:coreutils find:findutils ps:procps ping:iputils-ping)

lab_deps() {
    local d missing=()
    for d in "${DEPS[@]}"; do
        # /usr/sbin may be missing from the PATH of a plain `su`.
        PATH=$PATH:/usr/sbin:/sbin command -v "${d%%:*}" >/dev/null || missing+=("${d#*:}")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    need_root
    command -v apt-get >/dev/null || die "missing: ${missing[*]}, and this is no Debian or Ubuntu"
    say "installing ${missing[*]}"
    (
        export DEBIAN_FRONTEND=noninteractive
        # Packages bring services; a build machine wants none of them started.
        if [ ! -e /usr/sbin/policy-rc.d ]; then
            trap 'rm -f /usr/sbin/policy-rc.d' EXIT
            printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
            chmod 755 /usr/sbin/policy-rc.d
        fi
        install() { apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null; }
        # The lists may be missing (container images) or old (then a file is gone from the mirror).
        install 2>/dev/null || { apt-get update -qq && install; }
    ) || die "apt-get could not install: ${missing[*]}"
}
