# SPDX-License-Identifier: Apache-2.0
"""Runs the blocks of README.md, docs/*.md and the manual pages in order and as they are printed. Each document gets its
own fresh root, which simulates a new machine."""

import pathlib
import re

import mounts
import printed
import pytest
from blocks import blocks_of
from fresh_root import FreshRoot

TESTS = mounts.REPOSITORY / "tests/docs"
DOCUMENTS = {str(path.relative_to(mounts.REPOSITORY)): path for path in
             [mounts.REPOSITORY / "README.md", *sorted(mounts.REPOSITORY.glob("docs/*.md")),
              *sorted(mounts.REPOSITORY.glob("docs/man/*"))]}
CONFIGURATION = "/etc/cacheshim/cacheshim.toml"
# `doctor` also reports problems of this machine, so its exit code 1 is accepted.
DOCTOR = "cacheshim doctor"


def rows_of(name):
    """Returns a list of (block, its row or None) for a document, and the keys of the rows that match no block."""
    rows = dict(printed.DOCUMENTS.get(name, {}))
    found, used = [], set()
    for block in blocks_of(DOCUMENTS[name], name):
        keys = [(heading, start) for heading, start in rows
                if heading == block.heading and block.text.lstrip().startswith(start)]
        found.append((block, rows[keys[0]] if keys else None))
        used.update(keys)
    return found, rows.keys() - used


class Machine:
    """A fresh root in which the rows of a document are run."""

    def __init__(self, scratch, program):
        self.root = FreshRoot(scratch, TESTS / "enter-fresh-root.sh", mounts.REPOSITORY)
        self._places = {"@tests@": TESTS, "@repository@": mounts.REPOSITORY,
                        "@dist@": program.parents[1]}

    def run(self, where, user, command, says=None):
        """Runs a command, asserts that it succeeds, and returns its output. Every line on stderr must contain `says`;
        if `says` is empty, stderr must be empty; if it is None, stderr is not checked."""
        ended = self.root.shell(user).run(command)
        lines = [line for line in ended.err.splitlines() if not says or says not in line]
        assert says is None or not lines, f"{where}: `{command}` as {user}: {lines[-20:]}"
        good = {0, 1} if command.startswith(DOCTOR) else {0}
        assert ended.status in good, (f"{where}: `{command}` as {user}: exit {ended.status}\n"
                                   f"{ended.out[-2000:]}{ended.err[-2000:]}")
        return ended.out

    def prepare(self, where, script):
        """Runs a row's script as root, with the paths of this run instead of the @marks@."""
        for mark, path in self._places.items():
            script = script.replace(mark, str(path))
        if script.strip():
            self.run(where, "root", script)

    def write(self, where, path, text):
        self.run(where, "root", f"mkdir -p $(dirname {path}) && cat > {path} <<'END'\n{text}END")

    def try_configuration(self, where, text):
        """Verifies that a mount starts with `text` as cacheshim.toml, and unmounts it."""
        self.write(where, CONFIGURATION, text)
        self.run(where, "root", "mkdir -p /tmp/point /tmp/store; "
                 "cacheshim mount --store /tmp/store /tmp/point && cacheshim unmount /tmp/point")
        self.run(where, "root", f"rm {CONFIGURATION}")


def run_block(machine, block, row):
    commands = [block.text] if isinstance(row, printed.Script) else list(block.commands())
    machine.prepare(block, row.given)
    if row.setting:
        machine.run(block, row.user, row.setting)
    if isinstance(row, printed.Script):
        assert_is_quoted(block, row.file)
        machine.write(block, "/tmp/script", block.text)
        commands = ["SLURM_JOB_ID=4711 bash /tmp/script"]
    unused, printed_text = set(row.stand_ins), ""
    for command in commands:
        for name, value in row.placeholders.items():
            command = command.replace(name, value)
        if command in row.stand_ins:
            unused.remove(command)
            machine.prepare(block, row.stand_ins[command][0])
        else:
            printed_text += machine.run(block, row.user, command, says=row.says)
    assert not unused, f"{block}: no such commands: {unused}"
    assert row.prints in printed_text, f"{block} printed {printed_text!r}, without {row.prints!r}"
    for user, command, text in row.then:
        out = machine.run(block, user, command)
        assert text in out, f"{block}: `{command}` as {user} printed {out!r}, without {text!r}"


