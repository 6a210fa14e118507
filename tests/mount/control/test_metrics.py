# SPDX-License-Identifier: Apache-2.0
"""Tests metrics with Prometheus itself: its parser, its server, the alert rules, and the dashboard's queries."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import mounts
import pytest
from jobs import wait_until

ALERTS = mounts.REPOSITORY / "integrations/prometheus/alerts.yml"
DASHBOARD = mounts.REPOSITORY / "integrations/grafana/cacheshim.json"
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the tests' machine may have a proxy


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def get(port, path="/metrics", method="GET"):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    with DIRECT.open(request, timeout=20) as response:
        return response.read().decode()


@pytest.fixture
def listening(mount_store, store, scratch):
    """listening(port, name) mounts a store that serves its metrics, and returns the mount."""

    def mount(port, name=None):
        config = scratch / f"config-{port}.toml"
        config.write_text(f'[metrics]\nlisten = "127.0.0.1:{port}"\n')
        return mount_store(store, "--config", str(config), name=name)

    return mount


def await_service(mount, problem=None):
    def is_reached():
        found = mount.status()["metrics"]["problem"]
        return found is None if problem is None else problem in (found or "")

    wait_until(is_reached, seconds=20, what=f"metrics with the problem {problem}")


def helper_of(mount):
    helper, = (pid for pid in mounts.processes_naming("cacheshim-metrics")
               if f"\nPPid:\t{mount.daemon_pid()}\n" in pathlib.Path(f"/proc/{pid}/status").read_text())
    return helper


def promtool(*words, text=None):
    return subprocess.run(["promtool", *words], input=text, capture_output=True, text=True, timeout=60, check=False)


def test_promtool_accepts_the_metrics(mount):
    text = mount.cli("metrics").stdout
    same = (mount.path / ".cacheshim/metrics").read_text()
    assert re.sub(r" \d+$", "", text, flags=re.MULTILINE) == re.sub(r" \d+$", "", same, flags=re.MULTILINE)
    checked = promtool("check", "metrics", text=text)
    assert checked.returncode == 0 and not checked.stderr and not checked.stdout, checked.stderr + checked.stdout


def name_of(counter):
    if counter == "jobs_active":
        return counter
    return counter.replace("bytes_", "") + ("_bytes_total" if "bytes_" in counter else "_total")


def test_each_counter_has_its_metric_with_the_value_of_stats(mount, job_of):
    job_of(mount, "one", 20001)("os.listdir", mount.path)
    text = mount.cli("metrics").stdout
    found = {name: int(value) for name, value in
             re.findall(r'^cacheshim_(\w+)\{mount="[^"]*"\} (\d+)$', text, re.MULTILINE)}
    stats = {name_of(counter): value for counter, value in mount.stats().items()}
    changing = {"lookups_total", "misses_total"}  # reading the metrics is a lookup too
    assert {"published_bytes_total", "remote_in_bytes_total", "jobs_active"} <= stats.keys() <= found.keys()
    assert {name: found[name] for name in stats.keys() - changing} == {
        name: value for name, value in stats.items() if name not in changing}
    assert f'mount="{mount.path}"' in text and f'store="{mount.store}"' in text


def test_a_path_with_any_characters_becomes_a_valid_label(mount_store, store):
    odd = mount_store(store, name='a"b\\c\nd\u202ee')
    text = odd.cli("metrics").stdout
    assert '/a\\"b\\\\c\\\\x0ad\\\\xe2\\\\x80\\\\xaee"' in text, text[:400]
    assert promtool("check", "metrics", text=text).returncode == 0


def test_the_textfile_is_replaced_as_a_whole(mount, scratch):
    file = scratch / "cacheshim.prom"
    mount.cli("metrics", "--textfile", file)
    first = file.stat()
    assert first.st_mode & 0o777 == 0o644 and file.read_text().startswith("# HELP cacheshim_info ")
    mount.cli("metrics", "--textfile", file)
    assert file.stat().st_ino != first.st_ino
    assert os.listdir(scratch).count("cacheshim.prom") == 1
    assert not [name for name in os.listdir(scratch) if name.startswith("cacheshim.prom.")]
    refused = mount.cli("metrics", "--textfile", scratch / "absent/file.prom", check=False)
    assert refused.returncode == 1 and refused.stderr.count("\n") == 1
    assert "No such file or directory" in refused.stderr


@pytest.fixture
def prometheus(scratch):
    """prometheus(target) starts a server that reads the target, with the shipped alert rules. Returns a function that
    sends a request to its API."""
    servers = []

    def start(target):
        port = free_port()
        shutil.copy(ALERTS, scratch / "alerts.yml")
        (scratch / "prometheus.yml").write_text(json.dumps({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["alerts.yml"],
            "scrape_configs": [{"job_name": "cacheshim", "static_configs": [{"targets": [target]}]}]}))
        log = open(scratch / "prometheus.log", "w")
        servers.append(subprocess.Popen(
            ["prometheus", f"--config.file={scratch}/prometheus.yml", f"--storage.tsdb.path={scratch}/data",
             f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log))

        def ask(what, **query):
            try:
                return json.loads(get(port, f"/api/v1/{what}?{urllib.parse.urlencode(query)}"))["data"]
            except urllib.error.HTTPError as error:
                raise AssertionError(error.read().decode()) from None

        return ask

    yield start
    for server in servers:
        server.kill()
        server.wait()


def is_up(ask):
    try:
        found = ask("query", query='up{job="cacheshim"}')["result"]
    except (OSError, AssertionError):
        return False  # it has not started yet
    return bool(found) and found[0]["value"][1] == "1"


@pytest.mark.timeout_s(120)
def test_prometheus_reads_a_mount_and_evaluates_the_rules(listening, prometheus):
    port = free_port()
    mount = listening(port)
    await_service(mount)
    ask = prometheus(f"127.0.0.1:{port}")
    wait_until(lambda: is_up(ask), seconds=60, what="Prometheus's first sample")
    info, = ask("query", query="cacheshim_info")["result"]
    assert info["metric"]["mount"] == str(mount.path) and info["metric"]["store"] == str(mount.store)
    wait_until(lambda: all(rule["health"] == "ok" for group in ask("rules")["groups"] for rule in group["rules"]),
               seconds=30, what="the evaluation of all rules")
    assert len(ask("rules")["groups"][0]["rules"]) == ALERTS.read_text().count("- alert:")
    for query in dashboard_queries(mount.path):
        assert ask("query", query=query)["resultType"] == "vector"
    metadata = ask("metadata")
    assert metadata["cacheshim_lookups_total"][0]["type"] == "counter"


def dashboard_queries(path):
    """Yields each query of the dashboard, with values in place of its variables."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            query = target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*")
            yield query.replace("$mount", re.escape(str(path)).replace("\\", "\\\\"))


