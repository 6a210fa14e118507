#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# For slurm.conf's Epilog (runs as root on every node of a job): ends the job here, so that what is
# complete is published now and its layer is cleared. Without it a job ends ten minutes after its last
# process. An epilog must not fail: that would drain the node.

outcome=--success
if [ "${SLURM_JOB_EXIT_CODE:-0}" != 0 ]; then outcome=--failure; fi
timeout 60 /usr/local/bin/cacheshim job end "$SLURM_JOB_ID" "$outcome" --mount /ci-cache ||
    logger -t cacheshim "job end $SLURM_JOB_ID failed"
exit 0
