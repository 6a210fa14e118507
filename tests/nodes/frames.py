# SPDX-License-Identifier: Apache-2.0
"""The messages between a test and a node. Each consists of a kind of one byte, a length, and data.

The test sends COMMAND (JSON) once, and any number of INPUTs; an INPUT without data closes the command's standard input.
The node sends OUTPUTs and ERRORs, and at the end EXIT (the return code, in decimal). If the connection ends before
EXIT, the node kills the command.
"""

import struct

COMMAND, INPUT, OUTPUT, ERROR, EXIT = b"c", b"i", b"o", b"e", b"x"
_HEAD = struct.Struct("<cI")


def send(connection, kind, data=b""):
    connection.sendall(_HEAD.pack(kind, len(data)) + data)


class Reader:
    """Receives the messages of one connection."""

    def __init__(self, connection):
        self._connection = connection
        self._data = bytearray()

    def read(self):
        """Returns the next (kind, data). Raises EOFError if the connection has ended. If the connection has a timeout,
        a call that raises TimeoutError loses no data: the next call continues with the same message."""
        self._fill(_HEAD.size)
        kind, length = _HEAD.unpack_from(self._data)
        self._fill(_HEAD.size + length)
        data = bytes(self._data[_HEAD.size:])
        self._data.clear()
        return kind, data

    def _fill(self, count):
        while len(self._data) < count:
            piece = self._connection.recv(count - len(self._data))
            if not piece:
                raise EOFError
            self._data += piece
