# SPDX-License-Identifier: Apache-2.0
"""A process of a job: calls functions by name for the test that started it.

It imports only the standard library and the modules beside it, so that any user can run it with any Python of the
system. The test sends (name, args, kwargs), pickled, and receives (True, value) or (False, exception). A dotted name
is looked up in its module ("os.replace"), a plain name in the modules beside this one and among the builtins.
"""

import builtins
import importlib
import os
import pickle
import struct
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # `python -I` does not search this directory
import agent_caches  # noqa: E402
import agent_crowd  # noqa: E402
import agent_files  # noqa: E402
import agent_locks  # noqa: E402
import agent_races  # noqa: E402
import agent_streams  # noqa: E402
import agent_unlinking  # noqa: E402

MODULES = (agent_caches, agent_crowd, agent_files, agent_locks, agent_races, agent_streams, agent_unlinking)


def _resolve(name):
    module, _, attribute = name.rpartition(".")
    if module:
        try:
            return getattr(importlib.import_module(module), attribute)
        except ImportError:
            outer, _, cls = module.rpartition(".")
            return getattr(getattr(importlib.import_module(outer), cls), attribute)
    return next(getattr(one, name) for one in (*MODULES, builtins) if hasattr(one, name))


def _receive(stream):
    head = stream.read(4)
    if len(head) < 4:
        return None
    return pickle.loads(stream.read(struct.unpack("<I", head)[0]))


def _send(stream, message):
    data = pickle.dumps(message)
    stream.write(struct.pack("<I", len(data)) + data)
    stream.flush()


def main():
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while (request := _receive(requests)) is not None:
        name, args, kwargs = request
        try:
            reply = (True, _resolve(name)(*args, **kwargs))
        except Exception as error:  # send any exception to the test
            reply = (False, error)
        try:
            _send(replies, reply)
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            _send(replies, (False, RuntimeError(f"{name}: {error}")))


if __name__ == "__main__":
    sys.exit(main())
