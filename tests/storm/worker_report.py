# SPDX-License-Identifier: Apache-2.0
"""The errors and CPU times in the REPORT lines of jobs."""

from __future__ import annotations

import resource
from typing import Any


def describe(error: BaseException, kernel: int) -> dict[str, Any]:
    """Returns an error as a JSON object: its kernel, class, errno, path and message."""
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
