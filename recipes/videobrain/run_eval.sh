#!/usr/bin/env bash
# VideoBrain's evaluation. Without MODEL_PATH: the tiny model on the synthetic held-out rows. Else MODEL_PATH (a
# checkpoint, or the address of an OpenAI-compatible server) on --data FILE. Options: those of `agentic-video eval`,
# e.g. --no-tools, --baseline 32, --sweep calls 0,1,2; anything else is a Hydra override.
set -euo pipefail
recipe=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
source "$recipe/../setup.sh"
exec "$PYTHON" -m agentic_video.cli eval --recipe "$recipe" "$@"
