# SPDX-License-Identifier: Apache-2.0
"""The reports of a job's processes on errors and times."""

from __future__ import annotations

import resource
from typing import Any


def describe(error: BaseException, kernel: int) -> dict[str, Any]:
    """What a person needs to see of an error: its class, its errno and the path it names."""
    return {
        "kernel": kernel,
        "type": type(error).__name__,
        "errno": getattr(error, "errno", None),
        "path": str(getattr(error, "filename", None) or ""),
        "message": str(error)[:300],
    }


def cpu_seconds() -> float:
    """CPU time of this process and of the children it has waited for (ptxas, g++)."""
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    return total
