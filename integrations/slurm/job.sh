#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A job that uses the shared cache: `export LD_PRELOAD` is the only additional line. SLURM_JOB_ID names the job. No
# cache variable is needed: the library redirects ~/.triton/cache to the mount.
#SBATCH --job-name=train
#SBATCH --nodes=1
#SBATCH --gpus=8

export LD_PRELOAD=/usr/local/lib/libcacheshim.so

srun python train.py
