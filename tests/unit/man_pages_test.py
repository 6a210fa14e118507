#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Verifies that the manual pages agree with the program and its sources.

Usage: man_pages_test.py PROGRAM REPOSITORY PAGE…; each PAGE is a page that the build has generated
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HELP = {"-h", "--help"}
FLAG = re.compile(r"\bFl (-?[a-z][\w-]*)")
VARIABLE = re.compile(r"\bCACHESHIM_[A-Z_]+")


class Help:
    """The output of `cacheshim WORDS --help`, and the options, subcommands and operands that it lists."""

    def __init__(self, program, *words):
        self.text = subprocess.run([program, *words, "--help"], check=True, capture_output=True,
                                   text=True).stdout
        # Matches lines such as "  -h,--help" and "  --store DIR". Newer versions of CLI11 align them differently.
        found = re.findall(r"^ +(?=-)(?:(-\w)\b)?,? *(--[a-z][\w-]*)?", self.text, re.MULTILINE)
        self.options = {option for pair in found for option in pair if option}
        listed = re.search(r"^subcommands:\s*\n((?: .+\n)+)", self.text, re.MULTILINE | re.IGNORECASE)
        self.commands = re.findall(r"^ {2}([a-z-]+)(?= |$)", listed[1] if listed else "", re.MULTILINE)
        usage = re.search(r"^usage:\s*(.*)", self.text, re.MULTILINE | re.IGNORECASE)[1]
        self.operands = set(re.findall(r"\b[A-Z]{2,}\b", usage)) - {"OPTIONS", "SUBCOMMAND"}


def all_help(program, *words):
    """Returns {words: Help} for each command that has no subcommands; an example of `words` is "job end"."""
    help_ = Help(program, *words)
    if not help_.commands:
        return {" ".join(words): help_}
    return {name: one for command in help_.commands
            for name, one in all_help(program, *words, command).items()}


def parts(page, macro):
    """Returns {NAME: text after the line ".MACRO NAME", up to the next such line}."""
    found = re.split(rf"^\.{macro} (.*)\n", page, flags=re.MULTILINE)
    return dict(zip(found[1::2], found[2::2]))


def synopses(page):
    """Returns {command's words: its lines in the synopsis}."""
    found = {}
    for text in re.split(r"^\.Nm\n", parts(page, "Sh")["SYNOPSIS"], flags=re.MULTILINE):
        command = re.match(r"\.Cm (.*)\n", text)
        if command:
            found[command[1]] = text
    return found


def flags(text):
    return {"-" + name for name in FLAG.findall(text)}


def differences(what, page, program):
    """Returns a line for each element that only one of the two sets contains."""
    return ([f"{what}: '{one}' is missing on the page" for one in sorted(program - page)] +
            [f"{what}: the page has '{one}', the program has not" for one in sorted(page - program)])


def check_commands(page, main, commands):
    sections = parts(parts(page, "Sh")["COMMANDS"], "Ss")
    lines = synopses(page)
    found = differences("commands", set(sections), set(commands))
    found += differences("synopsis", set(lines), set(commands))
    for name in sorted(set(commands) & set(sections) & set(lines)):
        own = commands[name].options - HELP
        listed = {"-" + flag for flag in re.findall(r"^\.It Fl (\S+)", sections[name], re.MULTILINE)}
        found += differences(name, listed, own)
        found += differences(f"synopsis of {name}", flags(lines[name]), own)
        operands = set(re.findall(r"^\.(?:Op )?Ar ([A-Z]{2,})", lines[name], re.MULTILINE))
        found += differences(f"operands of {name}", operands, commands[name].operands)
    everywhere = flags(parts(page, "Sh")["SYNOPSIS"])
    return found + [f"synopsis: '{one}' is missing" for one in sorted(main.options - everywhere)]


def check_unknown(page, known):
    """Returns a line for each option in the page's text and examples that no command has."""
    named = flags(page)
    for line in page.splitlines():
        if line.startswith("cacheshim "):
            named |= set(re.findall(r"(?<![\w-])--[a-z][\w-]*", line.split(" -- ")[0]))
    return [f"no command has '{one}'" for one in sorted(named - known)]


