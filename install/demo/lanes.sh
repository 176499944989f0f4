# shellcheck shell=bash
# The lanes' scenes: a long write and a read beside it, the lane's death in the middle of that write, and a queue that grows.

WRITE=keyholder-lane-write.service
READ=keyholder-lane-read.service

# The shipped catalogs, and for mars two writes more: one that takes its time, one that is over at once.
demo_catalogs() { # DIR
    mkdir -p "$1"
    cp "$HERE"/catalogs/catalog_{mars,ai-core}.yaml "$1"
    cat >>"$1/catalog_mars.yaml" <<'YAML'

  demo.backup:
    mode: write
    description: takes 100 s, and must not run twice
    argv: [/usr/bin/sleep, "100"]
    timeout: 5m

  demo.note:
    mode: write
    description: leaves a file behind
    argv: [/usr/bin/touch, /var/lib/keyholder-lane/write/noted]
    idempotent: true
YAML
}

# What ai-core knows of a lane of a node by that lane's own word; nothing while it says nothing.
lane_says() { # NODE/WORKER JQ-PATH
    { on ai-core keyholder status "$1" --json || [ $? -eq 3 ]; } |
        jq -er ".outcome.status.workers[0].lane | $2" 2>/dev/null
}
lane_is() { [ "$(lane_says "$1" "$2")" = "$3" ]; } # NODE/WORKER JQ-PATH VALUE

# Gives a task to mars and waits for its end beside the story. Sets $given.
give() { # FILE ARG...
    "$LAB" --dir "$DIR" exec ai-core keyholder run "${@:2}" </dev/null >"$1" 2>&1 &
    given=$!
}
# The task that is in flight in mars's write lane.
in_flight() { lane_says mars/write '.in_flight[0].id'; }

told_lanes() {
    flow <<'LANES'

So much for keeping workers alive. The other half: what mars may be asked to do stands in its catalog, Redis on ai-core holds
the queues, and two of mars's workers take tasks from them: the lane 'write', strictly one after the other, and the lane
'read', several at a time and without any way to gain rights. Both are units like the others.
LANES
}

a_read_beside_a_long_write() {
    local took
    told_lanes
    scene "A read does not wait for a long write" <<'TEXT'
A write that takes 100 s is given to mars. While it runs somebody wants to know how much memory mars has. When both had
one lane, that took as long as the write. And that it worked is no proof of the way it went: mars's journal has to say so.
TEXT
    typed ai-core keyholder run mars demo.backup --why nightly
    give "$OUT/backup" mars demo.backup --why nightly
    backup=$given
    until_true "the write runs on mars, as ai-core sees it" lane_is mars/write '.in_flight[0].action' demo.backup
    backup_id=$(in_flight)
    typed ai-core keyholder run mars host.memory --prove
    on ai-core keyholder run mars host.memory --prove >"$OUT/read" 2>&1 || fail "the read is answered, and its way is proved: $(cat "$OUT/read")"
    quote <"$OUT/read"
    grep -q "^mars host.memory: ok, .*; read lane ($READ, " "$OUT/read" || fail "the read lane ran it"
    grep -q '^proved: the read lane ran it, once; the write lane was there and has nothing of it' "$OUT/read" || fail "it is proved"
    [ "$(in_flight)" = "$backup_id" ] || fail "the write still runs when the read is answered"
    took=$(sed -n 's/^mars host.memory: ok, exit code 0, \([^;]*\);.*/\1/p' "$OUT/read")
    typed ai-core keyholder status mars
    on ai-core keyholder status mars | sed -n '/WAITING/,$p' | quote
    result "the read took $(paint good "$took") beside a write of 100 s, in the read lane, by mars's own journal"
}

