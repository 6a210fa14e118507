#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# For images whose programs cannot be preloaded (musl, static): bind this job's own view in as
# /ci-cache, and name the cache by its variable.
#SBATCH --job-name=train
#SBATCH --nodes=1
#SBATCH --gpus=8

cacheshim job start "$SLURM_JOB_ID"

srun --container-image=./train.sqsh \
    --container-mounts="/ci-cache/.jobs/$SLURM_JOB_ID:/ci-cache" \
    env TRITON_CACHE_DIR=/ci-cache/triton python train.py
