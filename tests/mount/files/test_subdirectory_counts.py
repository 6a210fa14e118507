# SPDX-License-Identifier: Apache-2.0
"""st_nlink of a directory on a plain overlay: it counts the subdirectories if only one layer has the directory, and is
otherwise 1."""

import os

import mounts
import pytest


@pytest.fixture
def filled(overlay):
    (overlay.lowers[0] / "directory/below").mkdir(parents=True)
    (overlay.lowers[0] / "removed/below").mkdir(parents=True)
    return overlay.mount()


def count_of_subdirectories(path):
    return os.stat(path).st_nlink - 2


def test_subdirectories_are_counted_where_one_layer_has_the_directory(filled):
    for name in ("directory", "new"):
        path = filled.path / name
        path.mkdir(exist_ok=True)
        first = count_of_subdirectories(path)
        assert first == sum(entry.is_dir() for entry in path.iterdir())
    new = filled.path / "new"
    for name in ("a", "b", "c"):
        (new / name).mkdir()
    assert count_of_subdirectories(new) == 3
    (new / "a").rmdir()
    assert count_of_subdirectories(new) == 2
    os.rename(new / "b", filled.path / "b")
    assert count_of_subdirectories(new) == 1
    assert os.stat(new / "c").st_nlink == 2
    os.rmdir(filled.path / "removed/below")
    os.rmdir(filled.path / "removed")
    (filled.path / "removed").mkdir()  # the new directory is opaque
    assert count_of_subdirectories(filled.path / "removed") == 0
    (filled.path / "directory/made").mkdir()  # now the lower and the upper have the directory
    assert os.stat(filled.path / "directory").st_nlink == 1
    assert os.stat(filled.path).st_nlink == 1
    os.rename(filled.path / "directory", filled.path / "moved")  # now only the upper has it
    assert count_of_subdirectories(filled.path / "moved") == 2


def test_subdirectories_of_merged_lowers_are_not_counted(program, scratch):
    overlay = mounts.Overlay(scratch, lowers=2)
    for lower in overlay.lowers:
        (lower / "both" / lower.name).mkdir(parents=True)
    (overlay.lowers[1] / "alone/sub").mkdir(parents=True)
    try:
        overlay.mount()
        assert os.stat(overlay.path / "both").st_nlink == 1
        assert os.stat(overlay.path / "alone").st_nlink == 3
    finally:
        overlay.close()
