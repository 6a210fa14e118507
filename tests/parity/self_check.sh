#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the parity program on two plain folders, where nothing may differ.
set -eu
parity=$1
top=$(mktemp -d)
trap 'rm -rf "$top"' EXIT
chmod 755 "$top"
mkdir "$top/native" "$top/view"
users=
if [ "$(id -u)" = 0 ]; then users='--several-users --owner 20001 --keeps-owners'; fi
# shellcheck disable=SC2086  # several words
"$parity" prepare --native "$top/native" --base "$top/view" $users
# shellcheck disable=SC2086
"$parity" run --native "$top/native" --view "$top/view" --plain $users
