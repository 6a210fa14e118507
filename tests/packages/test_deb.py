# SPDX-License-Identifier: Apache-2.0
"""Installs the Debian packages in clean systems and uses them as the README says. `scripts/package deb RELEASE` has
built the packages."""

import re
import subprocess
import time

import pytest
from clean_system import BUILT, INSTALL_TIMEOUT_S, MOST_SECONDS, System, printed_block

RELEASES = ["bookworm", "trixie"]


def packages_of(release):
    found = sorted((BUILT / "deb" / release).glob("*.deb"))
    assert [one.name.split("_")[0] for one in found] == ["cacheshim", "libcacheshim-dev", "libcacheshim"]
    return found


class DebSystem(System):
    """A clean system with a `scripts/package` that only prints the paths of the built packages."""

    def __init__(self, scratch, release):
        super().__init__(scratch, release)
        self.run("root", "mkdir -p scripts packages && printf '#!/bin/sh\\nls /root/packages/*.deb\\n' > scripts/package && "
                 "chmod +x scripts/package && echo 'APT::Get::Assume-Yes true;' > /etc/apt/apt.conf.d/yes")
        for package in packages_of(release):
            self.copy(package, f"/root/packages/{package.name}")
        self.run("root", "apt-get update -q", INSTALL_TIMEOUT_S)

    def install(self):
        self.run("root", "export DEBIAN_FRONTEND=noninteractive")
        self.run("root", printed_block("apt install"), INSTALL_TIMEOUT_S)


@pytest.fixture(params=RELEASES)
def system(request, scratch):
    system = DebSystem(scratch, request.param)
    yield system
    system.close()


def test_the_readmes_commands_lead_to_a_warm_second_job(system):
    begin = time.monotonic()
    system.install()
    system.run("root", printed_block("mkdir -p /ci-cache"))
    train = printed_block("export LD_PRELOAD")
    assert system.run("alice", train) == "built\n"
    assert system.run("bob", train) == "hit\n"
    taken = time.monotonic() - begin
    assert taken < MOST_SECONDS, f"took {taken:.0f} s"
    print(f"from the installation to a warm second job: {taken:.1f} s")


@pytest.fixture
def installed(system):
    system.install()
    return system


def test_every_installed_part_works(installed):
    packaged = installed.run("root", "dpkg-query --show --showformat='${Version}' cacheshim")
    assert installed.run("root", "cacheshim --version") == f"cacheshim {packaged}\n"
    unit = installed.run("root", "cat $(dpkg -L cacheshim | grep 'system/cacheshim.service$')")
    assert re.findall(r"^Exec\w+=(/\S*cacheshim) (\w+)", unit, re.MULTILINE) == [
        ("/usr/bin/cacheshim", "mount"), ("/usr/bin/cacheshim", "unmount")]
    assert installed.run("root", "cacheshim preload-path").startswith("/usr/lib/")
    assert "cacheshim:" in installed.run("root", "getent group cacheshim")
    assert installed.run("root", "stat -c %a /run/cacheshim") == "755\n"
    installed.run("root", "for page in cacheshim.1 cacheshim.toml.5 cacheshim-cuda.7; do "
                  "test -e /usr/share/man/man${page##*.}/$page.gz || exit 1; done")
    assert "complete -o default -F _cacheshim cacheshim" in installed.run(
        "root", "cat /usr/share/bash-completion/completions/cacheshim")
    # The sample configuration is valid, and mount(8) finds the helper.
    installed.run("root", "mkdir -p /etc/cacheshim /data/s /mnt/s && "
                  "cp /usr/share/doc/cacheshim/examples/cacheshim.toml /etc/cacheshim/ && "
                  "mount -t fuse.cacheshim /data/s /mnt/s && umount /mnt/s")


def test_nothing_stays_after_a_purge(installed):
    installed.run("root", printed_block("mkdir -p /ci-cache"))
    installed.run("root", "cacheshim unmount /ci-cache")
    installed.run("root", "apt-get purge -q -y cacheshim libcacheshim libcacheshim-dev", INSTALL_TIMEOUT_S)
    # The contents of /run and /tmp disappear at the next boot.
    places = "/bin /boot /etc /home /lib /opt /root /sbin /srv /usr /var"
    left = installed.run("root", f"find {places} -name '*cacheshim*' -not -path '/root/packages/*' -not -path '/var/log/*' "
                         "-not -path '/var/lib/systemd/*'")
    assert left == ""


@pytest.mark.parametrize("release", RELEASES)
def test_lintian_reports_nothing(release):
    result = subprocess.run(["lintian", "--allow-root", "--fail-on=error,warning", "--tag-display-limit=0",
                             *packages_of(release)], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, "")
