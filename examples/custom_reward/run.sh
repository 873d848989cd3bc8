#!/usr/bin/env bash
# VideoZoomer's GRPO job with few_frames of evidence_reward.py added to its reward. Takes what the recipe's run_grpo.sh
# takes.
set -euo pipefail
example=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export OUTPUT_DIR=${OUTPUT_DIR:-outputs/custom_reward}
exec bash "$example/../../recipes/videozoomer/run_grpo.sh" \
  agentic_video.reward.path="$example/evidence_reward.py" \
  agentic_video.reward.name=few_frames \
  agentic_video.reward.mode=add \
  agentic_video.reward.weight=0.5 "$@"
