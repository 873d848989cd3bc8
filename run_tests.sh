#!/usr/bin/env bash
# The test suite, in the environment that it sets up by itself. Arguments go to pytest: without any, the style is looked
# at and the fast tests run side by side, and with -m "slow or ray" those, in a quarter of an hour; `-m e2e`,
# `-m recipes` and `-m chaos` take half an hour each.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export AGENTIC_VIDEO_DEV=1
source recipes/setup.sh
if [ $# -eq 0 ]; then
  "$PYTHON" -m ruff check .
  "$PYTHON" -m ruff format --check .
  "$PYTHON" -m mypy
fi
if [ $# -eq 0 ] || [ "$*" = "-m slow or ray" ]; then
  # Some tests wait for the processes that they start: a worker more than there are cores.
  workers=$(($("$PYTHON" -c 'from agentic_video.utils.host import cpu_limit; print(cpu_limit())') + 1))
  export OMP_NUM_THREADS=1
  # Compiled once, not by every worker and by all processes that tests start.
  unset PYTHONDONTWRITEBYTECODE
  set -- "$@" -n "$((workers < 8 ? workers : 8))" --dist worksteal
fi
exec "$PYTHON" -m pytest "$@"
