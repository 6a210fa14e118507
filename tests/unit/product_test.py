#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Verifies that building only the program and the library also builds every file that `meson install` needs.

Usage: product_test.py REPOSITORY BUILD
"""

import json
import pathlib
import re
import subprocess
import sys


def main() -> int:
    repository, build = (pathlib.Path(argument) for argument in sys.argv[1:])
    listed = re.search(r"^readonly product=\((.*)\)$", (repository / "scripts/lib/build.sh").read_text(), re.M)
    targets = subprocess.check_output(["ninja", "-C", build, "-t", "targets", "all"], text=True)
    product = [name for name in listed[1].split() if f"\n{name}: " in targets]  # a sanitized build has no library
    inputs = subprocess.check_output(["ninja", "-C", build, "-t", "inputs", *product], text=True).splitlines()
    made = {*inputs, *product}
    installed = json.loads(subprocess.check_output(["meson", "introspect", "--installed", build]))
    # The installed files that are in the build directory; others come from the repository.
    needed = {pathlib.Path(path).relative_to(build).as_posix() for path in installed
              if pathlib.Path(path).is_relative_to(build)}
    missing = sorted(path for path in needed - made if f"\n{path}: " in targets)
    for path in missing:
        print(f"{path} is installed, but a build of {' '.join(product)} does not make it")
    if not product or not needed & made:
        print("there is no product to check")
        return 1
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
