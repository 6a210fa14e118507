# SPDX-License-Identifier: Apache-2.0
"""A SLURM cluster on this machine, in its own mount and PID namespaces.

The cluster ends with the process that has started it, even if that process is killed: the PID namespace's init dies
with its parent, and the kernel then kills all processes of the namespace. Only the cgroups remain; the watchdog removes
them.
"""

import os
import pathlib
import select
import shlex
import signal
import socket
import subprocess
import sys
import time

import jobs
import mounts

USERS = {"cs-alice": 31001, "cs-bob": 31002}
CGROUPS = pathlib.Path("/sys/fs/cgroup/freezer")
READY_S = 60
COMMAND_S = 100

SLURM_CONF = """\
ClusterName=cacheshim
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={top}/munge.socket
StateSaveLocation={top}/state
SlurmdSpoolDir={top}/spool
SlurmctldPidFile={top}/slurmctld.pid
SlurmdPidFile={top}/slurmd.pid
SlurmctldLogFile={top}/slurmctld.log
SlurmdLogFile={top}/slurmd.log
SlurmdParameters=config_overrides
ProctrackType={proctrack}
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
Prolog={top}/prolog.sh
PrologFlags=Alloc
Epilog={top}/epilog.sh
PrologEpilogTimeout=60
KillWait=1
OverTimeLimit=0
MinJobAge=300
SchedulerParameters=batch_sched_delay=0,sched_interval=5
ReturnToService=2
NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=p Nodes={node} Default=YES State=UP MaxTime=5 OverSubscribe=YES
"""
# PID 1 of the namespace: sleeps, and reaps its children.
INIT = "import os, signal\nprint('ready', flush=True)\nwhile True:\n" \
       "    try: os.wait()\n    except ChildProcessError: signal.sigtimedwait([], 0.2)\n"


def has_cgroups():
    """Returns true if SLURM 22.05 can track processes by cgroups here: it needs cgroups of version 1, because with
    version 2 it requires systemd."""
    return (CGROUPS / "cgroup.procs").exists()


def remove_cgroups(node):
    top = CGROUPS / f"slurm_{node}"
    for directory, _names, _files in os.walk(top, topdown=False):
        try:
            os.rmdir(directory)
        except OSError:
            pass  # a process of the cgroup is still exiting; the next call removes the cgroup


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


class CgroupWatchdog:
    """A process that removes the cgroups of a cluster after the process that has started the cluster has ended."""

    def __init__(self, node):
        code = ("import sys, time; sys.path[:0] = sys.argv[1:3]; import cluster; sys.stdin.read()\n"
                "for _ in range(100):\n"
                "    cluster.remove_cgroups(sys.argv[3])\n"
                "    if not (cluster.CGROUPS / f'slurm_{sys.argv[3]}').exists(): break\n"
                "    time.sleep(0.1)\n")
        here = pathlib.Path(__file__).parent
        self._child = subprocess.Popen(
            [sys.executable, "-c", code, str(here), str(here.parent / "lib"), node],
            stdin=subprocess.PIPE, start_new_session=True)

    def close(self):
        self._child.stdin.close()
        self._child.wait(30)


