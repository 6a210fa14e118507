# SPDX-License-Identifier: Apache-2.0
"""Makes the documentation site as scripts/site does, and follows its links."""

import html.parser
import os
import pathlib
import subprocess
import urllib.parse

import mounts
import pytest

WRITE = """
set -euo pipefail
scripts=$1/scripts
. "$scripts/lib/common.sh"
. "$scripts/lib/site.sh"
write_site "$2" "$3"
"""
BUILD = mounts.REPOSITORY / "build"
COPIED = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "SECURITY.md", "LICENSE", "mkdocs.yml", "docs",
          "integrations", "scripts", "tests"]


def write_site(repository, out):
    return subprocess.run(["bash", "-c", WRITE, "bash", repository, out, BUILD],
                          capture_output=True, text=True, timeout=120, check=False)


class Page(html.parser.HTMLParser):
    """The ids of a page, and the addresses to which it refers."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.loads = {""}, [], []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if given.get("id"):
            self.ids.add(given["id"])
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon"):
            self.loads.append(given["href"])
        elif given.get("src"):
            self.loads.append(given["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site") / "site"
    written = write_site(mounts.REPOSITORY, out)
    assert written.returncode == 0, written.stdout + written.stderr
    assert "WARNING" not in written.stderr
    return {path: Page(path) for path in out.rglob("*.html") if path.name != "404.html"}


def test_every_document_has_a_page(site):
    names = {path.name for path in site}
    documents = {path.stem + ".html" for path in (mounts.REPOSITORY / "docs").glob("*.md")}
    manuals = {path.name + ".html" for path in (mounts.REPOSITORY / "docs/man").iterdir()}
    assert len(documents) > 15 and documents | manuals | {"index.html"} <= names
    assert any("entries_published" in path.read_text() for path in site if path.name == "cacheshim.1.html")


def test_every_link_leads_to_a_page_and_a_heading(site):
    broken, followed = [], 0
    for path, page in site.items():
        for link in page.links + page.loads:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme:
                continue
            target = path.parent / urllib.parse.unquote(parts.path) if parts.path else path
            target = pathlib.Path(os.path.normpath(target))
            followed += 1
            if not target.is_file():
                broken.append(f"{path.name}: {link}")
            elif target in site and urllib.parse.unquote(parts.fragment) not in site[target].ids:
                broken.append(f"{path.name}: {link}")
    assert followed > 500 and broken == []


def test_the_pages_load_nothing_from_other_sites(site):
    loads = {one for page in site.values() for one in page.loads}
    assert loads and not [one for one in loads if urllib.parse.urlsplit(one).netloc]


@pytest.mark.parametrize("broken", ["[x](docs/absent.md)", "[x](docs/using.md#absent)"])
def test_a_broken_link_fails(scratch, broken):
    copy = scratch / "repository"
    copy.mkdir()
    subprocess.run(["cp", "-r", *[mounts.REPOSITORY / name for name in COPIED], copy], check=True)
    (copy / "build/venv").mkdir(parents=True)
    (copy / "build/venv/site").symlink_to(BUILD / "venv/site")
    with open(copy / "README.md", "a") as readme:
        readme.write(broken + "\n")
    written = write_site(copy, scratch / "out")
    assert written.returncode != 0 and "absent" in written.stderr