def test_the_dashboard_and_the_rules_use_only_metrics_that_exist(mount):
    text = mount.cli("metrics").stdout
    documented = (mounts.REPOSITORY / "docs/metrics.md").read_text()
    exist = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    exist |= set(re.findall(r"`(cacheshim_remote_\w+)`", documented))
    for file in (ALERTS, DASHBOARD):
        used = set(re.findall(r"\bcacheshim_\w+", file.read_text()))
        assert used and used <= exist, used - exist


def test_promtool_accepts_the_rules_and_each_rule_fires(scratch):
    assert promtool("check", "rules", ALERTS).returncode == 0
    series = {
        "CacheshimDown": 'up{job="cacheshim"}',
        "CacheshimTextfileOld": 'node_textfile_mtime_seconds{file="/textfiles/cacheshim.prom"}',
        "CacheshimStoreFull": "cacheshim_store_full",
        "CacheshimBuilderExcluded": "cacheshim_excluded_builders",
        "CacheshimLimitReached": "cacheshim_limit_refused_total",
        "CacheshimEntriesRejected": "cacheshim_entries_rejected_total",
        "CacheshimDamagedEntries": "cacheshim_verify_failures_total",
        "CacheshimRemoteUnused": "cacheshim_remote_used",
        "CacheshimRemoteUntrusted": "cacheshim_remote_untrusted_total",
    }
    assert set(re.findall(r"- alert: (\w+)", ALERTS.read_text())) == series.keys()
    # One of ten minutes suffices for a full store: the daemon tries again once a minute.
    bad = {"CacheshimDown": "0x30", "CacheshimTextfileOld": "0x30",
           "CacheshimStoreFull": "0 0 0 0 1 0 0 0 0 0 0 0 1 0x20", "CacheshimBuilderExcluded": "1x30", "CacheshimRemoteUnused": "0x30"}
    good = {"CacheshimDown": "1x30", "CacheshimTextfileOld": "0+60x30", "CacheshimStoreFull": "0x30",
            "CacheshimBuilderExcluded": "0x30", "CacheshimRemoteUnused": "1x30"}
    tests = []
    for is_bad, values in ((True, bad), (False, good)):
        for name, metric in series.items():
            samples = values.get(name, "0+1x30" if is_bad else "5x30")
            tests.append({"interval": "1m",
                          "input_series": [{"series": metric, "values": samples}],
                          "promql_expr_test": [{
                              "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}})', "eval_time": "20m",
                              "exp_samples": [{"labels": "{}", "value": 1}] if is_bad else []}]})
    (scratch / "rules_test.yml").write_text(json.dumps(
        {"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    tested = promtool("test", "rules", scratch / "rules_test.yml")
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_the_helper_has_no_privileges_and_is_started_again(listening):
    port = free_port()
    mount = listening(port)
    await_service(mount)
    helper = helper_of(mount)
    status = pathlib.Path(f"/proc/{helper}/status").read_text()
    assert "\nUid:\t65534\t65534\t65534\t65534\n" in status and "\nGid:\t65534\t65534\t65534\t65534\n" in status
    assert "\nGroups:\t \n" in status and "\nNoNewPrivs:\t1\n" in status
    sets = {line.split()[1] for line in status.splitlines() if line.startswith("Cap") and "Bnd" not in line}
    assert sets == {"0" * 16}
    targets = {os.readlink(f"/proc/{helper}/fd/{fd}") for fd in os.listdir(f"/proc/{helper}/fd")}
    assert not [one for one in targets if one.startswith(str(mount.store))], targets
    os.kill(helper, signal.SIGKILL)
    await_service(mount, "has ended")
    await_service(mount)
    assert "cacheshim_info{" in get(port)
    assert helper_of(mount) != helper
    assert f"served on http://127.0.0.1:{port}/metrics" in mount.cli("status").stdout


def test_an_address_in_use_does_not_prevent_the_mount(listening):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        mount = listening(port)
        await_service(mount, "Address already in use")
        assert f"not served on 127.0.0.1:{port}: Address already in use" in mount.cli("status").stdout
    await_service(mount)
    assert "cacheshim_info{" in get(port)


def test_the_address_is_free_after_an_unmount(listening):
    port = free_port()
    for _ in range(3):
        mount = listening(port)
        await_service(mount)
        get(port)
        helper = helper_of(mount)
        assert mount.unmount().returncode == 0
        wait_until(lambda pid=helper: not os.path.exists(f"/proc/{pid}"), what="the helper's end")


def test_the_helper_of_a_killed_daemon_exits(listening):
    mount = listening(free_port())
    await_service(mount)
    helper = helper_of(mount)
    mount.kill_daemon()
    wait_until(lambda: not os.path.exists(f"/proc/{helper}"), what="the helper's end")


@pytest.mark.parametrize("path,method,code", [
    ("/", "GET", 404), ("/metrics/..", "GET", 404), ("/metrics", "POST", 405), ("/metrics", "DELETE", 405)])
def test_other_requests_are_refused(listening, path, method, code):
    port = free_port()
    await_service(listening(port))
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(port, path, method)
    assert refused.value.code == code


def test_malformed_and_unfinished_requests_prevent_no_answer(listening):
    port = free_port()
    mount = listening(port)
    await_service(mount)
    hostile = []
    for number in range(24):
        one = socket.create_connection(("127.0.0.1", port), timeout=20)
        one.sendall(b"GET /metrics HTTP/1.1\r\nX: " + b"y" * (100_000 if number % 2 else 10))
        hostile.append(one)
    began = time.monotonic()
    assert "cacheshim_info{" in get(port)
    assert time.monotonic() - began < 5
    resident_pages = int(pathlib.Path(f"/proc/{helper_of(mount)}/statm").read_text().split()[1])
    assert resident_pages * os.sysconf("SC_PAGESIZE") < 32 << 20
    for one in hostile:
        one.close()
    for garbage in (b"\0" * 1000, b"\r\n" * 1000, b"GET " + b"/" * 50_000 + b" HTTP/1.1\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as one:
            one.sendall(garbage)
    assert "cacheshim_info{" in get(port)


FLOOD = """#!/usr/bin/python3
import socket, struct
daemon = socket.socket(fileno=3)
number = 0
while True:
    daemon.send(struct.pack("=Q", number))
    number += 1
"""


@pytest.fixture
def flooded(program, scratch, listening, monkeypatch):
    """A mount whose helper sends requests without end, and reads no reply."""
    installed = pathlib.Path(program).parents[1]
    prefix = scratch / "prefix"
    for name in ("share", "libexec"):
        shutil.copytree(installed / name, prefix / name)
    (prefix / "bin").mkdir()
    shutil.copy2(program, prefix / "bin")
    (prefix / "libexec/cacheshim/cacheshim-metrics").write_text(FLOOD)
    monkeypatch.setattr(mounts, "PROGRAM", str(prefix / "bin/cacheshim"))
    mount = listening(free_port())
    wait_until(lambda: mounts.processes_naming("cacheshim-metrics"), what="the helper's start")
    return mount


def test_a_helper_that_floods_the_daemon_stops_none_of_its_work(flooded, job_of):
    job = job_of(flooded, "one", 20001)
    job("triton_put", job.path("triton/KEY"), "k.cubin", b"built")
    assert flooded.end_job("one").returncode == 0
    daemon = flooded.daemon_pid()
    await_service(flooded)  # the daemon now reads the requests
    assert flooded.unmount().returncode == 0
    # The daemon exits only after the call in progress of its event loop.
    wait_until(lambda: not os.path.exists(f"/proc/{daemon}"), what="the daemon's end")


@pytest.mark.usefixtures("device", "library")
def test_a_private_mount_serves_no_metrics(program, scratch, as_user):
    config = scratch / "home/.config/cacheshim"
    config.mkdir(parents=True)
    port = free_port()
    (config / "cacheshim.toml").write_text(f'[metrics]\nlisten = "127.0.0.1:{port}"\n')
    own = scratch / "own"
    (own / "triton").mkdir(parents=True)
    for path in (own, own / "triton"):
        os.chown(path, 20001, 20001)
    shown = as_user(20001, [program, "run", "--store", own, "--", program, "status", "--json"],
                    env={"HOME": str(scratch / "home"), "XDG_CONFIG_HOME": str(scratch / "home/.config")})
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["metrics"] is None


def test_a_stopped_daemon_gives_503(listening):
    port = free_port()
    mount = listening(port)
    await_service(mount)
    daemon = mount.daemon_pid()
    os.kill(daemon, signal.SIGSTOP)
    try:
        with pytest.raises(urllib.error.HTTPError) as refused:
            get(port)
    finally:
        os.kill(daemon, signal.SIGCONT)
    assert refused.value.code == 503
    for _ in range(2):  # late replies to the first request are not taken for replies to these
        assert "cacheshim_info{" in get(port)


def test_a_wrong_address_is_reported_with_its_line(store, scratch):
    config = scratch / "config.toml"
    config.write_text('[metrics]\nlisten = "localhost:9477"\n')
    point = scratch / "point"
    point.mkdir()
    refused = mounts.Mount(store, point).try_mount("--config", str(config))
    assert refused.returncode == 2
    assert f"{config}:2: " in refused.stderr and "127.0.0.1:9477" in refused.stderr
