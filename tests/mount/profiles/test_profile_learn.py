# SPDX-License-Identifier: Apache-2.0
"""`cacheshim profile learn`: verifies its drafts for programs whose profiles are known."""

import os
import shutil
import subprocess
import sys
import tomllib

import mounts
import pytest

FAILED, USAGE = 1, 2

# Programs that write their caches as Triton and DeepGEMM do (profiles/triton.toml and deepgemm.toml cite the sources),
# and one that uses a lock file, a shared file and a baton.
PROGRAMS = {
    "triton": """
import os, pathlib, uuid
cache = pathlib.Path(os.environ["X_CACHE"])
for key, names in (("A" * 40 + "234567", ["k.ttir", "k.cubin", "__grp__k.json"]),
                   ("B" * 40 + "234567", ["__triton_launcher.so"])):
    directory = cache / key
    if (directory / names[-1]).exists():
        (directory / names[-1]).read_bytes()
        continue
    directory.mkdir(exist_ok=True)
    (directory / names[-1]).exists()
    for name in names:
        temporary = directory / f"tmp.pid_{os.getpid()}_{uuid.uuid4()}"
        temporary.mkdir()
        (temporary / name).write_text(f'{{"k.cubin": "{directory}/k.cubin"}}')
        (temporary / name).replace(directory / name)
        temporary.rmdir()
""",
    "deepgemm": """
import os, pathlib, uuid
cache = pathlib.Path(os.environ["X_CACHE"])
for name in ("kernel.one.0123456789abcdef0123456789abcdef", "kernel.two.fedcba9876543210fedcba9876543210"):
    if (cache / "cache" / name / "kernel.cubin").exists():
        continue
    temporary = cache / "tmp" / str(uuid.uuid4())
    temporary.mkdir(parents=True)
    for file in ("kernel.cu", "kernel.cubin"):
        (temporary / file).write_text(file)
    (cache / "cache").mkdir(exist_ok=True)
    temporary.rename(cache / "cache" / name)
""",
    "locking": """
import os, pathlib, fcntl
cache = pathlib.Path(os.environ["X_CACHE"])
with open(cache / "index.lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    index = cache / "index.json"
    text = index.read_text() if index.exists() else ""
    index.write_text(text + "x")
baton = os.open(cache / "build_lock", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
os.unlink(cache / "build_lock")
""",
}


def learn(*words, **options):
    return mounts.run(mounts.PROGRAM, "profile", "learn", *words, **options)


def learned(tmp_path, *words, name="learned"):
    """Learns a profile from a command, and asserts that it passes `profile check`; returns it parsed and as text."""
    output = tmp_path / "learned.toml"
    result = learn("--name", name, *words)
    assert result.returncode == 0, result.stderr
    output.write_text(result.stdout)
    checked = mounts.run(mounts.PROGRAM, "profile", "check", output)
    assert checked.returncode == 0, checked.stderr + result.stdout
    return tomllib.loads(result.stdout), result.stdout


def of_program(tmp_path, name):
    return learned(tmp_path, "--variable", "X_CACHE", "--", sys.executable, "-c", PROGRAMS[name])


def test_tritons_writes_give_its_profile(tmp_path):
    profile, text = of_program(tmp_path, "triton")
    assert profile["variable"] == "X_CACHE" and profile["evidence"] == "guess"
    assert profile["entry"] == [{"path": "*", "complete": ["__grp__k.json"], "complete_single": ["__triton_launcher.so"],
                                 "renamed": True, "paths_in": ["__grp__k.json"]}]
    assert profile["class"] == {"scratch": ["tmp.pid_*_????????-????-????-????-????????????"]}
    assert '# flight = ["__grp__k.json"]' in text or '"__grp__k.json"' in text.split("# flight", 1)[1]
    assert "The second run read" in text and "wrote again" not in text


def test_a_staged_directory_is_an_entry(tmp_path):
    profile, _ = of_program(tmp_path, "deepgemm")
    assert profile["entry"] == [{"path": "cache/*", "renamed": True}]
    assert profile["class"] == {"scratch": ["????????-????-????-????-????????????"]}


