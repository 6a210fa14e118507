# SPDX-License-Identifier: Apache-2.0
"""Defines for each block of the documents which user runs it, or why it is not run.

A row names a block by its heading and its first words. The test fails if a block has no row, or if a row matches no
block.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Run:
    """Commands that run one after the other in this user's shell."""

    user: str
    given: str = ""       # what root does first, because the document assumes it
    setting: str = ""     # what this user does first, in the same shell
    placeholders: dict = dataclasses.field(default_factory=dict)  # placeholder: the value that replaces it
    stand_ins: dict = dataclasses.field(default_factory=dict)  # command: (what is run instead, reason)
    prints: str = ""      # a part of what the commands print
    says: str = ""        # each line on stderr contains this; "": stderr is empty
    then: tuple = ()      # commands that then verify the document: (user, command, a part of its output), …


@dataclasses.dataclass(frozen=True)
class Script(Run):
    """A block that is run as one bash script; the repository's `file` contains each of its lines."""

    file: str = ""


@dataclasses.dataclass(frozen=True)
class Configuration:
    """A cacheshim.toml with which a mount starts."""

    given: str = ""


@dataclasses.dataclass(frozen=True)
class Profile:
    """A profile. The test writes it to `path` in the user's home directory before it runs the first block."""

    user: str
    path: str


@dataclasses.dataclass(frozen=True)
class Fstab:
    """A line of /etc/fstab, whose file system mount(8) then mounts."""

    mount_point: str
    given: str = ""  # what root does first
    after: str = ""


@dataclasses.dataclass(frozen=True)
class Synopsis:
    """The synopsis of a command: `cacheshim COMMAND --help` lists every option in it."""


@dataclasses.dataclass(frozen=True)
class Quoted:
    """An excerpt of the repository's `file`, which contains each line of the block."""

    file: str


@dataclasses.dataclass(frozen=True)
class Compiled:
    """C++ code that must compile between `before`, which begins a function, and `after`, which ends it."""

    before: str
    after: str = "}\n"


@dataclasses.dataclass(frozen=True)
class Listed:
    """A block that is not run; `reason` says why."""

    reason: str


MINUTES = Listed("takes minutes and measures this machine; it starts by installing packages")
OUTPUT = Listed("what a command has printed, no command")
GROUP = "__grp__k.json"
# Prints the files that `meson install` would install, but that the replacement command has not installed.
NOT_INSTALLED = """
import json, os, subprocess
plan = subprocess.check_output(["meson", "introspect", "--installed", "build-release"])
print([path for path in json.loads(plan).values() if not os.path.lexists(path)])
"""
PRELOAD = "LD_PRELOAD=/usr/local/lib/libcacheshim.so"

# Creates what the README assumes: `python`, `systemctl`, the users, and their train.py.
MACHINE = """
mkdir -p /usr/local/bin /usr/local/sbin
ln -s /usr/bin/python3 /usr/local/bin/python
install -m 0755 @tests@/systemctl /usr/local/sbin/systemctl
echo release:x:20003: >> /etc/group
for user in ci:20001 alice:20002; do
    id=${user#*:} name=${user%:*}
    echo "$name:x:$id:" >> /etc/group
    echo "$name:x:$id:$id::/home/$name:/bin/bash" >> /etc/passwd
    install -d -o "$id" -g "$id" "/home/$name"
    install -m 0644 @tests@/train.py "/home/$name/train.py"
done
"""
INSTALLED = "cp -a @dist@/. /usr/local/"
# Installs the replacements for docker and for srun with enroot; docker's image contains a module `pytest`.
CONTAINERS = """
install -m 0755 @tests@/container /usr/local/bin/srun
install -m 0755 @tests@/container /usr/local/bin/docker
install -D -m 0644 @tests@/train.py /image/pytest.py
"""
# Installs a program that writes a file to the cache directory in MINE_CACHE_DIR or X_CACHE.
CACHING = """
printf '#!/bin/sh\\necho > "${{MINE_CACHE_DIR-$X_CACHE}}/a"\\n' > /usr/local/bin/{0}
chmod 0755 /usr/local/bin/{0}
"""
MOUNTED = "mkdir -p /ci-cache /data/ci-cache && cacheshim mount --store /data/ci-cache /ci-cache"
# Mounts a store, and publishes an entry.
BUILT = f"{MOUNTED}\nrunuser -u alice -- env {PRELOAD} HOME=/home/alice python /home/alice/train.py"

