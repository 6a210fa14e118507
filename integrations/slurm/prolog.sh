#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# For slurm.conf's Prolog, which runs as root on every node of a SLURM job before the job's first process: starts the
# cacheshim job of the same id for the job's user on this node, so that no other user can use the id first. With a
# remote tier, also fetches the entries that the user's last job of this name has used (docs/remote.md). Without this
# script, the id belongs to the first user who uses it. On a node where SLURM has no cgroups, that can be any user. The
# SLURM job's user then still gets a separate cacheshim job, under another id.
#
# A prolog must neither fail nor hang, because SLURM would drain the node. So every step has a time limit. The limit
# holds even if SIGKILL cannot end the step's process, because that process waits for a daemon that hangs.

export PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}  # slurmd may set no PATH
readonly mount=/ci-cache
readonly program=/usr/local/bin/cacheshim
readonly squeue=squeue         # replace with its path if it is not in PATH
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

# Sets `restarts` to the number of times that SLURM has restarted the job, and `name` to the job's name. Leaves both
# unchanged if SLURM does not report the job.
ask_slurm() {
    local found_job found_restarts found_name
    while read -r -t 15 found_job found_restarts found_name; do
        if [ "$found_job" = "$job" ]; then restarts=$found_restarts name=$found_name; fi
    done < <(exec timeout -k 1 10 "$squeue" --noheader --states=all --jobs="$job" \
        --Format=JobID:24,RestartCnt:16,Name:256 2> /dev/null)
}

# The daemon distinguishes the attempts of a job by their number. Without the number, this script starts no job: the
# job's first process does.
restarts=${SLURM_RESTART_COUNT:-} name=${SLURM_JOB_NAME:-}
if [ -z "$restarts" ] || [ -z "$name" ]; then ask_slurm; fi
name=${name//[^[:print:]]/_}

start_job() { # [OPTION…]
    SLURM_RESTART_COUNT=$restarts CACHESHIM_CYCLE='' \
        bounded 20 "$program" job start "$job" --uid "$user" --mount "$mount" "$@"
}

if [[ $restarts =~ ^[0-9]+$ ]] && [ -n "$user" ]; then
    if ! start_job; then
        logger -t cacheshim "prolog: cannot start job $job for uid $user; its first process does"
    elif [ -n "$name" ]; then
        start_job --prefetch="${name:0:255}" ||
            logger -t cacheshim "prolog: the entries of job $job have not all arrived; it fetches the others itself"
    fi
fi
exit 0
