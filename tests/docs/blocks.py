# SPDX-License-Identifier: Apache-2.0
"""Finds the blocks of a document: lines that are indented by four spaces, and lines between two fences (```). In a
manual page, these are the literal displays."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Block:
    """A block without its indentation or fences, with its place in the document."""

    document: str
    line: int
    heading: str
    text: str

    def __str__(self):
        return f"{self.document}:{self.line}"

    def commands(self):
        """Yields the commands of a shell block, each with its continuation lines."""
        command = ""
        for line in self.text.splitlines():
            command += line
            if command.endswith("\\"):
                command += "\n"
            elif command.strip():
                yield command
                command = ""


def blocks_of(path, name):
    """Returns the blocks of the document at `path` in order; `name` becomes their `document`."""
    return blocks_of_text(path, name) if path.suffix == ".md" else blocks_of_manual(path, name)


def blocks_of_manual(path, name):
    found, heading, lines = [], "", None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.startswith(".Sh "):
            heading = line[len(".Sh "):]
        elif line.startswith(".Bd -literal"):
            start, lines = number + 1, []
        elif line == ".Ed":
            found.append(Block(name, start, heading, "\n".join(lines) + "\n"))
            lines = None
        elif lines is not None:
            lines.append(line)
    return found


def blocks_of_text(path, name):
    found, heading, start, lines, fenced = [], "", 0, [], False

    def end():
        while lines and not lines[-1]:
            lines.pop()
        if lines:
            found.append(Block(name, start, heading, "\n".join(lines) + "\n"))
        lines.clear()

    before = ""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.startswith("```"):
            end()
            fenced, start = not fenced, number + 1
        elif fenced:
            lines.append(line)
        elif line.startswith("    ") and (lines or not before):
            start = start if lines else number
            lines.append(line[4:])
        elif lines and not line:
            lines.append("")
        else:
            end()
            heading = line.lstrip("# ") if line.startswith("#") else heading
        before = line
    end()
    return found