killed_in_a_write() {
    local code=0
    scene "The write lane is killed in the middle of that write" <<TEXT
systemd would restart the lane at once (Restart=always), mars's own supervisor would be next, and the neighbour third. For
this scene the first two stand back (Restart=no in a drop-in, repair_by: peer in fleet.yaml), so it is ai-core's turn.
The write must not run twice, so nobody may try it again. Another one is waiting behind it.
TEXT
    on mars sh -eu -c "
        mkdir -p /run/systemd/system/$WRITE.d
        printf '[Service]\nRestart=no\n' >/run/systemd/system/$WRITE.d/demo.conf
        systemctl daemon-reload"
    [ "$(show "$WRITE" Restart)" = no ] || fail "$WRITE has no Restart= for this scene"
    typed ai-core keyholder run mars demo.note
    give "$OUT/note" mars demo.note
    local note=$given
    until_true "the second write waits, as ai-core sees it" lane_is mars/write .waiting 1
    before write "$WRITE"
    typed mars systemctl kill -s KILL "$WRITE"
    on mars systemctl kill -s KILL "$WRITE"
    fell
    watching "the fall"
    follow_up
    returned "^ai-core: its watcher saw it dead" "the fall"
    wait "$backup" || code=$?
    source_is "what the one who asked for the backup is told"
    quote <"$OUT/backup"
    [ "$code" -eq 1 ] && grep -q '^mars demo.backup: interrupted' "$OUT/backup" || fail "the write is reported as interrupted (exit code $code)"
    wait "$note" || fail "the write that waited runs: $(cat "$OUT/note")"
    source_is "and the one who waited behind it"
    quote <"$OUT/note"
    [ "$(lane_of "$backup_id")" = inconclusive ] || fail "nobody claims that the backup was run to its end"
    result "the backup is $(paint good interrupted), not run a second time; what waited behind it ran"
    row "mars's write lane, killed in a write" "ai-core, by itself" "$(human "$first")" "$(human "$took")"
    on mars sh -eu -c "rm -r /run/systemd/system/$WRITE.d; systemctl daemon-reload"
}
# What mars's journal says of who ran a task.
lane_of() { # TASK
    { on ai-core keyholder prove "$1" --node mars --json || [ $? -eq 3 ]; } | jq -r .outcome.proof.verdict
}

a_queue_that_grows() {
    local reads length announced
    scene "The write lane is stopped, and its queue grows" <<'TEXT'
A lane that is down cannot say how long its queue is. So that question is not put to mars: ai-core's catalog has an action of
its own for it, which exists nowhere else, and so its name alone says which way it goes.
TEXT
    before write "$WRITE"
    typed mars systemctl stop "$WRITE"
    on mars systemctl stop "$WRITE"
    fell
    watching "the stop"
    follow '^mars/write is dead: .*no hold was declared for this stop; next repair in ' 'the stop announced with the time of its repair'
    announced=$first
    typed ai-core 'keyholder run mars demo.note --no-wait      # three times'
    for _ in 1 2 3; do on ai-core keyholder run mars demo.note --no-wait >/dev/null; done
    reads=$(lane_says mars/read .done)
    typed ai-core keyholder run ai-core queue.length_mars_peer --prove
    on ai-core keyholder run ai-core queue.length_mars_peer --prove >"$OUT/length" 2>&1 || fail "ai-core answers, and its way is proved: $(cat "$OUT/length")"
    quote <"$OUT/length"
    length=$(head -n 1 "$OUT/length")
    [ "$length" = 3 ] || fail "three tasks wait (ai-core says: $length)"
    [ "$(lane_says mars/read .done)" = "$reads" ] || fail "mars was not asked for it"
    typed ai-core keyholder run mars queue.length_mars_peer
    ! on ai-core keyholder run mars queue.length_mars_peer >"$OUT/refused" 2>&1 || fail "mars has no such action"
    quote <"$OUT/refused"
    grep -q "step\[0\]: unknown_action 'queue.length_mars_peer' on mars" "$OUT/refused" || fail "the wrong way stops at a refusal"
    order write
    follow_up
    wait "$order_pid" || fail "'keyholder relaunch mars/write' succeeds: $(cat "$OUT/said")"
    returned "^ai-core: the operator does not wait" "the order"
    until_true "the queue is worked off" lane_is mars/write '"\(.waiting) \(.done)"' "0 3"
    result "ai-core read $(paint good 3) waiting tasks without mars; after the relaunch they ran"
    row "mars's write lane, stopped (announced)" "the operator at ai-core" "$(human "$announced")" "$(human "$took") (*)"
}
