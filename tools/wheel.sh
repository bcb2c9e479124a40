#!/usr/bin/env bash
# Builds dist/*.whl, installs it into an empty environment and runs the demo from there, away from the sources.
# Usage: tools/wheel.sh [PYTHON]
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-python3}
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

"$python" -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --upgrade pip
rm -rf build dist # setuptools would pack what lies there from before
"$place/venv/bin/pip" wheel --quiet --no-deps --wheel-dir dist .
rm -rf build
wheel=$(echo "$PWD"/dist/superfeat-*.whl)
"$place/venv/bin/pip" install --quiet -c constraints.txt "$wheel"

cd "$place"
venv/bin/superfeat demo -o demo
test -s demo/results.html
echo "$wheel works: installed into an empty environment, it ran the demo"
