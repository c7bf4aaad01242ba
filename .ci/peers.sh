#!/usr/bin/env bash
# Installs the real servers and clients that tests/interop runs against, each into an environment of its own: their pins conflict.
# A peer whose stamp still says the same versions, interpreter and folder is left as it is: a second run is instant.
# usage: .ci/peers.sh [DIR]    DIR: `peers` in the project by default; tests look there or where A2A_GATEWAY_PEERS says
set -euo pipefail

project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
pins=$project/tests/interop/peers
mkdir -p "${1:-$project/peers}"
target=$(cd "${1:-$project/peers}" && pwd)
python_version=3.12
export UV_PYTHON_DOWNLOADS=never

fail() { echo "peers.sh: $*" >&2; exit 1; }

# A name on PATH may be a launcher for a version that is not there: what counts, here and for uv, is that it runs.
runs_right_version() {
    "$1" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$python_version')" 2>/dev/null
}

find_uv() {
    if uv --version >/dev/null 2>&1; then
        echo uv
    else
        if [ ! -x "$project/.uv/bin/uv" ]; then
            python3 -m venv "$project/.uv" >&2
            "$project/.uv/bin/pip" install --quiet --disable-pip-version-check uv >&2
        fi
        echo "$project/.uv/bin/uv"
    fi
}

find_python() {
    local candidate
    for candidate in "$(command -v "python$python_version" || true)" \
        "$(pyenv root 2>/dev/null || true)"/versions/"$python_version"*/bin/python \
        "$("$uv" python find --no-project "$python_version" 2>/dev/null || true)"; do
        if [ -n "$candidate" ] && runs_right_version "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    fail "Python $python_version is needed by the peers and was found neither on PATH nor through pyenv or uv"
}

check_node() {
    local version
    version=$(node --version 2>/dev/null) || fail "node >= 20 is needed by peers and is not on PATH"
    [ "$(cut -d. -f1 <<<"${version#v}")" -ge 20 ] || fail "node >= 20 is needed by peers, found $version"
    npm --version >/dev/null 2>&1 || fail "npm is needed to install peers and is not on PATH"
}

# unless_stamped PEER PINS COMMAND...: runs the command if what it would install is not there yet
unless_stamped() {
    local peer=$1 pinned=$2 stamp=$target/$1.stamp wanted
    shift 2
    wanted=$(printf '%s\n' "$target" "$python" "$(node --version)"; cat "$pinned")
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
        echo "$peer is up to date"
        return
    fi
    rm -f "$stamp"
    "$@"
    echo "$wanted" >"$stamp"
    echo "$peer is installed"
}

install_python_peer() {
    "$uv" venv --quiet --clear --python "$python" "$target/venv/$1"
    "$uv" pip install --quiet --python "$target/venv/$1" --requirement "$pins/$1/requirements.txt"
}

install_node_peer() {
    rm -rf "${target:?}/$1"
    mkdir -p "$target/$1"
    cp "$pins/$1/package.json" "$target/$1/"
    npm install --prefix "$target/$1" --no-package-lock --no-audit --no-fund --loglevel=error
}

# Reverse proxies and Prometheus for the files of deploy/, a browser for the pages: packages of the system, which only root can install.
install_packages() {
    if nginx -v >/dev/null 2>&1 && caddy version >/dev/null 2>&1 && prometheus --version >/dev/null 2>&1 && command -v chromium >/dev/null; then
        echo "nginx, caddy, Prometheus and Chromium are there"
    elif [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends nginx-light caddy prometheus chromium fonts-dejavu-core >/dev/null
        echo "nginx, caddy, Prometheus and Chromium are installed"
    else
        fail "nginx, caddy, Prometheus and Chromium are needed, and this is not root on Debian"
    fi
}

check_node
uv=$(find_uv)
python=$(find_python)

installs=()
install_packages &
installs+=($!)
for peer in ogx agentserver azure-ai-agents llmock langgraph adk a2a-sdk-0.3 agent-framework strands beeai crewai m365-bot copilotstudio-client; do
    unless_stamped "$peer" "$pins/$peer/requirements.txt" install_python_peer "$peer" &
    installs+=($!)
done
for peer in aimock mcp-everything agui a2a-js a2a-js-0.3 oauth2-mock-server directlinejs; do
    unless_stamped "$peer" "$pins/$peer/package.json" install_node_peer "$peer" &
    installs+=($!)
done

failed=0
for install in "${installs[@]}"; do
    wait "$install" || failed=1
done
[ "$failed" = 0 ] || fail "at least one peer could not be installed, see above"