README = {
    ("cacheshim", "apt install"): Run("root", stand_ins={
        "apt install $(scripts/package deb)    # first builds the packages, which takes minutes": (
            INSTALLED, "takes minutes; tests/packages runs it")}),
    ("cacheshim", "pip install"): Listed("needs the wheel, which takes minutes to build; tests/packages runs it"),
    ("cacheshim", "mkdir -p ~/cache"): Run("alice", prints="built", then=(
        ("alice", "ls ~/cache/triton/KEY", GROUP),)),
    ("Two commands", "scripts/demo"): MINUTES,
    ("Quick start", "mkdir -p /ci-cache"): Run("root", then=(
        ("root", "cacheshim --version", "cacheshim "),)),
    ("Quick start", "export LD_PRELOAD"): Run("alice", prints="built", then=(
        ("root", "ls /data/ci-cache/triton/KEY", GROUP),
        ("alice", "python train.py", "hit"),
        ("alice", "TRITON_CACHE_DIR=/ci-cache/triton python train.py", "hit"),
        # The shell itself is not preloaded, so it does not find the cache at this path; its children do.
        ("alice", "(cd ~/.triton/cache) || echo none", "none"),
        ("alice", "echo ~/.triton/cache/*", "/home/alice/.triton/cache/*"),
        ("alice", "env -C /home/alice/.triton/cache ls KEY", GROUP))),
    ("Quick start", "ls -l ~/.triton/cache/"): Run("alice", then=(
        ("alice", "ls -l ~/.triton/cache/", "KEY"),
        ("alice", "ls -l ~/.triton/cache", "-> .jobs/uid-20002/triton"))),
    ("Quick start", "cacheshim run"): Run("alice", prints="hit"),
    ("Quick start", "cacheshim status"): Run("alice", then=(
        ("alice", "cacheshim status", "/data/ci-cache"),
        ("alice", "cacheshim job list", "uid-20002"))),
}

USING = {
    ("When is an entry published?", "cacheshim job show ID"): Run(
        "alice", setting=f"export {PRELOAD}", given=BUILT +
        "\nrunuser -u alice -- env CACHESHIM_JOB=ID CACHESHIM_PUBLISH=end cacheshim job start ID",
        then=(("alice", "cacheshim job show ID", "active"),)),
    ("Who may publish?", "[publish]"): Configuration(),
    ("Why is a file missing?", "cacheshim explain"): Run("alice", then=(
        ("alice", "cacheshim explain ~/.triton/cache/KEY/k.cubin", "uid-20002"),
        ("alice", "cacheshim explain ~/.triton/cache/KEY/k.cubin --job ID", "base"))),
    ("Why is a file missing?", "cacheshim doctor"): Run("alice"),
}

