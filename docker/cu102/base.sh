#!/bin/sh
# Make a Debian bullseye base from packages alone, for machines without an image registry:
#   base.sh OUT.tar [MIRROR]      then: podman import OUT.tar localhost/trainmark-base
# Needs mmdebstrap; an ordinary user also needs subordinate ids (/etc/subuid).
set -eu
here=$(dirname "$0")
out=$1
mirror=${2:-}
packages=$(tr '\n' ',' <"$here/base-packages.txt")
exec mmdebstrap --variant=minbase --include="${packages%,}" \
    --aptopt='Acquire::Retries "5"' bullseye "$out" ${mirror:+"$mirror"}
