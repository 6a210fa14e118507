# SPDX-License-Identifier: Apache-2.0
"""`cacheshim remote`: entries go from one machine's store to another's through an engine."""

import json
import os
import pathlib
import shutil
import subprocess

import mounts
import pytest
from sites import Site, files_of, make_kernel, prefix_with_helper


def test_entries_reach_another_store(program, scratch, url, key):
    builder = Site(program, scratch, "one", url, key)
    reader = Site(program, scratch, "two", url, signers=str(key.with_suffix(".pub")))
    kernels = [make_kernel(builder.store, f"KEY{number}") for number in range(3)]
    assert builder.remote("push") == {"pushed": kernels, "present": [], "failed": []}
    assert builder.remote("push", kernels[0]) == {"pushed": [], "present": kernels[:1], "failed": []}
    assert reader.remote("ls") == {"entries": kernels}
    assert reader.remote("get", kernels[1]) == {"fetched": kernels[1:2], "present": [], "failed": []}
    assert reader.remote("get") == {"fetched": [kernels[0], kernels[2]], "present": kernels[1:2], "failed": []}
    assert files_of(reader.store) == files_of(builder.store)
    assert reader.remote("verify") == {"valid": kernels, "failed": []}
    records = [json.loads(line) for file in (reader.store / ".cacheshim/audit").iterdir()
               for line in file.read_text().splitlines()]
    assert {record["entry"] for record in records if record["job"] == "remote"} == set(kernels)


def test_a_removed_entry_is_gone(program, scratch, url, key):
    site = Site(program, scratch, "one", url, key)
    kernel = make_kernel(site.store, "KEY")
    site.remote("push")
    assert site.remote("rm", kernel) == {"removed": [kernel], "failed": []}
    result = site.remote("get", kernel, check=False)
    assert result.returncode == 0, "the store has it"
    shutil.rmtree(site.store / "triton")
    result = site.remote("get", kernel, check=False)
    assert result.returncode == 1 and f"'{kernel}' is not in the remote tier" in result.stderr
    assert site.remote("rm", kernel, check=False).returncode == 1
    assert site.remote("ls") == {"entries": []}


def test_only_allowed_signers_are_believed(program, scratch, directory_url, key):
    other_key = scratch / "other.key"
    assert mounts.run(program, "remote", "keygen", other_key).returncode == 0
    stranger = Site(program, scratch, "one", directory_url, other_key)
    kernel = make_kernel(stranger.store, "KEY")
    stranger.remote("push")
    reader = Site(program, scratch, "two", directory_url, signers=key.with_suffix(".pub").read_text().strip())
    for command in ("get", "verify"):
        result = reader.remote(command, check=False)
        assert result.returncode == 1
        assert kernel in result.stderr and len(result.stderr.splitlines()) == 1
    assert not (reader.store / "triton").exists()


def test_an_entry_of_an_older_generation_is_not_seen(program, scratch, directory_url, key):
    site = Site(program, scratch, "one", directory_url, key)
    make_kernel(site.store, "KEY")
    site.remote("push")
    site.write_config({**site.lines, "generation": 1})
    assert site.remote("ls") == {"entries": []}


def objects_of(directory_url):
    objects = pathlib.Path(directory_url.removeprefix("file://"), "objects")
    return [path for path in objects.rglob("*") if path.is_file()]


@pytest.mark.parametrize("damage", ["flipped", "truncated", "other object"])
def test_a_damaged_object_never_becomes_visible(program, scratch, directory_url, key, damage):
    builder = Site(program, scratch, "one", directory_url, key)
    make_kernel(builder.store, "KEY0")
    builder.remote("push")
    target, = objects_of(directory_url)
    data = bytearray(target.read_bytes())
    if damage == "other object":  # the valid object of another entry, under this entry's key
        make_kernel(builder.store, "KEY1")
        builder.remote("push")
        other, = set(objects_of(directory_url)) - {target}
        whole = other.read_bytes()
        body = whole[whole.index(b"CSHIMOB1"):]
        key_line = bytes(data).split(b"\n")[1]
        data = b"cacheshim object 1 %016x\n%s\n%s" % (len(body), key_line, body)
    elif damage == "flipped":
        data[-10] ^= 1
    else:
        del data[-10:]
    target.chmod(0o644)
    target.write_bytes(data)
    reader = Site(program, scratch, "two", directory_url, signers=str(key.with_suffix(".pub")))
    for command in ("get", "verify"):
        result = reader.remote(command, "triton/KEY0", check=False)
        assert result.returncode == 1, result.stdout
        assert "'triton/KEY0'" in result.stderr and len(result.stderr.splitlines()) == 1
    assert not (reader.store / "triton/KEY0").exists()
    assert not list((reader.store / ".cacheshim/staging").rglob("*.cubin"))


@pytest.mark.parametrize("words, message", [
    ({"url": "ftp://x/y"}, "must begin with redis://"),
    ({"url": "redis://user:hunter2@host"}, "must not contain a user or password"),
    ({"url": "redis://host:notaport"}, "'notaport' is not a port"),
    ({"url": "file://relative/path"}, "must be file:///DIRECTORY"),
])
def test_a_wrong_url_is_reported_in_one_line(program, scratch, words, message):
    site = Site(program, scratch, "one", **words)
    result = site.remote("ls", check=False)
    assert result.returncode == 1
    assert message in result.stderr and len(result.stderr.splitlines()) == 1
    assert "hunter2" not in result.stderr


