# SPDX-License-Identifier: Apache-2.0
"""A mount on the cluster's node, jobs that use it, and what these jobs leave in the store."""

import time

import jobs

FINAL_STATES = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")


class Site:
    def __init__(self, cluster, top, program, library):
        self.cluster, self.top, self.program, self.library = cluster, top, program, library
        self.mount, self.store = self.mount_store("mnt", "store", self.make_tier())

    def make_tier(self):
        """Makes a remote tier in a directory; returns the lines of the configuration for it."""
        tier, key = self.top / "tier", self.top / "site.key"
        tier.mkdir()
        tier.chmod(0o777)  # the daemon's helper runs as nobody
        self.cluster.run(self.program, "remote", "keygen", key)
        return f'[remote]\nurl = "file://{tier}"\nsign_with = "{key}"\n'

    def packs(self):
        return self.cluster.run(self.program, "remote", "ls", "--packs", "--config", self.top / "mnt.toml")

    def mount_store(self, point, store, config=""):
        mount, directory = self.top / point, self.top / store
        mount.mkdir()
        directory.mkdir()
        file = self.top / f"{point}.toml"
        file.write_text(config)
        self.cluster.run(self.program, "mount", "--store", directory, "--config", file, mount)
        return mount, directory

    def submit(self, user, script, *options):
        """Submits a batch job with the library preloaded; returns its id. The script's function `write NAME TEXT`
        writes a file to `blobs`, a cache without a profile, whose files are published only if the job succeeds."""
        lines = [f"export LD_PRELOAD={self.library} CACHESHIM_MOUNT={self.mount}",
                 f"MOUNT={self.mount} PROGRAM={self.program}",
                 'write() { mkdir -p "$MOUNT/blobs/$1" && echo "$2" > "$MOUNT/blobs/$1/file"; }', script]
        return self.cluster.submit(user, "\n".join(lines), *options)

    def published(self, name):
        """Returns the text of the published file `name`, or None if the base has no such file."""
        path = self.store / "blobs" / name / "file"
        return path.read_text().strip() if path.exists() else None

    def layers(self, job):
        """Returns {attempt: texts} of the unpublished files in the layers of a job's attempts."""
        found = {}
        for layer in sorted((self.store / ".cacheshim/layers" / job).glob("*")):
            texts = [path.read_text().strip() for path in layer.glob("upper/blobs/*/file")]
            if texts:
                found[layer.name.split("@")[0]] = texts
        return found

    def describe(self, job, mount=None):
        """Returns the daemon's description of a job, or "" if the daemon does not know the job."""
        result = self.cluster.try_run("cat", f"{mount or self.mount}/.cacheshim/jobs/{job}")
        return result.stdout if result.returncode == 0 else ""

    def is_active(self, job, mount=None):
        return '"state": "active"' in self.describe(job, mount)

    def wait_for_end(self, job, seconds=60):
        """Waits until the job is in a final state in SLURM, and the daemon has ended it. Returns that state."""
        state = self.cluster.wait_for_state(job, *FINAL_STATES, seconds=seconds)

        def has_ended():
            time.sleep(0.1)
            return not self.is_active(job)
        jobs.wait_until(has_ended, seconds=30, what=f"the end of job {job} in the daemon")
        return state
