#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# For slurm.conf's Epilog (runs as root on every node of a job): ends the job here. After a success, what is
# complete is published and the layer is removed; otherwise nothing more is published and the layer is kept.
# Without it a job ends ten minutes after its last process.
#
# SLURM does not tell an epilog how its job ended: SLURM_JOB_EXIT_CODE is 0 after scancel and a time limit too,
# and until all epilogs of the job have returned, SLURM gives its state as COMPLETING. Therefore
#   1. a job that has plainly failed, and one that SLURM has requeued, is ended before this script returns: the
#      next attempt has the same job id and must not begin with this one's files;
#   2. any other is ended by a process that outlives this script and waits for the job's final state. Only
#      COMPLETED counts as a success. Any other state does not, nor does one that SLURM does not tell in time.
#
# An epilog must neither fail nor hang: that would drain the node. So every step has a time limit, also where
# SIGKILL does not end a process: one that waits for the answer of a daemon that hangs.

export PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}  # slurmd may give none
readonly mount=/ci-cache
readonly program=/usr/local/bin/cacheshim
readonly squeue=squeue         # with its path where bash does not find it
readonly final_state_wait=300  # seconds; a large job's last epilog may take minutes
readonly job=$SLURM_JOB_ID
# The id of the job's cacheshim job. If another user has used SLURM's id first, it is the user's own.
id=$job

# Like timeout(1), but also returns if the process cannot be killed.
bounded() { # SECONDS COMMAND…
    local seconds=$1 child step
    shift
    timeout -k 1 "$seconds" "$@" < /dev/null > /dev/null 2>&1 &
    child=$!
    for ((step = 0; step < 10 * (seconds + 2); step++)); do
        if ! kill -0 "$child" 2> /dev/null; then
            wait "$child"
            return
        fi
        sleep 0.1
    done
    return 124
}

# The attempt of the job $id that the daemon knows as active; empty where this user has not used the cache in it.
active_cycle() {
    local line cycle='' state='' user=''
    while IFS= read -r -t 5 line; do
        case $line in
            *'"cycle": '*) cycle=$line ;;
            *'"state": "active"'*) state=active ;;
            *'"uid": '*) user=${line#*: } ;;
            *'"shared_uids": true'*) user=null ;;
        esac
    done < <(exec cat "$mount/.cacheshim/jobs/$id" 2> /dev/null)
    cycle=${cycle#*: \"}
    user=${user%,}
    if [ -z "$state" ]; then return; fi
    if [ "$user" = null ] || [ "$user" = "${SLURM_JOB_UID:-$user}" ]; then printf '%s' "${cycle%\"*}"; fi
}

# Sets `state` and `restarts` to what SLURM says of this very job (an array's first id stands for all of its
# tasks), or to nothing.
ask_slurm() {
    local found_job found_state found_restarts
    state='' restarts=''
    while read -r -t 15 found_job found_state found_restarts; do
        if [ "$found_job" = "$job" ]; then state=$found_state restarts=$found_restarts; fi
    done < <(exec timeout -k 1 10 "$squeue" --noheader --states=all --jobs="$job" \
        --Format=JobID:24,State:32,RestartCnt:16 2> /dev/null)
}

# `--cycle`: ends no other attempt, even if the job id has been used again meanwhile.
end_job() { # --success | --failure
    bounded 60 "$program" job end "$id" "$1" --cycle "$cycle" --mount "$mount" ||
        logger -t cacheshim "epilog: cannot end job $id, attempt $cycle; it ends when it has been idle"
}

end_by_final_state() {
    local deadline=$((SECONDS + final_state_wait)) state restarts
    ask_slurm
    while [ -z "$state" ] || [ "$state" = COMPLETING ]; do
        if [ "$SECONDS" -ge "$deadline" ]; then break; fi
        sleep 0.5
        ask_slurm
    done
    if [ "$state" = COMPLETED ]; then end_job --success; else end_job --failure; fi
}

was_requeued() {
    local state restarts
    ask_slurm
    [[ $restarts =~ ^[0-9]+$ && $cycle =~ ^[0-9]+$ && $restarts -gt $cycle ]]
}

if [ "${1:-}" = --final-state ]; then
    cycle=$2 id=$3
    end_by_final_state
    exit 0
fi
cycle=$(active_cycle)
if [ -z "$cycle" ]; then
    id=uid-${SLURM_JOB_UID:-}.$job
    cycle=$(active_cycle)
fi
if [ -z "$cycle" ]; then exit 0; fi
if [ "${SLURM_JOB_EXIT_CODE:-0}" != 0 ] || was_requeued; then
    end_job --failure
else
    set -m  # a process group of its own from the start: slurmd kills that of the epilog when it has returned
    "${BASH_SOURCE[0]}" --final-state "$cycle" "$id" < /dev/null > /dev/null 2>&1 &
fi
exit 0
