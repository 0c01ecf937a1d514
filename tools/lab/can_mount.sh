#!/usr/bin/env bash
# Succeeds where file systems of all kinds that the tests use can be mounted: in memory, on a loop
# device (and frozen), over a file in a name space of its own, and FUSE. Leaves nothing.
set -uo pipefail

place=$(mktemp -d)
trap 'umount -q "$place/mount"; rm -rf "$place"' EXIT
mkdir "$place/mount"
test -c /dev/fuse || exit 1
mount -t tmpfs tmpfs "$place/mount" || exit 1
umount "$place/mount" || exit 1
truncate -s 16M "$place/image"
mkfs.ext4 -q -F "$place/image" || exit 1
mount -o loop "$place/image" "$place/mount" || exit 1
fsfreeze --freeze "$place/mount" || exit 1
fsfreeze --unfreeze "$place/mount" || exit 1
touch "$place/names"
unshare --mount sh -c 'mount --bind "$0" /etc/hosts' "$place/names"
