# SPDX-License-Identifier: Apache-2.0
"""The contestants of the race, each with its fastest options.

Each contestant shows the same read-only base under its own writable layer. The contestant `native` is the base itself
or, in rows that change something, a copy of it. A new contestant needs a command, in which {base}, {store}, {upper},
{work} and {mount} are replaced, and the path of the cache directory after mounting.

The cache directory has the same depth for all contestants, because the kernel's path walk takes longer with each
component. A cache in a home directory has this depth, and so has a cache in a view (.jobs/JOB/triton).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

JOB = "race"
CACHE = "home/.cache/triton"  # below the mount point, and below the native directory
OURS = "cacheshim"
SHIMMED = "ours, shimmed"
LIBRARY = "libcacheshim.so"
LIBRARY_BEFORE = "libcacheshim-before.so"
BEFORE = "before"
SHIMMED_BEFORE = "before, shimmed"
NATIVE = "native"

_FUSE_OVERLAYFS = (
    "lowerdir={base},upperdir={upper},workdir={work},threaded=1,fast_ino=1,noxattrs=1,"
    "static_nlink,noacl,volatile,fsync=0,timeout=1000000000,writeback=1"
)
_MERGERFS = (
    "allow_other,cache.files=auto-full,cache.entry=3600,cache.attr=3600,cache.negative_entry=3600,"
    "cache.readdir=true,cache.writeback=true,xattr=nosys,threads=4,category.create=ff"
)
_UNIONFS = (
    "cow,kernel_cache,allow_other,default_permissions,entry_timeout=3600,attr_timeout=3600,"
    "negative_timeout=3600"
)


@dataclass(frozen=True)
class Contestant:
    name: str
    mount: tuple[str, ...] = ()  # if empty, nothing is mounted
    unmount: tuple[str, ...] = ("umount", "{mount}")
    seen_at: str = "{mount}/" + CACHE
    is_fuse_peer: bool = True  # whether the bars compare cacheshim with this contestant
    publishes: bool = False
    preload: str = ""  # the library that the worker preloads, by its name in the race's directory


CONTESTANTS = (
    Contestant(NATIVE, unmount=(), seen_at="{native}", is_fuse_peer=False),
    Contestant(
        OURS,
        ("{cacheshim}", "mount", "--store", "{store}", "{mount}"),
        ("{cacheshim}", "unmount", "{mount}"),
        seen_at="{mount}/.jobs/" + JOB + "/triton",
        is_fuse_peer=False,
        publishes=True,
    ),
    # The same mount through the preloaded library, by the path that jobs use.
    Contestant(
        SHIMMED,
        ("{cacheshim}", "mount", "--store", "{store}", "{mount}"),
        ("{cacheshim}", "unmount", "{mount}"),
        seen_at="{mount}/triton",
        is_fuse_peer=False,
        publishes=True,
        preload=LIBRARY,
    ),
    # The same code in a plain overlay, without a store.
    Contestant(
        "ours, plain",
        ("{cacheshim}", "overlay", "-o", "lowerdir={base},upperdir={upper},workdir={work}",
         "{mount}"),
        ("{cacheshim}", "unmount", "{mount}"),
        is_fuse_peer=False,
    ),
    Contestant(
        "overlayfs",
        ("mount", "-t", "overlay", "overlay", "-o",
         "lowerdir={base},upperdir={upper},workdir={work}", "{mount}"),
        is_fuse_peer=False,
    ),
    Contestant("fuse-overlayfs", ("fuse-overlayfs", "-o", _FUSE_OVERLAYFS, "{mount}")),
    Contestant("mergerfs", ("mergerfs", "-o", _MERGERFS, "{upper}=RW:{base}=RO", "{mount}")),
    Contestant("unionfs-fuse", ("unionfs", "-o", _UNIONFS, "{upper}=RW:{base}=RO", "{mount}")),
)


OURS_AND_NATIVE = tuple(one for one in CONTESTANTS if one.name in (NATIVE, OURS, SHIMMED))


def of_another_build(contestant: Contestant, name: str) -> Contestant:
    """Returns the same contestant with the program and the library of `scripts/bench --before`."""
    return replace(
        contestant,
        name=name,
        mount=tuple(word.replace("{cacheshim}", "{before}") for word in contestant.mount),
        unmount=tuple(word.replace("{cacheshim}", "{before}") for word in contestant.unmount),
        preload=contestant.preload and LIBRARY_BEFORE,
    )


def named(name: str) -> Contestant:
    return next(one for one in CONTESTANTS if one.name == name)


# Each contestant of the other build follows its counterpart of this build, so that the samples of the two are taken one
# after the other.
WITH_ANOTHER_BUILD = (
    named(NATIVE),
    named(OURS),
    of_another_build(named(OURS), BEFORE),
    named(SHIMMED),
    of_another_build(named(SHIMMED), SHIMMED_BEFORE),
)
