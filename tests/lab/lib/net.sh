# shellcheck shell=bash
# A bridge in a namespace of its own (kh-ID; 192.0.2.1, 2001:db8::1), a namespace and a veth pair per node: pNN on the
# bridge, eth0 in the node. The host's own network is not touched. 192.0.2.0/24 and 2001:db8::/32 are for documentation.
#
# A node's namespace is made anew at each boot, in its runner's mount namespace: with a namespace that outlives the power,
# the kernel would answer pings for a host that is off, and repeat the FINs of a former life when it is on again.

net_number() { # NODE -> last number of its address
    case $1 in
        mars) echo 10 ;;
        venus) echo 20 ;;
        luna) echo 30 ;;
        ai-core) echo 40 ;;
        *)
            local n=50
            while grep -qsx "$n" "$DIR"/*/number; do n=$((n + 1)); done
            [ "$n" -lt 255 ] || die "no address is left"
            echo "$n"
            ;;
    esac
}

net_bridge() {
    [ ! -e "/run/netns/$NETNS" ] || return 0
    ip netns add "$NETNS"
    ip -n "$NETNS" link set lo up
    ip -n "$NETNS" link add br0 type bridge mcast_snooping 0 forward_delay 0
    ip -n "$NETNS" link set br0 up
    ip -n "$NETNS" addr add 192.0.2.1/24 dev br0
    ip -n "$NETNS" addr add 2001:db8::1/64 dev br0 nodad 2>/dev/null || say "no IPv6 on this host"
}

net_off() { # NODE (in the runner)
    ip -n "$NETNS" link del "p$(cat "$DIR/$1/number")" 2>/dev/null || : # at once; the namespace dies when it likes
    ! mountpoint -q "$DIR/$1/netns" || umount "$DIR/$1/netns"
}

net_on() { # NODE (in the runner)
    local n file=$DIR/$1/netns
    net_off "$1"
    n=$(cat "$DIR/$1/number")
    : >"$file"
    unshare --net="$file" true
    nsenter --net="$file" ip link set lo up
    nsenter --net="$file" ip link add eth0 address "02:00:00:00:00:$(printf %02x "$n")" type veth peer name "p$n" netns "$NETNS"
    nsenter --net="$file" ip link set eth0 up
    nsenter --net="$file" ip addr add "192.0.2.$n/24" dev eth0
    nsenter --net="$file" ip addr add "2001:db8::$n/64" dev eth0 nodad 2>/dev/null || :
    ip -n "$NETNS" link set "p$n" master br0
    [ -e "$DIR/$1/unplugged" ] || ip -n "$NETNS" link set "p$n" up
}

net_hosts() { # the text of /etc/hosts, the same in every node
    local n number
    printf '%s\n' '127.0.0.1 localhost' '::1 localhost ip6-localhost ip6-loopback' '192.0.2.1 lab-host'
    for n in $(nodes); do
        number=$(cat "$DIR/$n/number")
        printf '192.0.2.%s %s\n2001:db8::%s %s-v6\n' "$number" "$n" "$number" "$n"
    done
}

# The bridge's end of the cable, so that the node sees its carrier go. It stays unplugged over a reboot.
net_port() { ip -n "$NETNS" link set "p$(cat "$DIR/$1/number")" "$2"; } # NODE up|down
node_unplug() {
    : >"$DIR/$1/unplugged"
    node_off "$1" || net_port "$1" down
}
node_plug() {
    rm -f "$DIR/$1/unplugged"
    node_off "$1" || net_port "$1" up
}

node_loss() { # NODE in|out [PERCENT]
    local percent=${3:-100}
    [[ ${2-} =~ ^(in|out)$ ]] || die "loss: lab loss NODE in|out [PERCENT]"
    [[ $percent =~ ^([1-9][0-9]?|100)$ ]] || die "loss: '$percent' is not 1 to 100 percent"
    echo "$percent" >"$DIR/$1/loss.$2"
    net_loss
}
node_heal() {
    rm -f "$DIR/$1/loss.in" "$DIR/$1/loss.out"
    net_loss
}

# One-way loss on the bridge, out of the node's sight: its ARP and ND are lost as well. Built anew from what is recorded.
net_loss() {
    local n number way percent rules=
    for n in $(nodes); do
        number=$(cat "$DIR/$n/number")
        for way in in out; do
            percent=$(cat "$DIR/$n/loss.$way" 2>/dev/null) || continue
            case $way in in) rules+="oifname p$number" ;; out) rules+="iifname p$number" ;; esac
            [ "$percent" -eq 100 ] || rules+=" numgen random mod 100 < $percent"
            rules+=$' drop\n'
        done
    done
    ip netns exec "$NETNS" nft -f - <<RULES
table bridge lab {}
delete table bridge lab
table bridge lab {
    chain loss { $rules }
    chain forward { type filter hook forward priority 0; jump loss; }
    chain input { type filter hook input priority 0; jump loss; }
    chain output { type filter hook output priority 0; jump loss; }
}
RULES
}

net_down() {
    [ ! -e "/run/netns/$NETNS" ] || ip netns del "$NETNS"
}
