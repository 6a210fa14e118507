#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# For images whose programs cannot use the preloaded library (musl, static programs): binds this job's own view at
# /ci-cache in the container, and sets the cache's own variable.
#SBATCH --job-name=train
#SBATCH --nodes=1
#SBATCH --gpus=8

cacheshim job start "$SLURM_JOB_ID"

srun --container-image=./train.sqsh \
    --container-mounts="/ci-cache/.jobs/$SLURM_JOB_ID:/ci-cache" \
    env TRITON_CACHE_DIR=/ci-cache/triton python train.py
