#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A job that compiles through the shared cache: one line more than before. The job's name is
# SLURM_JOB_ID; no cache variable is needed, ~/.triton/cache goes to the mount.
#SBATCH --job-name=train
#SBATCH --nodes=1
#SBATCH --gpus=8

export LD_PRELOAD=/usr/local/lib/libcacheshim.so

srun python train.py
