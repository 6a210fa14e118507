#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the parity program on two plain folders, where nothing may differ.
set -eu
parity=$1
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
mkdir "$top/native" "$top/view"
"$parity" prepare --native "$top/native" --base "$top/view"
"$parity" run --native "$top/native" --view "$top/view" --plain
