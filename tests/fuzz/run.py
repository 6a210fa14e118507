#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the fuzzers of tests/fuzz, one after the other, and ends at the first finding.

    run.py [--seconds S] [--keep] [--junit FILE] BUILD [TARGET…]

BUILD is a build with -Dfuzzers=true. Each fuzzer starts with its corpus in the repository and with the inputs that
earlier runs have added to BUILD/corpus. --keep adds the inputs that reach more code to the corpus in the repository.
The input of a finding is copied into that corpus, where it stays as a regression test.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml

CORPORA = pathlib.Path(__file__).resolve().parent / "corpus"
# The time limit for one input. The slowest valid input waits a second until its mount has ended.
TIMEOUT_S = 10
MOST_BYTES = 4096
# On a disk, the fuzzers that use a FuzzedMount take ten times as long.
MEMORY = pathlib.Path("/dev/shm")


def fuzz(build: pathlib.Path, target: str, options: argparse.Namespace) -> pathlib.Path | None:
    """Runs one fuzzer. If it has a finding, copies the input into the corpus and returns the copy's path. Returns the
    path of the log if the fuzzer failed without an input, and None if there is no finding."""
    kept, found = (build / name / target for name in ("corpus", "findings"))
    shutil.rmtree(found, ignore_errors=True)
    found.mkdir(parents=True)
    program, log = build / "tests/fuzz" / f"{target}_fuzzer", found.parent / f"{target}.log"
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as work:
        grown = pathlib.Path(work, "corpus")
        grown.mkdir()
        if kept.is_dir():
            shutil.copytree(kept, grown, dirs_exist_ok=True)
        command = [program, f"-max_total_time={options.seconds}", f"-timeout={TIMEOUT_S}", f"-max_len={MOST_BYTES}",
                   "-print_final_stats=1", f"-artifact_prefix={found}/", grown, CORPORA / target]
        environment = {**os.environ, "TMPDIR": work, "UBSAN_OPTIONS": "print_stacktrace=1"}
        with open(log, "wb") as output:
            status = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False,
                                    env=environment).returncode
            if status == 0 and options.keep:
                # Adds to the corpus the smallest inputs that reach new code. -use_counters=0 leaves out inputs that
                # only repeat a loop more often: with them, the corpus would be ten times as large.
                subprocess.run([program, "-merge=1", "-set_cover_merge=1", "-use_counters=0", CORPORA / target, grown],
                               stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=True, env=environment)
        shutil.copytree(grown, kept, dirs_exist_ok=True)
    if status == 0:
        return None
    print(log.read_text(errors="replace")[-8000:])
    inputs = sorted(found.iterdir())
    if not inputs:
        return log  # the fuzzer itself failed
    return pathlib.Path(shutil.copy(inputs[0], CORPORA / target / inputs[0].name))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--junit", type=pathlib.Path)
    options = parser.parse_intermixed_args()
    suite = xml.Element("testsuite", name="fuzzers")
    finding = None
    for target in options.targets or sorted(path.name for path in CORPORA.iterdir()):
        begin = time.monotonic()
        finding = fuzz(options.build.resolve(), target, options)
        case = xml.SubElement(suite, "testcase", classname="fuzzers", name=target,
                              time=f"{time.monotonic() - begin:.1f}")
        print(f"{target}: {finding or 'no finding'}", flush=True)
        if finding:
            xml.SubElement(case, "failure", message=f"reproduce with: {target}_fuzzer {finding}")
            break
    if options.junit:
        xml.ElementTree(suite).write(options.junit)
    return 1 if finding else 0


if __name__ == "__main__":
    sys.exit(main())
