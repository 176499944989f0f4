# shellcheck shell=bash
# How the story looks: colour only on a terminal, and time to read only where somebody reads.

colour=no
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then colour=yes; fi
COLUMNS=$( (tput cols) 2>/dev/null) || COLUMNS=80
narrow=no
if [ "$COLUMNS" -lt 110 ]; then
    # What nobody looks at right now gets the status table with its last column.
    if [ -t 1 ]; then narrow=yes; else COLUMNS=110; fi
fi
[ "$COLUMNS" -ge 60 ] || COLUMNS=60
export COLUMNS

paint() { # good|bad|faint|strong TEXT
    local code
    case $1 in good) code=32 ;; bad) code='1;31' ;; faint) code=2 ;; strong) code=1 ;; esac
    if [ "$colour" = yes ]; then printf '\e[%sm%s\e[0m' "$code" "$2"; else printf %s "$2"; fi
}
breathe() { [ ! -t 1 ] || sleep "$1"; }

# Microseconds for a person, as keyholder itself writes them.
human() {
    local us=$1
    if [ "$us" -lt 10000 ]; then
        printf '%d.%d ms' $((us / 1000)) $((us % 1000 / 100))
    elif [ "$us" -lt 1000000 ]; then
        printf '%d ms' $(((us + 500) / 1000))
    else
        printf '%d.%d s' $((us / 1000000)) $((us % 1000000 / 100000))
    fi
}

# Sentences on stdin, broken where a narrow terminal ends, each paragraph for itself.
flow() { if [ "$narrow" = yes ]; then fmt -w $((COLUMNS - 4)) | sed 's/\([.:!?]\)  /\1 /g'; else cat; fi; }
# A line, broken so that it goes on under column N.
hang() { # N TEXT
    if [ "$narrow" = no ]; then printf '%s' "$2"; return; fi
    printf '%s\n' "$2" | fold -s -w $((COLUMNS - $1)) | sed "s/ *$//; 2,\$s/^/$(printf "%$1s" '')/"
}

scenes=0
scene() { # TITLE, and on stdin what happens
    scenes=$((scenes + 1))
    printf '\n%s\n' "$(paint strong "$scenes. $1")"
    flow | sed 's/^/   /'
    echo
    breathe 2
}
typed() { printf '   %s\n' "$(paint strong "$1 # ${*:2}")"; } # NODE COMMAND...: as if at its prompt
quote() { fold -s -w $((COLUMNS - 8)) | sed 's/^/       /; s/ *$//'; }
source_is() { printf '   %s\n' "$(paint faint "$*:")"; } # where the quote below was read
watching() { source_is "ai-core sees (time since $1)"; }
seen() { # MICROSECONDS LINE
    local tone=faint
    case $2 in *' is healthy'*) tone=good ;; *' is dead'*) tone=bad ;; esac
    printf '   %10s  %s\n' "+$(human "$1")" "$(paint "$tone" "$(hang 15 "$2")")"
}
result() { printf '   %s %s\n' "$(paint good '=>')" "$(hang 6 "$*")"; }

rows=()
row() { rows+=("$1|$2|$3|$4"); } # WHAT FELL | WHO ACTED | SEEN AFTER | RUNS AFTER

told_table() {
    local row
    told_row 'what fell' 'who brought it back' 'seen after' 'runs after'
    for row in "${rows[@]}"; do
        IFS='|' read -r -a row <<<"$row"
        told_row "${row[@]}"
    done
}
# A narrow terminal has the second column in a line of its own.
told_row() {
    if [ "$narrow" = yes ]; then
        printf '   %-44s %10s %11s\n      %s\n' "$1" "$3" "$4" "$2"
    else
        printf '   %-44s %-30s %10s %11s\n' "$@"
    fi
}

told_kept() {
    cat <<KEPT

demo: the nodes stay up. To look around:
    lab='sudo $LAB --dir $DIR'
    \$lab exec -i ai-core            # a shell there; in it for example: keyholder status --watch
    \$lab exec -i mars               # in it for example: systemctl kill -s KILL web.service
    \$lab --help                     # power cuts, unplugged cables, lost packets
To remove them:
    \$lab down
KEPT
}
