#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The same in a container (enroot with pyxis): the mount is bound in, and LD_PRELOAD is set inside, where
# the library is. The library needs nothing but the container's own libc (glibc). With the run directory,
# /run/cacheshim, it reads what the base has directly; without it, every read goes through the mount.
#SBATCH --job-name=train
#SBATCH --nodes=1
#SBATCH --gpus=8

readonly library=/usr/local/lib/libcacheshim.so

srun --container-image=./train.sqsh \
    --container-mounts="/ci-cache:/ci-cache,/run/cacheshim:/run/cacheshim,$library:$library:ro" \
    env LD_PRELOAD="$library" python train.py
