#!/usr/bin/env bash
# The programs of a PostgreSQL server and of a pooler for `make test-postgres`: packages of the system, which only root can install.
set -euo pipefail

has_server() {
    command -v initdb >/dev/null || [ -n "$(compgen -G '/usr/lib/postgresql/*/bin/initdb')" ]
}

has_pooler() {
    command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ]
}

if has_server && has_pooler; then
    echo "PostgreSQL and pgbouncer are there"
elif [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends postgresql pgbouncer >/dev/null
    echo "PostgreSQL and pgbouncer are installed"
else
    echo "PostgreSQL and pgbouncer are needed, and this is not root on Debian" >&2
    exit 1
fi
