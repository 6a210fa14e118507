#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The same job as in job.sh, in a container (enroot with pyxis): binds the mount and the library, and sets LD_PRELOAD
# inside the container. The library needs only the container's own glibc. With the run directory, /run/cacheshim, the
# library reads the base directly; without it, every read goes through the mount.
#SBATCH --job-name=train
#SBATCH --nodes=1
#SBATCH --gpus=8

readonly library=/usr/local/lib/libcacheshim.so

srun --container-image=./train.sqsh \
    --container-mounts="/ci-cache:/ci-cache,/run/cacheshim:/run/cacheshim,$library:$library:ro" \
    env LD_PRELOAD="$library" python train.py
