# SPDX-License-Identifier: Apache-2.0
"""A package index over HTTP on this machine: three wheels, and two source distributions, one of which cannot be built.

The source distributions contain their build backend, so that building them needs no other package.
"""

from __future__ import annotations

import io
import os
import pathlib
import tarfile

from package_index import PackageIndex, wheel, wheel_members, wheel_name

WHEELS = ("alpha", "beta", "gamma")
PADDING = 50_000  # bytes

# The build is slow enough that builds by several users overlap.
BACKEND = '''\
import os
import time
import zipfile


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    fd = os.open(os.environ["FAMILY_BUILDS"], os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"NAME\\n")
    os.close(fd)
    time.sleep(0.3)
    if "NAME" == "broken":
        raise RuntimeError("cannot be built")
    name = "NAME-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w") as wheel:
        for member, text in MEMBERS.items():
            wheel.writestr(member, text)
    return name


def build_sdist(sdist_directory, config_settings=None):
    raise NotImplementedError


MEMBERS = {
'''


def _source(name: str) -> bytes:
    lines = "".join(f"    {member!r}: {text!r},\n" for member, text in wheel_members(name, PADDING).items())
    files = {"backend.py": BACKEND.replace("NAME", name) + lines + "}\n",
             "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\n'
                               'backend-path = ["."]\n'
                               f'[project]\nname = "{name}"\nversion = "1.0"\n',
             "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"}
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for path, text in files.items():
            member = tarfile.TarInfo(f"{name}-1.0/{path}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return data.getvalue()


class Index:
    """The server. It records each download of a wheel as a build, in the file `builds_log`."""

    VARIABLE = "FAMILY_INDEX"  # the variable that contains its address

    def __init__(self, scratch: pathlib.Path):
        self.builds_log = scratch / "none"
        files = {wheel_name(name): wheel(name, PADDING) for name in WHEELS}
        files |= {f"{name}-1.0.tar.gz": _source(name) for name in ("built", "broken")}
        self._server = PackageIndex(files, self._note)
        self.url = f"http://{self._server.host}/simple/"

    def close(self) -> None:
        self._server.close()

    def _note(self, name: str) -> None:
        fd = os.open(self.builds_log, os.O_WRONLY | os.O_APPEND)
        os.write(fd, f"{name}\n".encode())
        os.close(fd)
