# SPDX-License-Identifier: Apache-2.0
"""The reports of a job's processes on errors and times."""

from __future__ import annotations

import resource
from typing import Any


def describe(error: BaseException, kernel: int) -> dict[str, Any]:
    """Returns the parts of an error that a person needs: its class, its errno and the path that it names."""
    return {
        "kernel": kernel,
        "type": type(error).__name__,
        "errno": getattr(error, "errno", None),
        "path": str(getattr(error, "filename", None) or ""),
        "message": str(error)[:300],
    }


def cpu_seconds() -> float:
    """Returns the CPU time of this process and of the children that it has waited for (ptxas, g++)."""
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    return total
