# shellcheck shell=bash
# The scenes. Each one: the state before, the blow, what ai-core sees, and the proof.

killed_and_repaired_at_home() {
    scene "A worker is killed" <<'TEXT'
web gets SIGKILL, and its unit has no Restart=, so systemd leaves it dead.
mars's own supervisor brings it back.
TEXT
    before web web.service
    typed mars systemctl kill -s KILL web.service
    on mars systemctl kill -s KILL web.service
    fell
    watching "the fall"
    follow_up
    returned "^its own supervisor" "the fall"
    row "web, killed" "mars itself" "$(human "$first")" "$(human "$took")"
}

killed_and_repaired_from_next_door() {
    scene "A worker is killed, and the neighbour brings it back" <<TEXT
agent gets SIGKILL. Its repair is left to the neighbour (repair_by: peer), so mars does nothing.
After $GRACE of grace ai-core orders the relaunch through mars's door, without being asked.
TEXT
    before agent agent.service
    typed mars systemctl kill -s KILL agent.service
    on mars systemctl kill -s KILL agent.service
    fell
    watching "the fall"
    follow_up
    returned "^ai-core: its watcher saw it dead" "the fall"
    row "agent, killed" "ai-core, by itself" "$(human "$first")" "$(human "$took")"
}

stopped_and_forgotten() {
    local limit due began
    scene "A worker is stopped, and forgotten" <<'TEXT'
Somebody stops agent and does not come back to it. Nobody fights an operator: it is announced at once, with the
time of its repair. The person at ai-core does not want to wait that long, and orders the relaunch from there.
TEXT
    before agent agent.service
    typed mars systemctl stop agent.service
    on mars systemctl stop agent.service
    fell
    watching "the stop"
    follow '^mars/agent is dead: .*no hold was declared for this stop; next repair in ' 'the stop announced with the time of its repair'
    local announced=$first
    due=$(reported agent due_in_ms)
    limit=$(records observed mars/agent | grep -m1 'no hold was declared' || :)
    [ "$due" -gt 60000 ] && [ -n "$limit" ] || fail "the stop is announced with the time of its repair (due in $due ms; '$limit')"
    source_is "mars's audit trail"
    quote <<<"$limit"
    breathe 2
    order agent
    follow_up
    wait "$order_pid" || fail "'keyholder relaunch mars/agent' succeeds: $(cat "$OUT/said")"
    source_is "the command's own words"
    quote <"$OUT/said"
    returned "^ai-core: the operator does not wait" "the order"
    row "agent, stopped and forgotten (announced)" "the operator at ai-core" "$(human "$announced")" "$(human "$took") (*)"
}

# A person's order at ai-core. The time counts from just before the command starts there. Sets $since and $order_pid.
order() { # WORKER
    local start
    start=$(lab root ai-core)/run/demo-start
    rm -f -- "$start"
    typed ai-core keyholder relaunch "mars/$1" --why '"the operator does not wait"'
    # shellcheck disable=SC2016
    "$LAB" --dir "$DIR" exec ai-core bash -c \
        'printf %s "${EPOCHREALTIME/[.,]/}" >/run/demo-start; exec keyholder relaunch "$1" --why "the operator does not wait"' \
        bash "mars/$1" </dev/null >"$OUT/said" 2>&1 &
    order_pid=$!
    until_true "the command starts on ai-core" test -s "$start"
    since=$(cat "$start")
    watching "the order"
}

