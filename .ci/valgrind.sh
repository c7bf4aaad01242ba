#!/usr/bin/env bash
# What `make bench-instructions` counts with: a package of the system, which only root can install.
set -euo pipefail

if command -v valgrind >/dev/null; then
    echo "valgrind is there"
elif [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends valgrind >/dev/null
    echo "valgrind is installed"
else
    echo "valgrind is needed, and this is not root on Debian" >&2
    exit 1
fi
