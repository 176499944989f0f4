# shellcheck shell=bash
# Paths and words that all parts of install.sh use.

BIN=/usr/local/bin/keyholder
SUPERVISOR=/usr/local/libexec/keyholder-supervisor
UNITS=/usr/local/lib/systemd/system # /etc/systemd/system stays the operator's
ETC=/etc/keyholder
STATE=/var/lib/keyholder
LEDGERS=/var/lib/keyholder-lane
LOCK=/run/keyholder-install.lock # only root may make files there
SUDOERS=/etc/sudoers.d/keyholder
NEEDRESTART=/etc/needrestart/conf.d/keyholder.conf
DROPIN=/etc/systemd/system/keyholder.socket.d/address.conf
SHARE=/usr/local/share

say() { printf 'install: %s\n' "$*"; }
die() {
    printf 'install: %s\n' "$*" >&2
    exit 1
}
misuse() {
    printf "install: %s ('./install.sh --help' shows what there is)\n" "$*" >&2
    exit 2
}
