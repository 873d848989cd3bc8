#!/usr/bin/env bash
# VideoZoomer's GRPO job on the family of llava_family.py. Takes what the recipe's run_grpo.sh takes; the override is for
# the laptop profile, which trains a tiny model of the family. On GPUs: MODEL_PATH and --profile cluster.
set -euo pipefail
example=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PYTHONPATH=$example${PYTHONPATH:+:$PYTHONPATH}
export AGENTIC_VIDEO_FAMILIES=llava_family:Llava
export OUTPUT_DIR=${OUTPUT_DIR:-outputs/custom_family}
exec bash "$example/../../recipes/videozoomer/run_grpo.sh" +agentic_video.toyworld.model.family=llava "$@"
