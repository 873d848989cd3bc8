#!/usr/bin/env bash
# The test suite, in the environment that it sets up by itself. Arguments go to pytest: `bash run_tests.sh -m e2e`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source recipes/setup.sh
"$PYTHON" -m ruff check .
"$PYTHON" -m ruff format --check .
"$PYTHON" -m mypy
exec "$PYTHON" -m pytest "$@"
