#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Verifies that each hook has a test that fails without the hook.

removal.py REPOSITORY BUILD_DIRECTORY [--junit FILE]

For each row of the hooks' tables, links the library without that row and runs the tests `Hooks` of matrix_test.py with
that library. The test with the row's name must fail. With the unchanged library, all tests must pass.
"""

import argparse
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
from xml.sax.saxutils import quoteattr

ROW = re.compile(r"^CACHESHIM_\w+_SYMBOL\((\w+).*?\)\n(?=\n|CACHESHIM|\Z)", re.DOTALL | re.MULTILINE)
TABLES = ("cuda_hooks/symbols.def", "cuda_hooks/loader_symbols.def")
# The files that include the tables and are therefore recompiled.
SEES_TABLES = re.compile(r'#include "cuda_hooks/(driver|costs|preload)\.h"|symbols\.def')


class Library:
    """Compiles and links variants of libcacheshim.so with the build's own commands."""

    def __init__(self, repository, build):
        self.repository, self.build = repository, build
        commands = subprocess.run(["ninja", "-C", build, "-t", "commands", "shim/libcacheshim.so"],
                                  capture_output=True, text=True, check=True).stdout.splitlines()
        self.link = shlex.split(commands[-1])
        self.preprocess = next(shlex.split(line) for line in commands if "exports.map.in" in line)
        entries = json.loads((build / "compile_commands.json").read_text())
        self.compile = {}
        for entry in entries:
            source = pathlib.Path(entry["directory"], entry["file"]).resolve()
            if source.suffix != ".cc" or not entry["output"].startswith("shim/libcacheshim.so.p/"):
                continue
            if "cuda_hooks" in source.parts and SEES_TABLES.search(source.read_text()):
                self.compile[entry["output"]] = shlex.split(entry["command"])
        if len(self.compile) < 4 or not any(word.startswith("-Wl,--version-script") for word in self.link):
            sys.exit("cannot tell how the library is built")

    def without(self, table, row, directory):
        """Links the library without `row` of `table` in `directory`; returns its path."""
        shadow = directory / table
        shadow.parent.mkdir(parents=True)
        text = (self.repository / table).read_text()
        left = "".join(text[begin:end] for begin, end in rows_left(text, row))
        shadow.write_text(left)
        for output, command in self.compile.items():
            words = self.at(command, output, directory / pathlib.Path(output).name)
            self.run([*words, "-w"], first_include=directory)  # without that row, there are warnings
        exports = directory / "exports.map"
        self.run(self.at(self.preprocess, "shim/exports.map", exports), first_include=directory)
        link = self.at(self.link, "shim/libcacheshim.so", directory / "libcacheshim.so")
        for output in self.compile:
            link = [str(directory / pathlib.Path(output).name) if word == output else word
                    for word in link]
        self.run([f"-Wl,--version-script,{exports}" if word.startswith("-Wl,--version-script")
                  else word for word in link])
        return directory / "libcacheshim.so"

    @staticmethod
    def at(command, output, path):
        words = [str(path) if word == output else word for word in command]
        # Do not overwrite the dependency files of the build.
        for option in ("-MF", "-MQ"):
            if option in words:
                words[words.index(option) + 1] = f"{path}.{option[1:]}"
        return words

    def run(self, command, first_include=None):
        if first_include is not None:
            at = next(index for index, word in enumerate(command) if word.startswith("-I"))
            command = [*command[:at], f"-I{first_include}", *command[at:]]
        subprocess.run(command, cwd=self.build, check=True)


def rows_left(text, row):
    found = [match for match in ROW.finditer(text) if match.group(1) == row]
    if len(found) != 1:
        sys.exit(f"{row} has {len(found)} rows")
    return (0, found[0].start()), (found[0].end(), len(text))


def failing_hooks(repository, build, library):
    """Returns the names of the tests of class Hooks that fail with this library."""
    tests = build / "tests" / "cuda"
    ended = subprocess.run(
        [sys.executable, "-B", repository / "tests/cuda/matrix_test.py", tests, library,
         tests / "libcacheshim_hooks_only.so", "Hooks"],
        capture_output=True, text=True, check=False)
    if "\nRan " not in ended.stderr:
        sys.exit(ended.stdout + ended.stderr)
    return set(re.findall(r"^(?:FAIL|ERROR): test_(\w+) ", ended.stderr, re.MULTILINE))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("repository", type=pathlib.Path)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--junit", type=pathlib.Path)
    given = parser.parse_args()
    repository, build = given.repository.resolve(), given.build.resolve()
    library = Library(repository, build)
    results = {"nothing": not failing_hooks(repository, build, build / "shim/libcacheshim.so")}
    results["constructor"] = "constructor" in failing_hooks(
        repository, build, build / "tests/cuda/libcacheshim_hooks_only.so")
    for table in TABLES:
        for match in ROW.finditer((repository / table).read_text()):
            with tempfile.TemporaryDirectory(prefix="cacheshim-removal-") as scratch:
                path = library.without(table, match.group(1), pathlib.Path(scratch))
                failing = failing_hooks(repository, build, path)
            results[match.group(1)] = match.group(1) in failing
            print(f"without {match.group(1)}: {', '.join(sorted(failing)) or 'nothing'} failed",
                  flush=True)
    missed = [name for name, seen in results.items() if not seen]
    if given.junit:
        cases = "".join(
            f"<testcase name={quoteattr(name)}>" + ("" if seen else "<failure/>") + "</testcase>"
            for name, seen in results.items())
        given.junit.write_text(f"<testsuites><testsuite name='removal' tests='{len(results)}' "
                               f"failures='{len(missed)}'>{cases}</testsuite></testsuites>\n")
    print(f"{len(results) - len(missed)} of {len(results)} as they should be; not: {missed}")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
