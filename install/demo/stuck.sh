# shellcheck shell=bash
# A loop that hangs while its process lives, and a rehearsal: what systemd alone does not see, and what is proved before it is needed.

# looper touches its sign of life a few times a second, until it finds the file `hang`; SIGUSR1 wakes it.
demo_looper() {
    on mars sh -eu -c '
        cat >/usr/local/bin/looper <<"LOOP"
#!/bin/bash
trap "rm -f /run/looper/hang" USR1
while :; do
    [ -e /run/looper/hang ] || touch /run/looper/beat
    sleep 0.2 & wait $!
done
LOOP
        chmod 755 /usr/local/bin/looper
        printf "%s\n" "[Service]" "ExecStart=/usr/local/bin/looper" "RuntimeDirectory=looper" \
            "[Install]" "WantedBy=multi-user.target" >/etc/systemd/system/looper.service
        systemctl daemon-reload
        systemctl enable -q --now looper'
}

a_loop_hangs() {
    local state took acts
    scene "A worker hangs" <<'TEXT'
looper's process lives, but its loop stands still: it no longer touches /run/looper/beat. systemd sees nothing of that.
fleet.yaml says how long the file may be silent, and what wakes the loop. A nudge is tried first; a restart would be next.
TEXT
    before looper looper.service
    typed mars 'touch /run/looper/hang      # looper sees it, and hangs'
    on mars touch /run/looper/hang
    since=$(now)
    watching "it hung"
    follow '^mars/looper is stuck: ' "mars/looper stuck"
    stuck_after=$first
    state=$(show looper.service ActiveState)
    [ "$state" = active ] || fail "systemd still calls looper active (it calls it $state)"
    follow_up
    first=$stuck_after took=$((at - since))
    [ "$(show looper.service InvocationID)" = "$run" ] || fail "looper was not restarted"
    mapfile -t acts < <(records acting mars/looper)
    [ ${#acts[@]} -eq 1 ] || fail "one thing is done about mars/looper (there were ${#acts[@]}: ${acts[*]})"
    [[ ${acts[0]} == "nudge: SIGUSR1 to looper.service: its own supervisor saw it stuck"* ]] || fail "it is a nudge (it was: ${acts[0]})"
    result "its loop goes on $(paint good "$(human "$took")") after it hung; systemd called it active all the time"
    result "mars's audit trail: \"${acts[0]}\""
    result "still invocation ${run:0:8}: it was woken, not restarted"
    row "looper, its loop hangs" "mars itself, by a nudge" "$(human "$first")" "$(human "$took")"
}

rehearsed() {
    local found repaired
    scene "A rehearsal" <<'TEXT'
A way back that was never walked is none. So looper is stopped on purpose, by an order through mars's door. mars leaves it
at that; its detector has to find it and ai-core has to repair it. If nobody came, mars would bring it back by itself.
The matrix says for every worker and every way to fall what sees it, what is done, and when that was last rehearsed.
TEXT
    typed ai-core keyholder drill mars/looper --class dead
    on ai-core keyholder drill mars/looper --class dead >"$OUT/drill" 2>&1 || fail "the rehearsal passes: $(cat "$OUT/drill")"
    quote <"$OUT/drill"
    [[ $(head -n 1 "$OUT/drill") =~ passed:\ found\ after\ (.*),\ well\ again\ by\ ai-core\ (.*)\ later ]] ||
        fail "ai-core repaired it: $(cat "$OUT/drill")"
    found=${BASH_REMATCH[1]} repaired=${BASH_REMATCH[2]}
    typed ai-core keyholder matrix mars/looper
    on ai-core env COLUMNS=$((COLUMNS - 8)) keyholder matrix mars/looper | sed '/^$/,$d' | tee "$OUT/matrix" | sed 's/^/       /'
    grep -q '^  dead .* ago$' "$OUT/matrix" || fail "the matrix knows of the rehearsal"
    grep -q '^  delivery-gap *UNHANDLED' "$OUT/matrix" || fail "the matrix says what nobody would see"
    result "the way back was walked: found after $(paint good "$found"), repaired by ai-core $repaired later"
}
