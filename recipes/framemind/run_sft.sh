#!/usr/bin/env bash
# FrameMind's SFT, the stage before GRPO. Without a GPU: a small job on demonstrations that a scripted agent gives on
# a synthetic world. With GPUs: set MODEL_PATH and TRAIN_FILES (trajectory records). Options: --profile laptop|cluster,
# --dry-run; anything else is a Hydra override for verl.
set -euo pipefail
recipe=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
source "$recipe/../setup.sh"
exec "$PYTHON" -m agentic_video.cli run "$recipe" sft "$@"
