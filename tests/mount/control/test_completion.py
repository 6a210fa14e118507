# SPDX-License-Identifier: Apache-2.0
"""Tests the scripts that `cacheshim completion` prints, each in its shell, and the output of `cacheshim
preload-path`."""

import shutil
import subprocess

import mounts
import pytest


def bash(script, words):
    return ["bash", "--norc", "-c", f'. "$0" && COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) && '
            'printf complete: && complete -p cacheshim && _cacheshim cacheshim "${@: -1}" && '
            'printf "%s\\n" "${COMPREPLY[@]}"', script, *words]


def zsh(script, words):
    # zsh's completion system runs the script, which passes its candidates to _describe. Here, _describe prints them.
    return ["zsh", "-f", "-c", "_describe() { print -rl -- $candidates }; script=$1; shift; words=($@) CURRENT=$#; "
            ". $script", "zsh", script, *words]


def fish(script, words):
    return ["fish", "--no-config", "-c", "source $argv[1]; complete -C (string join ' ' -- $argv[2..])", script, *words]


@pytest.fixture(params=[bash, zsh, fish], ids=lambda shell: shell.__name__)
def completed(request, program, scratch):
    """completed(WORD…) returns the lines that the shell offers for the last word."""
    script = scratch / "script"
    script.write_text(mounts.run(program, "completion", request.param.__name__).stdout)

    def complete(*words):
        argv = [str(part) for part in request.param(script, ["cacheshim", *words])]
        result = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
        assert (result.returncode, result.stderr) == (0, "")
        return result.stdout

    return complete


def test_commands_are_completed(completed):
    offered = completed("")
    assert "status" in offered and "doctor" in offered
    assert "umount-as-helper" not in offered


def test_subcommands_are_completed(completed):
    offered = completed("job", "")
    assert "start" in offered and "publish" in offered
    assert "doctor" not in offered


def test_options_of_a_subcommand_are_completed(completed):
    offered = completed("job", "end", "--")
    assert "success" in offered and "cycle" in offered
    assert "dry-run" not in offered


def test_the_librarys_path_is_printed_only_if_it_is_there(program, library, scratch):
    printed = mounts.run(program, "preload-path")
    assert (printed.returncode, printed.stdout) == (0, f"{library}\n")
    alone = scratch / "bin/cacheshim"
    alone.parent.mkdir()
    shutil.copy(program, alone)
    missing = mounts.run(alone, "preload-path")
    assert (missing.returncode, missing.stdout) == (69, "")
    assert missing.stderr == f"cacheshim: no library at '{scratch}/lib/libcacheshim.so'; install it there\n"


def test_an_unknown_shell_is_a_usage_error(program):
    result = mounts.run(program, "completion", "tcsh")
    assert result.returncode == 2
    assert "tcsh" in result.stderr and len(result.stderr.splitlines()) == 1
