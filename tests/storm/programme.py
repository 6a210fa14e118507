# SPDX-License-Identifier: Apache-2.0
"""The storms of scripts/test, and their sizes."""

from __future__ import annotations

from functools import partial

import autotuner
import compiled
import machines
import scenarios
import troubles
import writers
from cases import Scenario
from jobs import Box

Programme = list[tuple[str, Scenario]]

# `storm.py small`: the scenarios in sizes for two cores.
SMALL: Programme = [
    ("plain directory shows the errors", partial(scenarios.plain_directory, jobs=8, kernels=8)),
    (
        "8 users, PID namespaces, cold then warm",
        partial(scenarios.cold_then_warm, jobs=8, kernels=24),
    ),
    (
        "8 users, no namespaces, cold then warm",
        partial(scenarios.cold_then_warm, jobs=8, kernels=8, box=Box.PLAIN),
    ),
    (
        "8 users without the library, cold then warm",
        partial(scenarios.cold_then_warm, jobs=8, kernels=24, unshimmed="triton"),
    ),
    (
        "8 users, a family of a TOML file alone, without the library",
        partial(scenarios.own_family, jobs=8, kernels=24),
    ),
    (
        "two of eight killed in mid-compile",
        partial(troubles.killed_in_mid_compile, jobs=8, kernels=12),
    ),
    (
        "4 users' autotuners, a third of the configurations failing",
        partial(autotuner.scenario, jobs=4),
    ),
    (
        "a relative cache path, a symlink to the cache, and links on the way",
        partial(scenarios.spellings, jobs=4, kernels=6),
    ),
    ("a cleaner in its own view", partial(troubles.cleaner, jobs=4, kernels=48, passes=2)),
    (
        "containers, library alone",
        partial(scenarios.containers, jobs=8, kernels=12, box=Box.CONTAINER),
    ),
    (
        "containers where the user is root",
        partial(scenarios.containers, jobs=4, kernels=8, box=Box.CONTAINER_AS_ROOT),
    ),
    (
        "containers with a bound view, no library",
        partial(scenarios.bound_views, jobs=8, kernels=12),
    ),
    ("whole entries", partial(writers.whole_entries, jobs=8, keys=24)),
    (
        "Triton 2.1.0 on a plain directory shows the errors",
        partial(writers.old_triton_plain, version="2.1.0", jobs=8, keys=48),
    ),
    (
        "Triton 2.1.0 in containers",
        partial(writers.old_triton, version="2.1.0", jobs=8, keys=24),
    ),
    (
        "Triton 3.0.0 in containers",
        partial(writers.old_triton, version="3.0.0", jobs=8, keys=24),
    ),
    ("daemon killed", partial(troubles.daemon_killed, jobs=4, kernels=12)),
    (
        "unmounted while in use",
        partial(troubles.unmounted_in_use, jobs=4, kernels=12, box=Box.PLAIN),
    ),
    (
        "unmounted while other namespaces use it",
        partial(troubles.unmounted_in_use, jobs=4, kernels=12, box=Box.PIDS),
    ),
    ("full disk", partial(troubles.full_disk, jobs=4, kernels=12)),
    (
        "2 machines with a remote tier, then a third one",
        partial(machines.each_compiles_once, jobs=3, kernels=12),
    ),
    (
        "a remote tier's engine that stops during the storm",
        partial(machines.engine_fails, trouble="stopped", jobs=2, kernels=12),
    ),
]

# `storm.py full`: the scenarios in the sizes that the required figures refer to.
_ROUNDS: Programme = [
    (
        f"8 × 24, PID namespaces, cold then warm, round {number} of 5",
        partial(scenarios.cold_then_warm, jobs=8, kernels=24),
    )
    for number in range(1, 6)
]

FULL: Programme = [
    *_ROUNDS,
    (
        "two of eight killed in mid-compile, 24 kernels",
        partial(troubles.killed_in_mid_compile, jobs=8, kernels=24),
    ),
    (
        "a cleaner on a plain directory, for comparison",
        partial(troubles.cleaner, jobs=8, kernels=24, passes=2, plain=True),
    ),
    (
        "a cleaner in its own view, 8 jobs",
        partial(troubles.cleaner, jobs=8, kernels=96, passes=3),
    ),
    (
        "containers, library alone, 24 kernels",
        partial(scenarios.containers, jobs=8, kernels=24, box=Box.CONTAINER),
    ),
    (
        "containers where the user is root, 24 kernels",
        partial(scenarios.containers, jobs=8, kernels=24, box=Box.CONTAINER_AS_ROOT),
    ),
    (
        "containers with a bound view, 24 kernels",
        partial(scenarios.bound_views, jobs=8, kernels=24),
    ),
    ("whole entries, 100 keys", partial(writers.whole_entries, jobs=8, keys=100)),
    *(
        (
            f"Triton {version} in containers, 100 keys",
            partial(writers.old_triton, version=version, jobs=8, keys=100),
        )
        for version in ("2.1.0", "3.0.0")
    ),
    ("daemon killed, 8 jobs", partial(troubles.daemon_killed, jobs=8, kernels=24)),
    *(
        (
            f"2 machines × 8 × 24 with a remote tier, then a third one, round {number} of 5",
            partial(machines.each_compiles_once, jobs=8, kernels=24),
        )
        for number in range(1, 6)
    ),
    *(
        (
            f"a remote tier's engine that is {trouble} during the storm, 8 jobs",
            partial(machines.engine_fails, trouble=trouble, jobs=8, kernels=24),
        )
        for trouble in machines.TROUBLES
    ),
]

# `storm.py inductor`: the scenario with torch.compile() instead of Triton.
INDUCTOR: Programme = [("8 users' torch.compile(), cold then warm", partial(compiled.cold_then_warm, jobs=8))]