def test_locks_batons_and_shared_files_are_distinguished(tmp_path):
    profile, text = of_program(tmp_path, "locking")
    assert profile["class"] == {"lock": ["index.lock"], "baton": ["build_lock"]}
    assert "entry" not in profile
    assert "Read and written again" in text and "index.json" in text


@pytest.mark.parametrize("check, is_expected", [("os.path.exists(path)", True), ("None", False)])
def test_only_the_programs_own_lookup_is_a_flight(tmp_path, check, is_expected):
    program = f"""
import os
os.makedirs(os.environ["X_CACHE"] + "/0123456789abcdef", exist_ok=True)
path = os.environ["X_CACHE"] + "/0123456789abcdef/kernel.so"
{check}
open(path, "w").close()
"""
    _, text = learned(tmp_path, "--variable", "X_CACHE", "--", sys.executable, "-c", program)
    assert ('# flight = ["kernel.so"]' in text) == is_expected


def test_filelock_is_a_lock(tmp_path):
    program = """
import os, filelock
with filelock.FileLock(os.environ["X_CACHE"] + "/a.lock"):
    open(os.environ["X_CACHE"] + "/a", "w").close()
"""
    profile, _ = learned(tmp_path, "--variable", "X_CACHE", "--", sys.executable, "-c", program)
    assert profile["class"]["lock"] == ["a.lock"]


def test_ccaches_results_are_entries_of_files(tmp_path):
    source = tmp_path / "one.c"
    source.write_text("int one(void) { return 1; }\n")
    profile, _ = learned(tmp_path, "--variable", "CCACHE_DIR", "--", "ccache", "cc", "-c", source,
                         "-o", tmp_path / "one.o", name="ccache")
    entries = [entry for entry in profile["entry"] if entry.get("files") == [""] and entry["renamed"]]
    assert entries and all(entry["path"].startswith("?/") for entry in entries)
    assert any(".tmp." in pattern for pattern in profile["class"]["scratch"])


def test_the_real_directory_is_neither_seen_nor_changed(tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "mine").write_text("mine")
    result = learn("--cache", cache, "--name", "x", "--", "sh", "-c", f"ls {cache}; echo > {cache}/new")
    assert result.returncode == 0 and "mine" not in result.stderr
    assert f'default_paths = ["{cache}"]' in result.stdout
    assert os.listdir(cache) == ["mine"] and not mounts.is_mounted(cache)


@pytest.mark.usefixtures("device")
def test_a_users_own_call_needs_no_root(scratch):
    shutil.chown(scratch, 20001)
    program = [mounts.PROGRAM, "profile", "learn", "--variable", "X_CACHE", "--", "sh", "-c", "echo > $X_CACHE/a"]
    result = subprocess.run([str(word) for word in program], user=20001, group=20001, extra_groups=[], text=True,
                            capture_output=True, env={"PATH": os.environ["PATH"], "TMPDIR": str(scratch)}, check=False)
    assert result.returncode == 0, result.stderr
    assert "evidence" in result.stdout and os.listdir(scratch) == ["fuse"]


def test_a_failing_command_gives_no_profile():
    result = learn("--variable", "X_CACHE", "--", "sh", "-c", "echo > $X_CACHE/a; exit 7")
    assert result.returncode == FAILED and "'sh' failed with exit code 7" in result.stderr
    assert result.stdout == ""


def test_the_commands_output_goes_to_stderr():
    result = learn("--variable", "X_CACHE", "--", "sh", "-c", "echo > $X_CACHE/a; echo sa''id")
    assert result.returncode == 0 and "said" in result.stderr and "said" not in result.stdout


@pytest.mark.parametrize("words, code, message", [
    (["--variable", "X_CACHE", "--", "true"], FAILED, "'true' created no file below"),
    (["--variable", "X_CACHE"], USAGE, "needs a COMMAND"),
    (["--", "true"], USAGE, "which cache?"),
])
def test_wrong_calls_are_explained(words, code, message):
    result = learn(*words)
    assert result.returncode == code and message in result.stderr
    assert len(result.stderr.splitlines()) == 1
