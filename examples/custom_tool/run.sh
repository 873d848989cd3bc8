#!/usr/bin/env bash
# VideoZoomer's GRPO job with the system of brightness_tool.py in its place. Takes what the recipe's run_grpo.sh takes.
# The second override is for the laptop profile: its tiny model is taught the new system, in VideoZoomer's grammar.
set -euo pipefail
example=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PYTHONPATH=$example${PYTHONPATH:+:$PYTHONPATH}
export OUTPUT_DIR=${OUTPUT_DIR:-outputs/custom_tool}
exec bash "$example/../../recipes/videozoomer/run_grpo.sh" \
  agentic_video.system._target_=brightness_tool.SharpZoomer \
  +agentic_video.toyworld.oracle=agentic_video.systems.videozoomer.oracle "$@"
