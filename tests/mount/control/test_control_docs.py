# SPDX-License-Identifier: Apache-2.0
"""docs/control.md documents every key that the daemon writes into its JSON."""

import json
import pathlib
import re

import pytest

REPOSITORY = pathlib.Path(__file__).parents[3]
DOCUMENT = REPOSITORY / "docs/control.md"


def section(heading):
    """Returns the text below a heading, up to the next heading of any level."""
    text = DOCUMENT.read_text()
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", text, re.M | re.S)
    assert found, f"{DOCUMENT} has no section '{heading}'"
    return found[1]


def documented(heading):
    return set(re.findall(r"`([a-z_0-9]+)`", section(heading)))


def keys(value):
    """Returns the keys of an object, or of all objects in an array."""
    objects = value if isinstance(value, list) else [value]
    return {key for one in objects for key in one}


def control_file(mount, name):
    return json.loads((mount.path / ".cacheshim" / name).read_text())


def flights_of(mount, job):
    assert not job("create_and_look_up", job.path("triton/KEY"), "stub.so")
    return control_file(mount, "flights")


PARTS = {
    "Status": lambda mount, job: control_file(mount, "status"),
    "A job": lambda mount, job: control_file(mount, "jobs/one"),
    "Flights": flights_of,
    "Profiles": lambda mount, job: control_file(mount, "profiles"),
}


@pytest.mark.parametrize("heading", PARTS)
def test_every_key_of_a_control_file_is_documented(mount, job_of, heading):
    job = job_of(mount, "one", 20001)
    job.write("triton/mine", b"x")
    found = keys(PARTS[heading](mount, job))
    assert found, "the daemon gave nothing to check"
    assert found - documented(heading) == set(), "keys that docs/control.md lacks"


@pytest.mark.parametrize("heading", ["Status", "A job", "Flights"])
def test_every_documented_key_of_a_control_file_exists(mount, job_of, heading):
    job = job_of(mount, "one", 20001)
    job.write("triton/mine", b"x")
    named = set(re.findall(r"^\| `([a-z_0-9]+)` \|", section(heading), re.M))
    assert named - keys(PARTS[heading](mount, job)) == set(), "keys that no daemon gives"


def test_the_counters_are_those_of_the_table(mount):
    """Verifies that the daemon has exactly the counters of common/counters.def. The manual page's list is generated
    from the same file."""
    table = (REPOSITORY / "common/counters.def").read_text()
    rows = re.findall(r"^CACHESHIM_(?:COUNTER|READING)\((\w+)", table, re.M)
    assert list(control_file(mount, "stats")) == rows


def test_every_kind_of_entry_and_class_of_a_profile_is_documented(mount):
    profiles = control_file(mount, "profiles")
    found = set()
    for profile in profiles:
        found |= keys(profile["entry"]) | keys(profile["class"])
    assert found - documented("Profiles") == set()


def test_the_list_of_jobs_has_the_keys_of_a_job(mount, job_of):
    job_of(mount, "one", 20001).write("triton/mine", b"x")
    listed = next(one for one in json.loads(mount.cli("job", "list", "--json").stdout)
                  if one["job"] == "one")
    assert list(listed) == list(control_file(mount, "jobs/one"))
    assert listed == control_file(mount, "jobs/one")
    assert listed == mount.ask(op="job-show", job="one")["job"]
    rows = mount.ask(op="job-list", rows=True)
    assert set(rows["columns"]) <= set(listed)


def test_every_key_of_an_answer_about_a_job_is_documented(mount, job_of):
    text = section("Requests")
    job_of(mount, "one", 20001).write("triton/mine", b"x")
    for request in ({"op": "job-layer"}, {"op": "job-publish", "dry_run": True},
                    {"op": "job-discard", "dry_run": True}, {"op": "job-publish"},
                    {"op": "job-discard"}, {"op": "job-end", "outcome": "success", "run": False}):
        answer = mount.ask(job="one", **request)
        assert "error" not in answer, answer
        row = next(line for line in text.splitlines() if line.startswith(f"| `{request['op']}`"))
        lacking = {key for key in answer if key != "ok" and f"`{key}`" not in row}
        assert lacking == set(), request
