#!/usr/bin/env bash
# ParaVT's whole paper: rows, demonstrations, every training, evaluation, and the table beside the published numbers.
# Without GPUs and --data: a rehearsal on a synthetic world. Options: those of `agentic-video reproduce`, e.g. --plan
# (what it needs and what is missing), --paper, --data FOLDER. The same command goes on where it was stopped.
set -euo pipefail
recipe=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
source "$recipe/../setup.sh"
exec "$PYTHON" -m agentic_video.cli reproduce "$recipe" "$@"
