# SPDX-License-Identifier: Apache-2.0
"""Writes and looks up files of caches as Triton and DeepGEMM do."""

import ctypes
import json
import os
import random
import shutil
import signal
import threading
import time
import uuid

from agent_files import read_file


def triton_put(entry, name, data):
    """Writes a file as triton.runtime.cache.FileCacheManager.put of Triton 3.x does."""
    os.makedirs(entry, exist_ok=True)
    temporary = os.path.join(entry, f"tmp.pid_{os.getpid()}_{uuid.uuid4()}")
    os.makedirs(temporary, exist_ok=True)
    staged = os.path.join(temporary, name)
    with open(staged, "wb") as file:
        file.write(data)
    os.replace(staged, os.path.join(entry, name))
    os.removedirs(temporary)


def triton_put_2_1(entry, name, data):
    """Writes a file as Triton 2.1 does: creates it under a temporary name in the same directory, and renames it."""
    os.makedirs(entry, exist_ok=True)
    staged = os.path.join(entry, f"{name}.tmp.pid_{os.getpid()}_0")
    with open(staged, "wb") as file:
        file.write(data)
    os.replace(staged, os.path.join(entry, name))


def triton_put_groups(top, keys, builder):
    """Looks up each key as Triton does, and writes the missing entries; returns the errors as text.

    An entry consists of five files, whose contents start with the builder's name, and a group file that lists them.
    """
    wrong = []
    for key in keys:
        entry = os.path.join(top, key)
        try:
            os.makedirs(entry, exist_ok=True)
            group = os.path.join(entry, "__grp__kernel.json")
            if os.path.exists(group):
                files = [read_file(path) for path in json.loads(read_file(group)).values()]
                if len({data.split(b" ")[0] for data in files}) != 1:
                    wrong.append(f"{key} is of several builders: {files}")
                continue
            names = [f"kernel.{number}" for number in range(5)]
            for name in names:
                triton_put(entry, name, builder + b" " + name.encode())
            children = {name: os.path.join(entry, name) for name in names}
            triton_put(entry, "__grp__kernel.json", json.dumps(children).encode())
        except OSError as error:
            wrong.append(f"{key}: {error!r}")
    return wrong


def create_and_look_up(entry, name):
    """Creates an entry's directory, as kernel caches do, and returns whether it contains the file."""
    os.makedirs(entry, exist_ok=True)
    return os.path.exists(os.path.join(entry, name))


def build_missing(top, keys, seed):
    """Looks up the keys in an order that depends on `seed`, and builds the missing entries; returns their keys."""
    built = []
    for key in random.Random(seed).sample(keys, len(keys)):
        entry = os.path.join(top, key)
        if create_and_look_up(entry, "stub.so"):
            assert read_file(os.path.join(entry, "stub.so")) == key.encode()
            continue
        built.append(key)
        triton_put(entry, "stub.so", key.encode())
    return built


def look_in_child(entry, name):
    """Returns the result of create_and_look_up() in a forked child."""
    child = os.fork()
    if child == 0:
        os._exit(create_and_look_up(entry, name))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def look_until_signalled(entry, name):
    """Calls create_and_look_up() with a handler for SIGUSR1; returns (found, how often the handler ran)."""
    calls = []
    signal.signal(signal.SIGUSR1, lambda *_: calls.append(1))
    there = create_and_look_up(entry, name)
    time.sleep(0)  # a pending signal's handler runs here at the latest
    return there, len(calls)


def poll_until_found(entry, name, seconds):
    deadline = time.monotonic() + seconds
    while not create_and_look_up(entry, name):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def watch_entries(top, keys, seconds):
    """Reads each entry once, as soon as it appears, until all exist or `seconds` have passed; returns the entries that
    were incomplete or never appeared."""
    wrong, left, deadline = [], set(keys), time.monotonic() + seconds
    while left:
        for key in sorted(left):
            entry = os.path.join(top, key)
            try:
                names = os.listdir(entry)
            except FileNotFoundError:
                continue
            builders = {read_file(os.path.join(entry, name)).split(b" ")[0]
                        for name in names if "__grp__" not in name}
            if len(names) != 6 or len(builders) != 1:
                wrong.append((key, names, builders))
            left.discard(key)
        if time.monotonic() > deadline:
            wrong.append(f"never seen: {sorted(left)}")
            break
    return wrong


# ---- entries that are built in tmp/ and renamed as a whole to kernels/KEY


def staged_put(top, key, data=b"built"):
    """Writes an entry as DeepGEMM's Compiler::build does; returns whether its rename succeeded."""
    temporary = os.path.join(top, "tmp", str(uuid.uuid4()))
    os.makedirs(temporary)
    for name in ("kernel.bin", "done"):
        with open(os.path.join(temporary, name), "wb") as file:
            file.write(data)
    os.makedirs(os.path.join(top, "kernels"), exist_ok=True)
    try:
        os.rename(temporary, os.path.join(top, "kernels", key))
    except OSError:
        shutil.rmtree(temporary)
        return False
    return True


def staged_put_in_child(top, key):
    child = os.fork()
    if child == 0:
        os._exit(0 if staged_put(top, key) else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def staged_get_all(top, keys):
    """Looks up the keys in the given order, and builds the missing entries; returns the keys of the built entries."""
    built = []
    for key in keys:
        entry = os.path.join(top, "kernels", key)
        if not os.path.exists(entry):
            built.append(key)
            staged_put(top, key, key.encode())
        assert read_file(os.path.join(entry, "kernel.bin")) == key.encode()
    return built


def keep_busy():
    """Starts a child that uses CPU time, as a compiler does, until this process ends or calls stop_being_busy()."""
    global _busy
    _busy = os.fork()
    if _busy == 0:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        os.nice(19)
        while True:
            pass


def stop_being_busy():
    os.kill(_busy, signal.SIGKILL)
    os.waitpid(_busy, 0)


def ask_in_child(path):
    child = os.fork()
    if child == 0:
        os._exit(os.path.exists(path))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def ask_in_thread(path):
    there = []
    thread = threading.Thread(target=lambda: there.append(os.path.exists(path)))
    thread.start()
    thread.join()
    return there[0]
