#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# For slurm.conf's Epilog, which runs as root on every node of a SLURM job: ends the cacheshim job of the same id on
# this node. After a success, the daemon publishes the job's remaining entries and files, and removes the layer;
# otherwise it publishes nothing more and keeps the layer. Without this script, a cacheshim job ends ten minutes after
# its last process.
#
# SLURM does not tell an epilog how the job ended: SLURM_JOB_EXIT_CODE is also 0 after scancel and after a time limit,
# and SLURM reports the state COMPLETING until all epilogs of the job have returned. Therefore
#   1. If the job has a nonzero exit code, or SLURM has requeued it, this script ends the cacheshim job before
#      returning: the next attempt has the same job id and must not begin with the files of this attempt.
#   2. Any other job is ended by a process that outlives this script and waits for the job's final state. Only COMPLETED
#      counts as a success: any other state is a failure, and so is a state that SLURM does not report in time.
#
# An epilog must neither fail nor hang, because SLURM would drain the node. So every step has a time limit. The limit
# holds even if SIGKILL cannot end the step's process, because that process waits for a daemon that hangs.

export PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}  # slurmd may set no PATH
readonly mount=/ci-cache
readonly program=/usr/local/bin/cacheshim
readonly squeue=squeue         # replace with its path if it is not in PATH
readonly final_state_wait=300  # seconds; a large job's last epilog may take minutes
readonly job=$SLURM_JOB_ID
# The id of the cacheshim job: SLURM's job id or, if the user did not get the cacheshim job of this id, uid-<uid>.<id>.
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

# Prints the attempt (cycle) of the cacheshim job $id if the job is active and belongs to the SLURM job's user, or to
# several users or none; otherwise prints nothing.
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

# Sets `state` and `restarts` to the values that SLURM reports for this job, or to '' if SLURM reports none. squeue also
# lists the other tasks if the job's id is the first id of an array.
ask_slurm() {
    local found_job found_state found_restarts
    state='' restarts=''
    while read -r -t 15 found_job found_state found_restarts; do
        if [ "$found_job" = "$job" ]; then state=$found_state restarts=$found_restarts; fi
    done < <(exec timeout -k 1 10 "$squeue" --noheader --states=all --jobs="$job" \
        --Format=JobID:24,State:32,RestartCnt:16 2> /dev/null)
}

# `--cycle` ends only this attempt, even if another attempt with the same job id has begun in the meantime.
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
    set -m  # gives the new process its own process group: slurmd kills the epilog's group once the epilog has returned
    "${BASH_SOURCE[0]}" --final-state "$cycle" "$id" < /dev/null > /dev/null 2>&1 &
fi
exit 0
