#!/bin/sh
# Installs a wheel into a fresh environment and runs it there: sh scripts/check_wheel.sh python3.13 dist/servetwin-*.whl
# Fails unless a run answers and its core is compiled.
set -eu
python=$1
wheel=$2
constraints=$(cd "$(dirname "$0")/.." && pwd)/constraints.txt
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"$python" -m venv "$place/env"
"$place/env/bin/python" -m pip install --quiet --disable-pip-version-check --constraint "$constraints" "$wheel"
cd "$place"
env/bin/servetwin simulate trace=azure_conv_like trace.requests=200 trace.rate_per_s=10 cluster=a100_x2 \
    journal=true out=run > told.txt || { cat told.txt; exit 1; }
env/bin/servetwin replay run
env/bin/python -c '
import json
told = json.load(open("run/summary.json"))
core, finished = told["sim"]["core"], told["requests"]["finished"]
assert core == "compiled" and finished == 200, (core, finished, told["sim"].get("why_interpreted"))
print(f"{finished} requests, core {core}, servetwin", told["code"]["version"])
'