DEPLOYMENT = {
    ("Installing", "meson setup"): Run(
        "root", given="cd @repository@",
        stand_ins={
            "ninja -C build-release install": (
                INSTALLED, "takes minutes; the build under test is the same")},
        then=(("root", f"python -c '{NOT_INSTALLED}'", "[]"),
              ("root", "cacheshim --version", "cacheshim "))),
    ("SLURM", "#!/bin/bash"): Script(
        "alice", file="integrations/slurm/job.sh", given=BUILT + CONTAINERS, prints="hit",
        then=(("alice", "cacheshim job show 4711", "4711"),)),
    ("SLURM", "library="): Run(
        "alice", setting="export SLURM_JOB_ID=4712", prints="hit",
        then=(("alice", "cacheshim job show 4712", "20002"),)),
    ("SLURM", "cacheshim job start"): Run(
        "alice", setting="export SLURM_JOB_ID=4713", prints="hit"),
    ("GitHub Actions with docker", "docker run"): Run(
        "alice", setting="unset SLURM_JOB_ID; "
        "export GITHUB_RUN_ID=7 GITHUB_RUN_ATTEMPT=1 GITHUB_JOB=test", prints="hit",
        then=(("alice", "cacheshim job show 7-1-test", "20002"),)),
    ("A mount at boot", "cacheshim unmount"): Run("root", then=(
        ("alice", "python train.py", "built"),)),  # without a mount, the cache is in the home directory
    ("A mount at boot", "mkdir -p"): Run("root", given="cd @repository@", then=(
        ("root", "cacheshim status", "/data/ci-cache"),
        ("ci", f"env {PRELOAD} python train.py", "hit"))),
    ("A mount at boot", 'layers = "/local-nvme'): Configuration(
        given="mkdir -p /local-nvme/cacheshim"),
    ("The overlay alone", "cacheshim overlay"): Run(
        "root", given="mkdir -p /data/a /data/b /scratch/upper /scratch/work /mnt/merged; touch /data/b/b",
        then=(("root", "ls /data/a /data/b", "b"),)),
    ("The overlay alone", "ln -s"): Run("root", then=(
        ("root", "touch /mnt/merged/new && ls /scratch/upper", "new"),
        ("root", "umount /mnt/merged && echo gone", "gone"))),
    ("The overlay alone", "/data/ci-cache  /ci-cache"): Fstab(
        "/ci-cache", given="systemctl disable --now cacheshim",
        after="systemctl enable --now cacheshim"),
    ("Removing cacheshim", "systemctl disable"): Run("root"),
    ("Removing cacheshim", "rmdir"): Run("root", then=(
        ("ci", "TRITON_CACHE_DIR=/ci-cache/triton python train.py", "hit"),)),
}

REMOTE = {
    ("Use", "cacheshim remote keygen"): Run("root", given="mkdir -p /etc/cacheshim",
                                            prints="cacheshim-public-key-1"),
    ("Use", "[remote]"): Configuration(),
    ("Use", "cacheshim remote push"): Run(
        "root", given=BUILT + """
mkdir -p /tmp/tier && chmod 777 /tmp/tier
printf '[remote]\\nurl = "file:///tmp/tier"\\nsign_with = "/etc/cacheshim/remote.key"\\n' > /etc/cacheshim/cacheshim.toml""",
        prints="1 entry pushed", then=(("root", "cacheshim remote ls", "triton/KEY"),)),
    ("What a job needs, before it begins", "cacheshim job start"): Run(
        "root", given=f"cacheshim unmount /ci-cache || true; {MOUNTED}", setting="JOB_ID=4711 USER_ID=$(id -u alice)",
        prints="there is no pack of an earlier job 'train'"),
}

