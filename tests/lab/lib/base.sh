# shellcheck shell=bash
# The base root filesystem: the lower layer of every node's overlay. Made once, never written again.

PACKAGES=(systemd systemd-sysv dbus sudo iproute2 iputils-ping procps redis-server redis-tools openssh-server
    openssh-client python3 openssl netcat-openbsd less ca-certificates)
RECIPE=1 # raise it when prepare_base changes: it is part of the key

# The host's archive of whole releases: "URI RELEASE". apt reads its own files best (one-line and deb822 alike). Others than
# the distribution's may offer "main" too, so one that is called debian or ubuntu comes first.
host_source() {
    # shellcheck disable=SC2016
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
        awk '$3 != "main" || $2 ~ /[-\/]/ || $1 ~ /security/ || $1 ~ /^cdrom/ { next }
            $1 ~ /debian|ubuntu/ { print $1, $2; found = 1; exit }
            other == "" { other = $1 " " $2 }
            END { if (!found) print other }'
}

base_source() { # sets MIRROR SUITE COMPONENTS KEYRING
    local release id
    # shellcheck source=/dev/null
    id=$(. /etc/os-release && echo "${ID_LIKE:-} $ID")
    read -r MIRROR release < <(host_source; echo)
    if [[ $MIRROR == mirror+file:* ]]; then # cloud images: a file with one mirror a line
        MIRROR=$(awk '$1 ~ /^https?:/ { print $1; exit }' "${MIRROR#mirror+file:}")
    fi
    MIRROR=${KEYHOLDER_LAB_MIRROR:-$MIRROR}
    [ -n "$MIRROR" ] || die "no Debian or Ubuntu mirror in the host's apt sources; set KEYHOLDER_LAB_MIRROR and KEYHOLDER_LAB_SUITE"
    case $id in
        *ubuntu*) SUITE=$release COMPONENTS=main,universe KEYRING=/usr/share/keyrings/ubuntu-archive-keyring.gpg ;;
        *) SUITE=bookworm COMPONENTS=main KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg ;;
    esac
    SUITE=${KEYHOLDER_LAB_SUITE:-$SUITE}
}

base_key() {
    read -ra extra <<<"${KEYHOLDER_LAB_PACKAGES:-}"
    printf '%s\n' "$RECIPE" "${KEYHOLDER_LAB_SUITE:-}" "${PACKAGES[@]}" "${extra[@]}" | sha256sum | cut -c1-12
}
base_path() { printf '%s/base-%s\n' "$CACHE" "$(base_key)"; }

lab_base() {
    local base tmp
    base=$(base_path)
    [ -d "$base" ] && return 0
    need_root
    mkdir -p "$CACHE"
    exec 7>"$CACHE/lock"
    flock 7 # two labs may ask at once; the second finds the work done
    [ -d "$base" ] && { exec 7>&-; return 0; }
    rm -rf --one-file-system "$CACHE"/tmp.*
    tmp=$(mktemp -d "$CACHE/tmp.XXXXXX")
    chmod 755 "$tmp"
    make_base "$tmp" 7>&-
    mv -T "$tmp" "$base"
    exec 7>&-
}

make_base() {
    local tmp=$1 args=() proxy ca include extra
    base_source
    read -ra extra <<<"${KEYHOLDER_LAB_PACKAGES:-}"
    include=$(IFS=,; echo "${PACKAGES[*]}${extra[*]:+,${extra[*]}}")
    say "making the base ($SUITE from the host's mirror, a few minutes, once): $(base_path)"
    # debootstrap fetches with wget and knows nothing of apt's settings.
    proxy=$(apt-config dump --format '%v' Acquire::http::Proxy)
    [ -z "$proxy" ] || [ "$proxy" = DIRECT ] || export http_proxy=$proxy
    proxy=$(apt-config dump --format '%v' Acquire::https::Proxy)
    [ -z "$proxy" ] || [ "$proxy" = DIRECT ] || export https_proxy=$proxy
    ca=$(apt-config dump --format '%v' Acquire::https::CaInfo)
    [ -z "$ca" ] || args+=(--cacert="$ca")
    if [ -r "$KEYRING" ]; then
        args+=(--keyring="$KEYRING")
    else # a host of the other family, or a mirror with a key of its own: what apt trusts here
        cat /etc/apt/trusted.gpg /etc/apt/trusted.gpg.d/*.gpg /usr/share/keyrings/*archive*.gpg >"$CACHE/keyring.gpg" 2>/dev/null || :
        args+=(--keyring="$CACHE/keyring.gpg")
    fi
    if ! debootstrap --variant=minbase --components="$COMPONENTS" --include="$include" "${args[@]}" \
        "$SUITE" "$tmp" "$MIRROR" >"$CACHE/debootstrap.log" 2>&1; then
        tail -n 15 "$CACHE/debootstrap.log" >&2
        die "debootstrap failed; all of it: $CACHE/debootstrap.log ($tmp is removed next time)"
    fi
    prepare_base "$tmp"
}

prepare_base() {
    local root=$1 unit
    rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/var/log/*.log
    mkdir -p "$root/var/log/journal" "$root/etc/keyholder" "$root/etc/systemd/journald.conf.d"
    chroot "$root" /usr/bin/chown root:systemd-journal /var/log/journal
    chmod 2755 "$root/var/log/journal"
    # There, but nobody starts them: scenarios and benches do.
    for unit in redis-server.service ssh.service ssh.socket; do
        systemctl --root="$root" disable "$unit" >/dev/null 2>&1 || :
    done
    # Noise in a container, or things that cannot work in one and would make it "degraded".
    for unit in getty.target console-getty.service getty@.service serial-getty@.service container-getty@.service \
        systemd-networkd.service systemd-networkd.socket systemd-networkd-wait-online.service systemd-resolved.service \
        systemd-timesyncd.service e2scrub_all.timer e2scrub_reap.service apt-daily.timer apt-daily-upgrade.timer \
        dpkg-db-backup.timer fstrim.timer man-db.timer motd-news.timer systemd-firstboot.service \
        systemd-udevd.service systemd-udev-trigger.service ldconfig.service systemd-homed.service; do
        ln -sfn /dev/null "$root/etc/systemd/system/$unit"
    done
    # A node gets its own of these; an empty machine-id would make each boot a "first boot".
    rm -f "$root/etc/hostname" "$root/var/lib/dbus/machine-id"
    : >"$root/etc/machine-id"
    : >"$root/etc/fstab"
    chroot "$root" /usr/bin/passwd -d root >/dev/null
}