class Cluster:
    """A running cluster of one node. Requires: every user can search `scratch`, where the cluster keeps its files."""

    def __init__(self, scratch, prolog, epilog):
        self.top = scratch / "slurm"
        self.top.mkdir()
        self.node = f"cs{os.getpid()}"
        self.conf = self.top / "slurm.conf"
        self._log = open(self.top / "daemons.log", "w", encoding="utf-8")
        self._write_files(prolog, epilog)
        self._watchdog = CgroupWatchdog(self.node)
        self._init = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private", "--pid",
             "--fork", "--kill-child", "--mount-proc", sys.executable, "-I", "-c", INIT],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _write_files(self, prolog, epilog):
        for name in ("state", "spool", "out"):
            (self.top / name).mkdir()
        (self.top / "out").chmod(0o1777)
        key = self.top / "munge.key"
        key.touch(0o600)
        key.write_bytes(os.urandom(1024))
        proctrack = "proctrack/cgroup" if has_cgroups() else "proctrack/linuxproc"
        self.conf.write_text(SLURM_CONF.format(top=self.top, node=self.node, proctrack=proctrack,
                                               host=socket.gethostname(), ports=free_ports(2)))
        (self.top / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n" if has_cgroups() else "")
        self._write_script("prolog.sh", prolog)
        self.write_epilog(epilog)
        for name, line in (("passwd", "{n}:x:{i}:{i}::/home/{n}:/bin/sh\n"), ("group", "{n}:x:{i}:\n")):
            added = "".join(line.format(n=user, i=uid) for user, uid in USERS.items())
            (self.top / name).write_text(pathlib.Path("/etc", name).read_text() + added)

    def write_epilog(self, text):
        """Sets the script that SLURM runs when a job ends."""
        self._write_script("epilog.sh", text)

    def _write_script(self, name, text):
        new = self.top / f"{name}.new"
        new.write_text(text)
        new.chmod(0o755)
        new.rename(self.top / name)

    def _start(self):
        assert select.select([self._init.stdout], [], [], READY_S)[0]
        assert self._init.stdout.readline() == "ready\n"
        children = pathlib.Path(f"/proc/{self._init.pid}/task/{self._init.pid}/children").read_text()
        self._pid = children.split()[0]
        for name in ("passwd", "group"):
            self.run("mount", "--bind", self.top / name, f"/etc/{name}")
        self.run("munged", f"--key-file={self.top}/munge.key", f"--socket={self.top}/munge.socket",
                 f"--pid-file={self.top}/munge.pid", f"--log-file={self.top}/munge.log",
                 f"--seed-file={self.top}/munge.seed", "--force")
        self._start_daemon("slurmctld", "-D", "-f", self.conf)
        self._start_daemon("slurmd", "-D", "-f", self.conf, "-N", self.node)
        jobs.wait_until(lambda: self.try_run("sinfo", "-h", "-o", "%T").stdout.strip() == "idle",
                        seconds=READY_S, what=f"an idle node (logs in {self.top})")

    def _inside(self, argv):
        return ["nsenter", "--target", self._pid, "--mount", "--pid", "--", *map(str, argv)]

    def _environment(self):
        return {"PATH": os.environ["PATH"], "SLURM_CONF": str(self.conf), "LANG": "C.UTF-8"}

    def _start_daemon(self, *argv):
        subprocess.Popen(self._inside(argv), stdin=subprocess.DEVNULL, stdout=self._log,
                         stderr=self._log, env=self._environment())

    def try_run(self, *argv, user=None, env=None, timeout=COMMAND_S):
        """Runs a command in the cluster's namespaces, as root or as one of USERS. The result's stdout includes the
        command's stderr."""
        words = list(argv)
        environment = self._environment()
        if user is not None:
            uid = USERS[user]
            words = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *words]
            environment["HOME"] = f"{self.top}/out"
        output = self.top / "command.out"
        with open(output, "w+", encoding="utf-8") as file:  # not a pipe, which a started daemon may keep open
            code = subprocess.run(self._inside(words), stdin=subprocess.DEVNULL, stdout=file,
                                  stderr=subprocess.STDOUT, env={**environment, **(env or {})},
                                  cwd="/", timeout=timeout, check=False).returncode
        return subprocess.CompletedProcess(argv, code, output.read_text(), "")

    def run(self, *argv, **options):
        result = self.try_run(*argv, **options)
        assert result.returncode == 0, f"{shlex.join(map(str, argv))}: {result.stdout}"
        return result.stdout

    # ---- Jobs

    def submit(self, user, script, *options):
        """Submits a batch job, and returns its id; output_of() returns the job's output."""
        path = self.top / "out" / f"job-{time.monotonic_ns()}.sh"
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)
        return self.run("sbatch", "--parsable", "--chdir=/tmp", f"--output={self.top}/out/%j.out", "--mem=0",
                        "--ntasks=1", *options, path, user=user).strip().split("\n")[-1]

    def output_of(self, job):
        path = self.top / "out" / f"{job}.out"
        return path.read_text() if path.exists() else ""

    def field(self, job, name):
        """Returns a field of `scontrol show job`, or "" if there is none."""
        words = self.run("scontrol", "show", "job", job, "-o").split()
        return next((word.split("=", 1)[1] for word in words if word.startswith(f"{name}=")), "")

    def state(self, job):
        return self.field(job, "JobState")

    def wait_for_state(self, job, *states, seconds=60):
        try:
            return jobs.wait_until(lambda: self._is_in(job, states), seconds=seconds,
                                   what=f"one of the states {states} of job {job}")
        except AssertionError as late:
            raise AssertionError(f"{late}; it is {self.state(job)}") from late

    def _is_in(self, job, states):
        time.sleep(0.1)  # wait_until() polls faster, but starting scontrol takes far longer than 0.1 s
        state = self.state(job)
        return state if state in states else None

    def wait_for_output(self, job, text, seconds=60):
        def is_there():
            time.sleep(0.05)
            return text in self.output_of(job)
        jobs.wait_until(is_there, seconds=seconds, what=f"{text!r} of job {job}")

    @property
    def init_pid(self):
        """The pid of the process whose exit ends the cluster."""
        return self._init.pid

    def close(self):
        self._init.kill()
        self._init.wait(10)
        self._init.stdout.close()
        self._log.close()
        self._watchdog.close()
