#!/bin/sh
# Bootstrap sessions on this host: sh session.sh VERB NAME [ARGUMENTS]. Fixed text; names and numbers alone are
# arguments, everything else comes through standard input or lies in the session's directory:
#
#   .reconciler/NAME/plan.sh      what to do            written whole, before the launch
#   .reconciler/NAME/files/N      files of the plan     written whole, before the launch
#   .reconciler/NAME/lock         held by the runner for as long as it lives
#   .reconciler/NAME/gate         held while a launch is being decided
#   .reconciler/NAME/launched     a runner began; there is never a second one
#   .reconciler/NAME/events       what was begun, what ended and how
#   .reconciler/NAME/out          what the commands wrote, up to the plan's limit
#   .reconciler/NAME/joined       when the node was first seen as joined
#   .reconciler/NAME/cancelled    no runner may begin from now on
#
# Every process of a session carries RECONCILER_SESSION=NAME; that is how they are found.
set -u
umask 077
verb=$1
name=$2
self=$0
dir=$(pwd)/.reconciler/$name

case $name in
'' | *[!a-z0-9-]*) echo "not a session name" >&2; exit 64 ;;
esac

# Whether the runner lives. A look takes the lock for a moment, so whoever wants it must try more than once.
held() {
    [ -e "$dir/lock" ] && ! flock -n -s "$dir/lock" true
}

standing() {
    if held; then
        echo running
    elif [ -e "$dir/cancelled" ]; then
        echo cancelled
    elif [ -e "$dir/launched" ]; then
        echo ended
    else
        echo absent
    fi
}

size() {
    if [ -e "$1" ]; then wc -c <"$1" | tr -d ' '; else echo 0; fi
}

# From here on standard output is a reply; whatever a login shell said before this line is not.
reply() {
    echo "reconciler-reply-1"
}

event() {
    echo "$(date +%s) $*" >>"$dir/events"
}

# put PART SIZE: standard input becomes a part of the session, if all of it arrives.
put() {
    mkdir -p "$dir/files"
    cat >"$dir/new.$$"
    if [ "$(size "$dir/new.$$")" = "$2" ]; then
        mv -f "$dir/new.$$" "$dir/$1"
        reply
    else
        rm -f "$dir/new.$$"
        echo "cut off on the way" >&2
        exit 65
    fi
}

# Reads the environment for the plan's commands; its last line proves that all of it arrived.
take_environment() {
    given=$(cat)
    case $given in
    *": environment complete") ;;
    *) echo "cut off on the way" >&2; exit 65 ;;
    esac
}