def check_exit_codes(page, main, repository):
    header = (repository / "common/exit_codes.h").read_text()
    codes = set(re.findall(r"\bkExit\w+ = (\d+)", header))
    named = set(re.findall(r"^\.It (\d+)$", parts(page, "Sh")["EXIT STATUS"], re.MULTILINE))
    printed = set(re.findall(r"^  (\d+) +\w", main.text, re.MULTILINE))
    return differences("exit codes", named, codes) + differences("exit codes of --help", printed, codes)


def check_variables(page, main):
    items = re.findall(r"^\.It Ev .*", parts(page, "Sh")["ENVIRONMENT"], re.MULTILINE)
    missing = set(VARIABLE.findall(main.text)) - set(VARIABLE.findall("\n".join(items)))
    return [f"environment: '{one}' is missing on the page" for one in sorted(missing)]


def check_configuration(page, program, repository):
    """Returns a line for each key that the page documents but no source reads, and for each key that a source reads but
    the page does not document. Returns one more line if the program refuses the page's example."""
    read = "".join((repository / "cli/configuration" / name).read_text()
                   for name in ("config.cc", "cuda_config.cc", "limits_config.cc", "publish_allow_config.cc",
                                "metrics_config.cc", "remote_config.cc"))
    asked = set(re.findall(r'\b(?:find_\w+|read_ids)\([^")]*"(\w+)"', read))
    table = (repository / "common/limits.def").read_text()
    asked |= set(re.findall(r"^CACHESHIM_LIMIT\(\w+, (\w+)", table, re.MULTILINE))
    named = set(re.findall(r"^\.It Ic (\w+)$", page, re.MULTILINE))
    named |= set(re.findall(r"^\.Ss \[(\w+)\]", page, re.MULTILINE))
    found = differences("configuration", named, asked)
    with tempfile.TemporaryDirectory() as scratch:
        file = pathlib.Path(scratch) / "cacheshim.toml"
        file.write_text(re.search(r"^\.Bd -literal.*\n((?:.*\n)*?)\.Ed", page, re.MULTILINE)[1])
        # The program reads the configuration first, and then reports that the store is missing.
        ran = subprocess.run([program, "mount", "--config", file, "--store", scratch + "/none", scratch],
                             capture_output=True, text=True)
    if ran.returncode != 69 or "the store" not in ran.stderr:
        found.append(f"the example of the configuration is refused: {ran.stderr.strip()}")
    return found


def check_counters(page, repository):
    table = (repository / "common/counters.def").read_text()
    rows = re.findall(r"^CACHESHIM_(?:COUNTER|READING)\((\w+)", table, re.MULTILINE)
    listed = re.findall(r"^\.It Ic (\w+)$", parts(page, "Sh")["COUNTERS"], re.MULTILINE)
    return differences("counters", set(listed), set(rows))


def check_form(pages):
    if not shutil.which("mandoc"):
        return []
    ran = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", *pages], capture_output=True, text=True)
    return (ran.stdout + ran.stderr).splitlines() if ran.returncode != 0 else []


def offences(program, repository, *generated):
    names = {file.name for file in generated}
    files = [*generated, *(file for file in sorted((repository / "docs/man").iterdir())
                           if file.name not in names)]
    pages = {file.name: file.read_text() for file in files}
    page = pages["cacheshim.1"]
    main, commands = Help(program), all_help(program)
    known = main.options.union(*(one.options for one in commands.values()))
    found = check_commands(page, main, commands)
    found += [line for text in pages.values() for line in check_unknown(text, known)]
    found += check_exit_codes(page, main, repository)
    found += check_variables(page, main)
    found += check_counters(page, repository)
    found += check_configuration(pages["cacheshim.toml.5"], program, repository)
    return found + check_form(files)


if __name__ == "__main__":
    lines = offences(sys.argv[1], *map(pathlib.Path, sys.argv[2:]))
    print("\n".join(lines) or "the manual pages say what the program does")
    sys.exit(1 if lines else 0)
