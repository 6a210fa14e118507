# SPDX-License-Identifier: Apache-2.0
"""Clean Debian systems, in which tests install packages. `scripts/test --packages` has installed the systems."""

import pathlib
import re
import shlex
import subprocess

import mounts
from fresh_root import FreshRoot

HERE = pathlib.Path(__file__).parent
BUILT = mounts.REPOSITORY / "build/packages"
INSTALL_TIMEOUT_S = 300
MOST_SECONDS = 60  # from the installation to a warm second job
README = (mounts.REPOSITORY / "README.md").read_text()


def printed_block(start):
    """Returns the README's block that begins with `start`, without its indentation."""
    block = re.search(rf"^    {re.escape(start)}.*\n(?:    .*\n)*", README, re.MULTILINE)
    assert block, f"the README has no block that begins with '{start}'"
    return re.sub(r"^    ", "", block[0], flags=re.MULTILINE)


class System:
    """A clean system with the users alice and bob. `release`: the name of a Debian release, or the path of a system's
    root directory."""

    def __init__(self, scratch, release):
        self._root = FreshRoot(scratch, HERE / "enter-release.sh", BUILT / "clean" / release)
        for user in ("alice", "bob"):
            self.run("root", f"useradd --create-home {user}")
            self.copy(mounts.REPOSITORY / "tests/docs/train.py", f"/home/{user}/train.py")
        self.run("root", "ln -s /usr/bin/python3 /usr/local/bin/python")

    def copy(self, source, target):
        enter = ["nsenter", f"--target={self._root.first_process}", "--mount"]
        with open(source, "rb") as file:
            subprocess.run([*enter, "sh", "-c", f"cat > {shlex.quote(target)}"], stdin=file, check=True)

    def run(self, user, command, timeout=60):
        """Runs a command, asserts that it succeeds, and returns its output."""
        ended = self._root.shell(user).run(command, timeout)
        assert ended.status == 0, f"`{command}` as {user}: {ended.status}\n{ended.out[-2000:]}{ended.err[-2000:]}"
        return ended.out

    def close(self):
        self._root.close()
