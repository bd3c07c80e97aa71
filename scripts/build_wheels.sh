#!/bin/sh
# Wheels with the compiled core, one per Python, into dist/, each installed and run in a fresh environment:
#     sh scripts/build_wheels.sh python3.11 python3.13
# Needs a C compiler. Where auditwheel is installed (Linux's wheels for everyone), it names the platform.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
[ $# -gt 0 ] || { echo "name the Pythons: sh scripts/build_wheels.sh python3.11 python3.13" >&2; exit 2; }
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
mkdir -p dist
for python in "$@"; do
    rm -rf "$made/build" "$made/wheel"
    "$python" -m venv "$made/build"
    # What the core imports has to be there: its types decide what is compiled.
    "$made/build/bin/python" -m pip install --quiet --disable-pip-version-check --constraint constraints.txt . \
        setuptools mypy
    SERVETWIN_COMPILE=1 "$made/build/bin/python" -m pip wheel --quiet --disable-pip-version-check --no-deps \
        --no-build-isolation --wheel-dir "$made/wheel" .
    if command -v auditwheel > /dev/null; then
        auditwheel repair --wheel-dir "$made/repaired" "$made"/wheel/servetwin-*.whl
        mv "$made"/repaired/servetwin-*.whl "$made/wheel/"
        rm -f "$made"/wheel/*-linux_*.whl
    fi
    sh scripts/check_wheel.sh "$python" "$made"/wheel/servetwin-*.whl
    mv "$made"/wheel/servetwin-*.whl dist/
done
ls -l dist
