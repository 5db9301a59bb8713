#!/bin/sh
# Make .venv from the locked requirements named on the command line; does nothing when they are in it.
set -eu
cd "$(dirname "$0")/.."

die() { echo "trainmark: $1" >&2; exit 2; }

[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || die "needs Linux on x86-64; this is $(uname -s) on $(uname -m)"

supported='import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))'
python=${PYTHON:-}
if [ -z "$python" ]; then
    for candidate in python3.12 python3.11 python3; do
        if "$candidate" -c "$supported" 2>/dev/null; then python=$candidate; break; fi
    done
fi
[ -n "$python" ] || die "needs Python 3.11 or 3.12 (Debian and Ubuntu: apt install python3.11 python3.11-venv); or name one: make report PYTHON=/path/to/python"
"$python" -c "$supported" 2>/dev/null || die "$python is not Python 3.11 or 3.12; name another: make report PYTHON=/path/to/python"
"$python" -c 'import venv, ensurepip' 2>/dev/null || die "$python cannot make virtual environments; install its venv package (Debian and Ubuntu: apt install $(basename "$python")-venv)"

install() {
    lock="envs/$1.txt"
    stamp=".venv/.$1-$(sha256sum "$lock" | cut -c1-16)"
    [ -e "$stamp" ] && return
    echo "trainmark: installing $2 ..." >&2
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r "$lock" 2> .venv/pip.log || {
        grep -v '^WARNING' .venv/pip.log | tail -n 15 >&2
        die "installing $lock failed; is the package index reachable (PIP_INDEX_URL, proxy) and is there space on the disk?"
    }
    : > "$stamp"
}

if ! .venv/bin/python -c "$supported" 2>/dev/null; then
    rm -rf .venv
    echo "trainmark: making .venv with $("$python" --version)" >&2
    "$python" -m venv .venv
fi
for name in "$@"; do
    case $name in
        pipeline) install pipeline "the pipeline's own packages (about 110 MB to download, once)" ;;
        test) install test "the test tools (about 90 MB to download, once)" ;;
    esac
done
