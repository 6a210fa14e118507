#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# For slurm.conf's Prolog (runs as root on every node of a job, before the job's first process): starts the job here
# for its user, so that no other user can use the job's id first. Without it, a job belongs to the first user who uses
# its id, and on a node where SLURM has no cgroups any user can do that. The job's user then still gets a job of his
# own, under another id.
#
# A prolog must neither fail nor hang: that would drain the node. So every step has a time limit, also where SIGKILL
# does not end a process: one that waits for the answer of a daemon that hangs.

export PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}  # slurmd may give none
readonly mount=/ci-cache
readonly program=/usr/local/bin/cacheshim
readonly squeue=squeue         # with its path where bash does not find it
readonly job=$SLURM_JOB_ID user=${SLURM_JOB_UID:-}

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

# Prints how often SLURM has restarted the job; nothing if SLURM does not tell. The environment of a prolog may lack it.
restarts() {
    local found_job found_restarts
    if [ -n "${SLURM_RESTART_COUNT:-}" ]; then
        printf '%s' "$SLURM_RESTART_COUNT"
        return
    fi
    while read -r -t 15 found_job found_restarts; do
        if [ "$found_job" = "$job" ]; then printf '%s' "$found_restarts"; fi
    done < <(exec timeout -k 1 10 "$squeue" --noheader --states=all --jobs="$job" \
        --Format=JobID:24,RestartCnt:16 2> /dev/null)
}

# The daemon keeps the attempts of a job apart by this number. Without it, the job's first process starts the job.
count=$(restarts)
if [[ $count =~ ^[0-9]+$ ]] && [ -n "$user" ]; then
    SLURM_RESTART_COUNT=$count CACHESHIM_CYCLE='' \
        bounded 20 "$program" job start "$job" --uid "$user" --mount "$mount" ||
        logger -t cacheshim "prolog: cannot start job $job for uid $user; its first process does"
fi
exit 0
