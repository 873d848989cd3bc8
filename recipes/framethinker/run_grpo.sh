#!/usr/bin/env bash
# FrameThinker's GRPO. Without a GPU: the small job on a synthetic world. With GPUs: the paper's run; set MODEL_PATH and
# TRAIN_FILES. Options: --profile laptop|cluster, --submit, --dry-run; anything else is a Hydra override for verl.
set -euo pipefail
recipe=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
source "$recipe/../setup.sh"
exec "$PYTHON" -m agentic_video.cli run "$recipe" "$@"
