# SPDX-License-Identifier: Apache-2.0
"""An ordinary user mounts and runs commands without root, in a user and mount namespace."""

import os

import pytest
from jobs import PYTHON, as_user

USER = 20001

# Runs on the private mount: writes an entry, finds it again, leaves an incomplete entry, and prints the keys.
WORK = """
import os, sys
sys.path.insert(0, os.path.dirname(sys.argv[1]))
import agent_caches as agent
top = sys.argv[2] if len(sys.argv) > 2 else os.environ.get("CACHESHIM_MOUNT", "/ci-cache")
assert agent.triton_put_groups(top + "/triton", ["KEY"], b"rootless") == []
assert agent.triton_put_groups(top + "/triton", ["KEY"], b"rootless") == []
agent.triton_put(top + "/triton/HALF", "kernel.cubin", b"half")
os.chmod(top + "/triton/HALF/kernel.cubin", 0o600)
os.utime(top + "/triton/HALF/kernel.cubin")
print(sorted(os.listdir(top + "/triton")))
"""


@pytest.fixture
def users_store(scratch):
    store = scratch / "users-store"
    (store / "triton/OLD").mkdir(parents=True)
    (store / "triton/OLD/kernel.cubin").write_bytes(b"from before")
    for path in (store, *store.rglob("*")):
        os.chown(path, USER, USER)
    return store


@pytest.fixture
def runtime(scratch):
    directory = scratch / "runtime"
    directory.mkdir(mode=0o700)
    os.chown(directory, USER, USER)
    return {"XDG_RUNTIME_DIR": str(directory)}


def check_base(store):
    assert len(list((store / "triton/KEY").iterdir())) == 6
    assert not (store / "triton/HALF").exists()
    assert (store / "triton/OLD/kernel.cubin").read_bytes() == b"from before"
    assert {path.stat().st_uid for path in store.rglob("*")} == {USER}


@pytest.mark.usefixtures("device")
def test_a_user_mounts_in_a_namespace_of_its_own(program, users_store, runtime, scratch, agent):
    point = scratch / "point"
    point.mkdir()
    os.chown(point, USER, USER)
    script = ('"$1" mount --store "$2" "$3" && "$4" -I -c "$5" "$6" "$3" && "$1" unmount "$3"')
    result = as_user(USER, ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script,
                            "sh", program, users_store, point, PYTHON, WORK, agent],
                     job="rootless", env=runtime)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.splitlines()[-1] == "['HALF', 'KEY', 'OLD']"
    check_base(users_store)


@pytest.mark.usefixtures("device", "library")
def test_run_with_a_store_mounts_for_its_command_alone(program, users_store, runtime, agent):
    result = as_user(USER, [program, "run", "--store", users_store, "--", PYTHON, "-I", "-c",
                            WORK, agent], env=runtime)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.splitlines()[-1] == "['HALF', 'KEY', 'OLD']"
    check_base(users_store)


@pytest.mark.usefixtures("device", "library")
def test_a_helper_of_the_daemon_is_no_process_that_the_command_left(program, users_store, runtime, scratch):
    config = scratch / "config/cacheshim"
    config.mkdir(parents=True)
    tier = scratch / "tier"
    tier.mkdir()
    os.chown(tier, USER, USER)
    (config / "cacheshim.toml").write_text(f'[remote]\nurl = "file://{tier}"\n')
    result = as_user(USER, [program, "run", "--store", users_store, "--", program, "status", "--json"],
                     env={**runtime, "XDG_CONFIG_HOME": str(scratch / "config")})
    assert result.returncode == 0 and '"used":true' in result.stdout, result.stdout + result.stderr
    assert "ending them" not in result.stderr


@pytest.mark.usefixtures("device", "library")
def test_a_mount_of_a_single_user_also_publishes_what_a_umask_closes(program, users_store, runtime, agent):
    result = as_user(USER, ["sh", "-c", 'umask 077; exec "$@"', "sh", program, "run", "--store", users_store, "--",
                            PYTHON, "-I", "-c", WORK, agent], env=runtime)
    assert result.returncode == 0, result.stdout + result.stderr
    check_base(users_store)
    assert {path.stat().st_mode & 0o777 for path in (users_store / "triton/KEY").iterdir()} == {0o600}


@pytest.mark.usefixtures("device", "library")
def test_run_returns_the_commands_own_exit_code(program, users_store, runtime):
    result = as_user(USER, [program, "run", "--store", users_store, "--", "sh", "-c", "exit 7"],
                     env=runtime)
    assert result.returncode == 7, result.stderr


@pytest.mark.usefixtures("device")
def test_processes_that_the_command_leaves_running_are_reported_and_killed(program, users_store, runtime, scratch):
    """Processes that remain would keep the private mount busy. The exit code is the command's."""
    # Waits until the shell's child has executed `sleep`.
    sleeps = "until read name < /proc/$!/comm; [ $name = sleep ]; do :; done"
    script = f"sleep 1000 > /dev/null 2>&1 & echo $! > pid; {sleeps}; exit 3"
    own = scratch / "own"
    own.mkdir()
    os.chown(own, USER, USER)
    result = as_user(USER, [program, "run", "--store", users_store, "--", "sh", "-c", f"cd {own}; {script}"],
                     env=runtime)
    assert result.returncode == 3
    assert len(result.stderr.splitlines()) == 1
    assert f"sleep (pid {(own / 'pid').read_text().strip()}, running); ending them" in result.stderr
    assert not os.path.exists(f"/proc/{(own / 'pid').read_text().strip()}")