# launch: the environment is on standard input.
launch() {
    take_environment
    mkdir -p "$dir"
    exec 8>>"$dir/gate"
    flock 8
    if [ ! -e "$dir/launched" ] && [ ! -e "$dir/cancelled" ] && [ -e "$dir/plan.sh" ]; then
        exec 9>>"$dir/lock"
        until flock -n 9; do
            if [ -e "$dir/launched" ]; then break; fi
            sleep 0.1
        done
        if [ ! -e "$dir/launched" ]; then
            RECONCILER_SESSION=$name
            export RECONCILER_SESSION
            # Through a pipe: a secret must not touch the disk, and is in nobody's environment but its users'.
            printf '%s\n' "$given" | setsid /bin/sh "$self" runner "$name" >/dev/null 2>&1 8>&- &
        fi
        exec 9>&-
    fi
    # The runner holds the lock already; it only has to say so, and then the gate may open again.
    tries=0
    while [ ! -e "$dir/launched" ] && [ ! -e "$dir/cancelled" ] && held && [ "$tries" -lt 50 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    sweep
    reply
    standing
}

# What the runner does with one part of the plan: KIND N. Ends the session if that fails.
part() {
    if [ -e "$dir/cancelled" ]; then exit 0; fi
    event begin "$1" "$2"
    (
        exec 7>&- 9>&-
        cd "$dir/work" && eval "$given" && "$1_$2"
    ) </dev/null >&7 2>&7
    code=$?
    event end "$1" "$2" "$code"
    if [ "$code" -ne 0 ]; then
        event over failed
        exit 0
    fi
}

# runner: the one process that carries a session. Descriptor 9 is the lock; the environment is on standard input.
runner() {
    take_environment
    exec </dev/null
    date +%s >"$dir/launched.new"
    echo $$ >"$dir/pid"
    mv -f "$dir/launched.new" "$dir/launched"
    if [ -e "$dir/cancelled" ]; then exit 0; fi
    mkdir -p "$dir/work"
    . "$dir/plan.sh"
    mkfifo "$dir/pipe"
    # Reads for as long as anybody can write, so that no program ever waits for its output to be taken.
    (
        exec 9>&-
        # The system itself ends this cat at the limit; unlike head or dd it writes at once what it has read.
        if ! (ulimit -c 0; ulimit -f "$output_blocks"; exec cat >"$dir/out") 2>/dev/null; then
            printf '\n[what follows was dropped: the output reached its limit]\n' >>"$dir/out"
        fi
        exec cat >/dev/null
    ) <"$dir/pipe" &
    exec 7>"$dir/pipe"
    rm -f "$dir/pipe"
    n=0
    while [ "$n" -lt "$files" ]; do part file "$n"; n=$((n + 1)); done
    n=0
    while [ "$n" -lt "$steps" ]; do part step "$n"; n=$((n + 1)); done
    n=0
    while [ "$n" -lt "$verifications" ]; do part verify "$n"; n=$((n + 1)); done
    if [ "$programs" -eq 0 ]; then
        event over done
        exit 0
    fi
    if [ -e "$dir/cancelled" ]; then exit 0; fi
    (
        exec 7>&- 9>&-
        cd "$dir/work" && eval "$given" && program_0
    ) </dev/null >&7 2>&7 &
    program=$!
    exec 7>&-
    event started program "$program"
    wait "$program"
    code=$?
    event end program 0 "$code"
    event over exited
}

# look EVENTS OUTPUT LIMIT EVENTS_LIMIT MODE: a header in lines, an empty line, then the bytes it announces.
look() {
    stands=$(standing)
    joined=$(cat "$dir/joined" 2>/dev/null)
    events=$(size "$dir/events")
    output=$(size "$dir/out")
    from=$2
    events_len=$((events - $1))
    if [ "$events_len" -lt 0 ]; then events_len=0; fi
    if [ "$events_len" -gt "$4" ]; then events_len=$4; fi
    output_len=$((output - from))
    if [ "$output_len" -lt 0 ]; then output_len=0; fi
    if [ "$output_len" -gt "$3" ]; then
        if [ "$5" = tail ]; then from=$((output - $3)); fi
        output_len=$3
    fi
    reply
    printf '%s\n' "standing $stands" "joined $joined" "events $events_len" "at $from" "size $output" \
        "output $output_len" ""
    if [ "$events_len" -gt 0 ]; then tail -c "+$(($1 + 1))" "$dir/events" | head -c "$events_len"; fi
    if [ "$output_len" -gt 0 ]; then tail -c "+$((from + 1))" "$dir/out" | head -c "$output_len"; fi
}

joined() {
    if [ ! -e "$dir/joined" ]; then
        date +%s >"$dir/joined.$$"
        # The first one stands.
        ln "$dir/joined.$$" "$dir/joined" 2>/dev/null
        rm -f "$dir/joined.$$"
    fi
    reply
    cat "$dir/joined"
}

# The processes of the session: those that carry its mark and, while its runner is known to live, those of the
# runner's own session, whatever they did with their environment. A zombie is none.
members() {
    for file in $(grep -ls "RECONCILER_SESSION=$name" /proc/[0-9]*/environ 2>/dev/null); do
        pid=${file#/proc/}
        echo "${pid%/environ}"
    done
    if [ -n "$sid" ]; then
        for file in /proc/[0-9]*/stat; do
            fields=$(sed 's/^.*) //' "$file" 2>/dev/null) || continue
            # state, parent, group, session
            set -- $fields
            if [ $# -gt 4 ] && [ "$4" = "$sid" ] && [ "$1" != Z ]; then
                pid=${file#/proc/}
                echo "${pid%/stat}"
            fi
        done
    fi
}

# Whether nothing of the session in directory $1 can go on: no runner is left, and it was cancelled or had a program.
over() {
    if [ -e "$1/lock" ] && ! flock -n -s "$1/lock" true; then return 1; fi
    [ -e "$1/cancelled" ] || { [ -e "$1/launched" ] && grep -qs '^programs=1$' "$1/plan.sh"; }
}

# Whether processes of the session in directory $1 outlived its runner; what they work on is theirs.
survived() {
    grep -qs "RECONCILER_SESSION=${1##*/}" /proc/[0-9]*/environ
}

# A machine that sees thousands of attempts must not fill up with them: of the sessions that are over the latest eight
# keep what they left, and the marks of those that were cancelled stay for a week. Looks at the marks alone: below
# `work` lies what is the nodes' own, whatever they call it.
sweep() {
    kept=0
    ls -t .reconciler/*/launched 2>/dev/null | while read -r mark; do
        old=${mark%/launched}
        [ -e "$old/out" ] || [ -e "$old/work" ] || continue
        if [ "$old" = ".reconciler/$name" ] || ! over "$old"; then continue; fi
        kept=$((kept + 1))
        if [ "$kept" -gt 8 ] && ! survived "$old"; then
            rm -rf "$old/work" "$old/files" "$old/out" "$old/events"
        fi
    done
    find .reconciler -mindepth 2 -maxdepth 2 -type f -name cancelled -mtime +7 2>/dev/null | while read -r mark; do
        old=${mark%/cancelled}
        if [ "$old" = ".reconciler/$name" ] || ! over "$old" || survived "$old"; then continue; fi
        rm -rf "$old"
    done
}

# cancel TENTHS: SIGTERM to all, SIGKILL after so many tenths of a second.
cancel() {
    mkdir -p "$dir"
    # In a shell of its own, which is what ends where nothing can be written: the processes end all the same.
    (: >"$dir/cancelled")
    sid=
    # The runner was alive when its number was read, so its session cannot be anybody else's.
    if [ -e "$dir/pid" ] && held; then sid=$(cat "$dir/pid"); fi
    tick=0
    while :; do
        pids=$(members | sort -u)
        if [ -z "$pids" ] && ! held; then break; fi
        if [ "$tick" -eq 0 ]; then
            kill -TERM $pids 2>/dev/null
        elif [ "$tick" -ge "$1" ]; then
            kill -KILL $pids 2>/dev/null
        fi
        if [ "$tick" -ge $(($1 + 50)) ]; then
            reply
            echo left $pids
            exit 0
        fi
        sleep 0.1
        tick=$((tick + 1))
    done
    # Either mark keeps a late launch from starting anything.
    if [ ! -e "$dir/cancelled" ] && [ ! -e "$dir/launched" ]; then exit 1; fi
    rm -rf "$dir/work" "$dir/files" "$dir/plan.sh"
    reply
    echo clean
}

for tool in flock setsid; do
    if ! command -v "$tool" >/dev/null; then
        echo "this host has no $tool; install util-linux" >&2
        exit 69
    fi
done
if [ ! -r /proc/self/environ ]; then
    echo "this host has no /proc; sessions need Linux" >&2
    exit 69
fi
shift 2
case $verb in
put | launch | runner | look | joined | cancel) "$verb" "$@" ;;
*) echo "not a verb" >&2; exit 64 ;;
esac