start_limit() {
    local kills refused
    scene "A worker is driven into its start limit" <<'TEXT'
crawler has Restart=always, so after SIGKILL systemd itself restarts it, and keyholder leaves it to that.
It is killed again and again, until systemd has had enough and gives up for good. ai-core does not.
TEXT
    before crawler crawler.service
    typed mars 'systemctl kill -s KILL crawler.service      # and again, each time it is back'
    kills=$(on mars sh -eu -c '
        restarts() { systemctl show -P NRestarts crawler.service; }
        main() { systemctl show -P MainPID crawler.service; }
        kills=0
        while [ "$kills" -lt 20 ]; do
            pid=$(main) count=$(restarts) kills=$((kills + 1))
            systemctl kill -s KILL crawler.service
            until now=$(main) && [ "$now" != "$pid" ] && { [ "$now" != 0 ] || systemctl -q is-failed crawler.service; }; do :; done
            ! systemctl -q is-failed crawler.service && [ "$(restarts)" -gt "$count" ] || break
        done
        echo "$kills"')
    fell
    refused=$(on mars sh -c 'journalctl --sync; journalctl -o cat --no-pager -u crawler.service _PID=1' | grep -m 1 'repeated too quickly') ||
        fail "systemd gives up on crawler.service (it was killed $kills times)"
    source_is "systemd on mars, after $kills kills"
    quote <<<"$refused"
    watching "the last fall"
    follow_up
    returned "^ai-core: its watcher saw it dead" "the last fall"
    row "crawler, in its start limit" "ai-core, by itself" "$(human "$first")" "$(human "$took")"
}

supervisor_and_worker() {
    local restart level knock up took_door peer_seq told
    scene "Supervisor and worker are killed together" <<'TEXT'
keyholder on mars is killed in the same moment as web, and for this scene systemd may not restart it (Restart=no).
Nothing is left on mars that could act. But PID 1 still holds the door's socket, and ai-core comes knocking.
TEXT
    before web web.service
    level=$(on mars systemctl log-level)
    on mars sh -eu -c '
        mkdir -p /run/systemd/system/keyholder.service.d
        printf "[Service]\nRestart=no\n" >/run/systemd/system/keyholder.service.d/demo.conf
        systemctl daemon-reload
        systemctl log-level debug' # so that PID 1 itself says what woke it
    restart=$(show keyholder.service Restart)
    [ "$restart" = no ] || fail "keyholder.service has no Restart= for this scene (it has $restart)"
    local door=keyholder.service before_door
    before_door=$(show "$door" InvocationID)
    peer_seq=$(on ai-core keyholder audit -n 1 --json | jq '.outcome.audit[-1].seq')
    typed mars systemctl kill -s KILL keyholder.service web.service
    on mars systemctl kill -s KILL keyholder.service web.service
    fell
    watching "the fall of web"
    follow_up
    up=$(show "$door" ActiveEnterTimestampMonotonic) took_door=$((up - $(show "$door" ActiveExitTimestampMonotonic)))
    [ "$(show "$door" InvocationID)" != "$before_door" ] || fail "the supervisor on mars is a new run"
    knock=$(on mars sh -c 'journalctl --sync; journalctl -o cat --no-pager -b _PID=1 UNIT=keyholder.socket' | grep 'Incoming traffic' | tail -n 1) ||
        fail "PID 1 on mars says that a connection started keyholder.service"
    on mars systemctl log-level "$level"
    source_is "systemd on mars, as PID 1"
    quote <<<"$knock"
    source_is "ai-core's audit trail"
    told=$(heard "$peer_seq") || fail "ai-core notes that a new run of mars's supervisor answered it"
    quote <<<"$told"
    result "the supervisor answers $(paint good "$(human "$took_door")") after its fall, started by the knock"
    returned "^its own supervisor" "its fall"
    row "mars's supervisor, killed, without Restart=" "ai-core's knock" - "$(human "$took_door")"
    row "web, killed with it" "mars, once awake" "$(human "$first")" "$(human "$took")"
    on mars sh -eu -c 'rm -r /run/systemd/system/keyholder.service.d; systemctl daemon-reload'
}
# What ai-core's own audit trail says of mars's supervisor after record SEQ: the last word.
heard() { # SEQ
    on ai-core keyholder audit -n 200 --json |
        jq -er --argjson seq "$1" '[.outcome.audit[] | select(.seq > $seq and .event == "peer" and .subject == "mars")][-1].text'
}

stranger() {
    local pin refused runs
    scene "A stranger knocks" <<'TEXT'
Somebody on ai-core, with its address and a certificate in its name, but with another key, connects to mars's door.
TEXT
    seq=$(on mars keyholder audit -n 1 --json | jq '.outcome.audit[-1].seq')
    runs=$(on mars systemctl show -P InvocationID web agent crawler)
    typed ai-core 'openssl s_client -quiet -tls1_3 -connect 192.0.2.10:7433 -alpn keyholder/1 -cert stranger.pem -key stranger.key'
    pin=$(on ai-core sh -eu -c '
        cd /run
        openssl req -x509 -newkey ed25519 -nodes -subj /CN=ai-core -keyout stranger.key -out stranger.pem 2>/dev/null
        openssl pkey -in stranger.key -pubout -outform der | sha256sum | cut -c 1-64')
    on ai-core sh -c '
        cd /run
        echo relaunch mars/web | timeout 10 openssl s_client -quiet -tls1_3 -connect 192.0.2.10:7433 -alpn keyholder/1 \
            -cert stranger.pem -key stranger.key 2>stranger.log' >"$OUT/answered" || : # it has to fail
    until_true "mars has an audit line of the stranger's key sha256:$pin" refused_is_told "$pin"
    refused=$(records refused '' | grep -F "$pin")
    source_is "mars's audit trail"
    quote <<<"$refused"
    [ ! -s "$OUT/answered" ] || fail "the door answers a stranger with nothing (it answered: $(cat "$OUT/answered"))"
    [ "$(on mars systemctl show -P InvocationID web agent crawler)" = "$runs" ] || fail "no worker was touched"
    result "not one byte was answered ($(stat -c %s "$OUT/answered") received), and no worker was touched"
    row "(a stranger at mars's door)" "refused" - -
}
refused_is_told() { records refused '' | grep -qF "$1"; }

curtain() {
    printf '\n%s\n' "$(paint strong 'In the end')"
    typed ai-core keyholder status
    on ai-core env COLUMNS=$((COLUMNS - 8)) keyholder status | sed 's/^./       &/' # 0: all is well
    echo
    told_table
    echo
    flow <<TEXT | sed 's/^/   /'
Counted from the moment at which systemd saw the unit go down, or looper hung; (*) from the order: before that, a person
had to notice.
$scenes scenes in $((SECONDS - began)) s. How to do this with two real hosts: README.md, "Two hosts".
TEXT
}