DOCUMENTS = {
    "README.md": README,
    "docs/using.md": USING,
    "docs/deployment.md": DEPLOYMENT,
    "docs/remote.md": REMOTE,
    "docs/benchmarks.md": {
        ("Benchmarks", "scripts/bench "): MINUTES,
        ("Size", "scripts/bench --walk"): MINUTES,
        ("The library alone", "scripts/bench library"): MINUTES,
        ("A malicious user", "scripts/bench hostile"): MINUTES,
        ("A result", "p "): OUTPUT,
        ("A result", "walk: cacheshim"): OUTPUT,
    },
    "docs/control.md": {("Records", "{"): OUTPUT},
    "docs/cuda.md": {
        ("CUDA: kernels that are loaded too late", "export LD_PRELOAD"): Run(
            "alice", says="no cacheshim mount at /ci-cache", then=(
                ("alice", "CACHESHIM_LOG=/dev/null python train.py 2>&1 | head -1", "hit"),
                ("alice", "sh -c 'echo $CUDA_MODULE_LOADING'", "EAGER"))),
        ("What it does", "cacheshim: CUDA:"): OUTPUT,
        ("What it does", "[cuda]"): Configuration(),
        ("What the tests confirm", "scripts/gpu-check"): Listed("needs a GPU"),
    },
    "docs/doctor.md": {
        ("cacheshim doctor", "cacheshim doctor [--mount M]"): Synopsis(),
        ("cacheshim doctor", "cacheshim doctor --mount /ci-cache ||"): Run(
            "root", given=f"{MOUNTED}; ln -s /usr/bin/true /usr/local/bin/scontrol"),
    },
    "docs/locks.md": {
        ("From C++: FileLock", "#include"): Compiled(
            "void log(const std::string&);\nvoid use(const std::string& cache_path) {\n"),
        ("From C++: FileLock", "void RuntimeCache"): Quoted("tests/locks/runtime_cache.cc"),
        ("From a shell", "cacheshim lock"): Synopsis(),
    },
    "docs/metrics.md": {
        ("Metrics for Prometheus", "cacheshim metrics"): Run("alice", given=MOUNTED, prints="cacheshim_info{"),
        ("Let Prometheus read the metrics", "[metrics]"): Configuration(),
        ("Let Prometheus read the metrics", "scrape_configs"): Listed("a part of Prometheus's configuration"),
        ("Use node_exporter's textfile collector", "cacheshim metrics --textfile"): Run(
            "root", given="mkdir -p /var/lib/prometheus/node-exporter",
            then=(("root", "cat /var/lib/prometheus/node-exporter/cacheshim.prom", "cacheshim_lookups_total{"),)),
    },
    "docs/profiles.md": {
        ("Profiles", "cacheshim profile list"): Run(
            "alice", given=MOUNTED + "\n" + CACHING.format("mine"), placeholders={"--mount M ": "--mount /ci-cache "},
            then=(("alice", "cat draft.toml", 'variable = "MINE_CACHE_DIR"'),)),
        ("The file", "name ="): Profile("alice", "mine.toml"),
    },
    "docs/trust.md": {
        ("Trust: who may publish", "[publish]"): Configuration(),
        ("Files that others may not read", "[publish]"): Configuration(),
        ("Verifying published files", "verify_on_open"): Configuration(),
    },
    "docs/man/cacheshim.1": {
        ("COMMANDS", "export LD_PRELOAD"): Run("ci", then=(
            ("ci", "env -u LD_PRELOAD cacheshim preload-path", "/usr/local/lib/libcacheshim.so"),)),
        ("EXAMPLES", "mkdir -p"): Run("root"),
        ("EXAMPLES", "#!/bin/bash"): Script("alice", file="integrations/slurm/job.sh", given=CONTAINERS),
        ("EXAMPLES", ("outcome=", "Epilog=")): Listed("a part of SLURM's configuration"),
        ("EXAMPLES", "export CACHESHIM_JOB"): Run(
            "alice", given="cp @tests@/train.py /home/alice/pytest.py", prints="hit",
            setting="export GITHUB_RUN_ID=7 GITHUB_RUN_ATTEMPT=1 GITHUB_JOB=test",
            then=(("alice", "cacheshim job show 7-1-test", "success"),)),
        ("EXAMPLES", "cacheshim run --store"): Run(
            "alice", given="install -d -o alice /home/alice/cache",
            then=(("alice", "ls ~/cache/triton/KEY", GROUP),)),
        ("EXAMPLES", "cacheshim status"): Run("root"),
    },
    "docs/man/cacheshim.toml.5": {
        ("EXAMPLES", "layers ="): Configuration(given="mkdir -p /local-nvme/cacheshim")},
    "docs/man/cacheshim-cuda.7": {("FILES", "[cuda]"): Configuration()},
}

# For each example of `cacheshim --help`, in order, the user who runs it, and what root does first.
EXAMPLES = {
    "cacheshim mount": ("root", "mkdir -p /ci-cache /data/ci-cache"),
    "cacheshim run python": ("alice", ""),
    "cacheshim run --store": ("alice", "install -d -o alice /home/alice/cache"),
    "cacheshim status": ("alice", ""),
    "cacheshim job end": ("root", "cacheshim job start 4711"),
    "cacheshim lock": ("alice", "ln -s /usr/bin/true /usr/local/bin/make"),
    "cacheshim explain": ("alice", ""),
    "cacheshim profile learn": ("alice", CACHING.format("x")),
    "cacheshim doctor": ("root", ""),
    "cacheshim gc": ("root", ""),
    "cacheshim unmount": ("root", ""),
    "cacheshim overlay": ("root", "mkdir /a /b /u /w"),
}
