#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang's thread-safety analysis on every source that includes store/threads/thread_annotations.h.

Usage: lock_annotations_test.py REPOSITORY BUILD

The sources are only parsed, not compiled. A separate ninja file runs clang, so that the next run parses only sources
that have changed. The build must be up to date, because its dependency log says what each source includes.
"""

import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

SKIPPED = 77  # the exit status by which Meson recognizes a skipped test
# Tests and benchmarks are not checked, because they use classes in a single thread, without taking the locks.
CHECKED = ("store/", "fuse/", "learn/", "cli/")
ANNOTATIONS = "store/threads/thread_annotations.h"
OPTIONS = ["-fsyntax-only", "-Wno-everything", "-Wthread-safety", "-Werror=thread-safety"]
KEPT = ("-I", "-D", "-isystem", "-std=", "-pthread")  # the compiler options that are passed on to clang
UNGUARDED = """
#include "store/threads/mutex.h"
struct Counter {
  cacheshim::Mutex mutex;
  int count GUARDED_BY(mutex) = 0;
  int read() { return count; }
};
"""


def finds_a_fault(top: pathlib.Path) -> bool:
    """Tests the analysis: returns true if clang rejects a source that reads a guarded member without the lock."""
    command = ["clang++", "-std=c++20", f"-I{top}", *OPTIONS, "-x", "c++", "-"]
    refused = subprocess.run(command, input=UNGUARDED, capture_output=True, text=True, check=False)
    return refused.returncode != 0 and "requires holding mutex 'mutex'" in refused.stderr


def annotated_outputs(build: pathlib.Path) -> set[str]:
    """Returns the build's object files whose sources include the annotations."""
    listed = subprocess.run(["ninja", "-C", build, "-t", "deps"], capture_output=True, text=True, check=True)
    blocks = listed.stdout.split("\n\n")
    return {block.split(": ", 1)[0].strip() for block in blocks if ANNOTATIONS in block}


def sources(top: pathlib.Path, build: pathlib.Path) -> dict[str, list[str]]:
    """Returns the sources to check, with their options. In a unity build, these are the files that include the sources."""
    outputs = annotated_outputs(build)
    found: dict[str, list[str]] = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        file = (build / entry["file"]).resolve()
        name = file.relative_to(build if file.is_relative_to(build) else top).as_posix()
        if not name.startswith(CHECKED) or entry["output"] not in outputs:
            continue
        found[str(file)] = [word for word in shlex.split(entry["command"]) if word.startswith(KEPT)]
    return found


def ninja_file(checked: dict[str, list[str]]) -> str:
    command = f"clang++ $options {' '.join(OPTIONS)} -MD -MF $out.d -MT $out $in && touch $out"
    lines = ["rule check", f"  command = {command}", "  description = $in", "  depfile = $out.d", "  deps = gcc"]
    for file, options in sorted(checked.items()):
        lines.append(f"build lock-check/{re.sub('[^a-z0-9_]', '-', file)}.checked: check {file}")
        lines.append(f"  options = {shlex.join(options)}")
    return "\n".join(lines) + "\n"


def main(top: pathlib.Path, build: pathlib.Path) -> int:
    if shutil.which("clang++") is None:
        print("clang++ is not installed")
        return SKIPPED
    if not finds_a_fault(top):
        print("clang does not find a member that is read without its lock")
        return 1
    checked = sources(top, build)
    if len(checked) < 20:
        print(f"only {len(checked)} files include {ANNOTATIONS}: is the build up to date?")
        return 1
    rules = build / "lock-check" / "build.ninja"
    rules.parent.mkdir(exist_ok=True)
    rules.write_text(f"builddir = lock-check\n{ninja_file(checked)}")
    # ninja runs clang in the build directory, because the paths in the options are relative to that directory.
    return subprocess.run(["ninja", "-C", build, "-f", rules, "-k", "0"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*(pathlib.Path(argument).resolve() for argument in sys.argv[1:3])))
