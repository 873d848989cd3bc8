#!/usr/bin/env bash
# LongVT's RFT, the stage after GRPO: SFT on the first stage's records and on rollouts that were right and looked at the
# right place (`agentic-video filter`). Without a GPU: a small job on demonstrations that a scripted agent gives on a
# synthetic world. With GPUs: set MODEL_PATH (GRPO's last checkpoint, as published, or the base model) and TRAIN_FILES
# (both stages' records, separated by a comma). Options: --profile laptop|cluster, --dry-run; anything else is a Hydra
# override for verl.
set -euo pipefail
recipe=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
source "$recipe/../setup.sh"
exec "$PYTHON" -m agentic_video.cli run "$recipe" rft "$@"
