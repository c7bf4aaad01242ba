#!/usr/bin/env bash
# The programs of a PostgreSQL server for `make test-postgres`: a package of the system, which only root can install.
set -euo pipefail

has_server() {
    command -v initdb >/dev/null || [ -n "$(compgen -G '/usr/lib/postgresql/*/bin/initdb')" ]
}

if has_server; then
    echo "PostgreSQL is there"
elif [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql >/dev/null
    echo "PostgreSQL is installed"
else
    echo "PostgreSQL is needed, and this is not root on Debian" >&2
    exit 1
fi