def assert_is_quoted(block, file):
    lines = [line.strip() for line in (mounts.REPOSITORY / file).read_text().splitlines()]
    missing = [line for line in block.text.splitlines() if line.strip() not in lines]
    assert not missing, f"{block}: not in {file}: {missing}"


def check_synopsis(machine, block):
    words = re.match(r"cacheshim(?: [a-z]+)+", block.text)[0]
    help_text = machine.run(block, "alice", f"{words} --help")
    options = set(re.findall(r"--[a-z][a-z-]*", block.text))
    assert options <= set(re.findall(r"--[a-z][a-z-]*", help_text)), f"{block}: {words} --help"


def compile_block(machine, block, row):
    includes = "".join(f"{line}\n" for line in block.text.splitlines() if line.startswith("#"))
    body = "".join(f"{line}\n" for line in block.text.splitlines() if not line.startswith("#"))
    machine.write(block, "/tmp/block.cc", includes + row.before + body + row.after)
    machine.run(block, "alice", "g++ -std=c++17 -fsyntax-only $(pkg-config --cflags cacheshim-locks) "
                "/tmp/block.cc")


def try_line_of_fstab(machine, block, row):
    machine.prepare(block, row.given)
    machine.run(block, "root", f"cat >> /etc/fstab <<'END'\n{block.text}END")
    machine.run(block, "root", f"mount {row.mount_point}")
    machine.run(block, "root", f"cacheshim status --mount {row.mount_point}")
    machine.run(block, "root", f"cacheshim unmount {row.mount_point}")
    machine.prepare(block, row.after)


def act(machine, block, row):
    if isinstance(row, printed.Run):
        run_block(machine, block, row)
    elif isinstance(row, printed.Configuration):
        machine.prepare(block, row.given)
        machine.try_configuration(block, block.text)
    elif isinstance(row, printed.Profile):
        machine.run(block, row.user, f"cacheshim profile check {row.path}")
    elif isinstance(row, printed.Fstab):
        try_line_of_fstab(machine, block, row)
    elif isinstance(row, printed.Synopsis):
        check_synopsis(machine, block)
    elif isinstance(row, printed.Quoted):
        assert_is_quoted(block, row.file)
    elif isinstance(row, printed.Compiled):
        compile_block(machine, block, row)


@pytest.fixture
def machine(scratch, program, library):
    one = Machine(scratch, pathlib.Path(program))
    yield one
    one.root.close()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_block_is_run_or_listed(name):
    found, unused = rows_of(name)
    assert not [str(block) for block, row in found if row is None], "neither run nor listed"
    assert not unused, "rows of blocks that are not there"


@pytest.mark.timeout_s(300)
@pytest.mark.usefixtures("device")
@pytest.mark.parametrize("name", [name for name in DOCUMENTS if any(
    not isinstance(row, printed.Listed) for _block, row in rows_of(name)[0])])
def test_printed_blocks_do_what_the_document_says(name, machine):
    machine.prepare(name, printed.MACHINE)
    if name != "README.md":
        machine.prepare(name, printed.INSTALLED)
    found, _ = rows_of(name)
    for block, row in found:
        if isinstance(row, printed.Profile):
            machine.write(block, f"/home/{row.user}/{row.path}", block.text)
    for block, row in found:
        act(machine, block, row)


@pytest.mark.usefixtures("device")
def test_the_examples_of_help_work(machine):
    machine.prepare("--help", printed.MACHINE + printed.INSTALLED)
    text = machine.run("--help", "root", "cacheshim --help")
    examples = re.search(r"^Examples:\n((?: .*\n)+)", text, re.MULTILINE)[1]
    commands = [re.split(r"\s{2,}", line.strip())[0] for line in examples.splitlines()]
    unused = set(printed.EXAMPLES)
    for command in commands:
        starts = [start for start in printed.EXAMPLES if command.startswith(start)]
        assert starts, f"no row for `{command}`"
        user, given = printed.EXAMPLES[starts[0]]
        machine.prepare("--help", given)
        machine.run("--help", user, command, says="")
        unused.discard(starts[0])
    assert not unused
