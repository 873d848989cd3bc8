#!/usr/bin/env bash
# Writes requirements-cpu.txt and requirements-gpu.txt anew from uv.lock: what `agentic-video install` puts beside a
# pip-installed package. Run it after the lock has changed; a test compares them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=${1:-packaging}
uv=$(command -v .venv-tools/bin/uv || command -v uv)
for kind in cpu gpu; do
  "$uv" export --quiet --frozen --extra "$kind" --no-hashes --no-emit-project --no-header --no-annotate |
    grep -v '^\./packaging/' | sed -E "s/ ; .*(python_full_version [<>=!]+ '[0-9.]+').*/ ; \1/; s/ ; .*platform_machine.*//" \
    >"$folder/requirements-$kind.txt"
done
