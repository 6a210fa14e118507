# SPDX-License-Identifier: Apache-2.0
"""Installs three wheels and a source distribution with pip."""

import os
import pathlib
import sys
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "shared"))

import packages  # noqa: E402

packages.run([sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "install",
              "--quiet", "--no-deps", "--index-url", os.environ["FAMILY_INDEX"],
              "--trusted-host", urllib.parse.urlsplit(os.environ["FAMILY_INDEX"]).netloc])