@pytest.mark.parametrize("words, message", [
    ('url = []', "must be a URL or an array of two URLs"),
    ('url = "file:///x"\nuser = "root"', "must not be root"),
    ('url = "file:///x"\ntimeout_ms = 0', "must be from 1 to 60000"),
    ('url = "file:///x"\nsign_with = "key"', "must be an absolute path"),
    ('url = "file:///x"\npassword = "x"', "unknown key"),
])
def test_a_wrong_configuration_is_reported_with_its_line(program, scratch, words, message):
    config = scratch / "wrong.toml"
    config.write_text(f"[remote]\n{words}\n")
    result = mounts.run(program, "remote", "ls", "--config", config)
    assert result.returncode == 2
    assert f"{config}:" in result.stderr and message in result.stderr


def test_an_engine_that_does_not_answer_is_reported(program, scratch):
    site = Site(program, scratch, "one", f"redis+unix://{scratch}/absent.sock")
    result = site.remote("ls", check=False)
    assert result.returncode == 69
    assert len(result.stderr.splitlines()) == 1 and "absent.sock" in result.stderr


FAKE_HELPER = """
    if %(dies)r:
        sys.exit()
    page = os.memfd_create("page", os.MFD_ALLOW_SEALING)
    os.write(page, b"[]")
    fcntl.fcntl(page, fcntl.F_ADD_SEALS, ALL_SEALS)
    reply = json.dumps({"id": request["id"], "position": "1", "last": False}).encode()
    peer.sendmsg([reply], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [page]))])
    os.close(page)
"""


@pytest.mark.parametrize("dies, message", [(False, "its list of entries does not end"), (True, "it ended")])
def test_a_command_ends_whatever_the_helper_does(program, scratch, dies, message):
    prefix = prefix_with_helper(program, scratch, FAKE_HELPER % {"dies": dies})
    site = Site(prefix / "bin/cacheshim", scratch, "one", "file:///anywhere")
    result = site.remote("ls", check=False)
    assert result.returncode in (1, 69)
    assert message in result.stderr and len(result.stderr.splitlines()) == 1


def test_a_missing_directory_is_not_created(program, scratch):
    site = Site(program, scratch, "one", f"file://{scratch}/absent")
    assert site.remote("ls", check=False).returncode == 69
    assert not (scratch / "absent").exists()


def test_without_a_remote_tier_the_commands_say_so(program, scratch):
    config = scratch / "empty.toml"
    config.write_text("")
    result = mounts.run(program, "remote", "ls", "--config", config)
    assert result.returncode == 2 and "no remote tier" in result.stderr


def test_nothing_is_pushed_without_a_key(program, scratch, directory_url):
    result = Site(program, scratch, "one", directory_url).remote("push", check=False)
    assert result.returncode == 2 and "sign_with" in result.stderr


def test_keys_are_protected(program, scratch, directory_url, key):
    assert key.stat().st_mode & 0o777 == 0o600
    assert mounts.run(program, "remote", "keygen", key).returncode == 1, "an existing file is not replaced"
    key.chmod(0o640)
    result = Site(program, scratch, "one", directory_url, key).remote("push", check=False)
    assert result.returncode == 1 and str(key) in result.stderr
    secrets = scratch / "secrets"
    secrets.write_text('password = "x"\n')
    secrets.chmod(0o644)
    site = Site(program, scratch, "two", directory_url, secrets=str(secrets))
    result = site.remote("ls", check=False)
    assert result.returncode == 1 and "must be 0600 or stricter" in result.stderr
    secrets.chmod(0o600)
    assert site.remote("ls") == {"entries": []}
    os.chown(secrets, 20001, 20001)
    result = site.remote("ls", check=False)
    assert result.returncode == 1 and "belongs to the user 20001" in result.stderr


@pytest.mark.parametrize("before", [[], ["setpriv", "--securebits", "+no_setuid_fixup"]],
                         ids=["plain", "as the daemon"])
def test_the_helper_has_no_privileges(program, scratch, directory_url, key, before):
    """The helper runs as nobody, without capabilities, and cannot gain privileges. The daemon's securebits, which the
    helper inherits, let setresuid(2) keep the capabilities."""
    site = Site(program, scratch, "one", directory_url, key)
    for number in range(20):
        make_kernel(site.store, f"KEY{number}", 100_000)
    command = subprocess.Popen([*before, program, "remote", "push", "--config", site.config, "--store", site.store],
                               stdout=subprocess.DEVNULL)
    helper = None
    while command.poll() is None and helper is None:
        for status in pathlib.Path("/proc").glob("[0-9]*/status"):
            try:
                lines = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
            except OSError:
                continue
            is_helper = lines["Name"].startswith("cacheshim-remot") and lines["PPid"].strip() == str(command.pid)
            if is_helper and lines["Threads"].strip() != "1":
                helper = lines
    assert command.wait(60) == 0
    assert helper is not None, "the helper was not seen"
    assert set(helper["Uid"].split()) == {"65534"} and set(helper["Gid"].split()) == {"65534"}
    assert helper["Groups"].strip() == "" and helper["NoNewPrivs"].strip() == "1"
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(helper[name], 16) == 0, name
