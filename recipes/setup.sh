# Sourced by the recipes' scripts and by run_tests.sh. Finds the Python environment, or makes it in .venv (once), and
# sets PYTHON. An environment of your own (a container, a cluster image) is used as it is: set PYTHON to its python.
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

setup_environment() {
  local kind=cpu python candidate wanted tool started=$SECONDS
  if [ -n "${PYTHON:-}" ]; then
    if ! "$PYTHON" -c 'from importlib.util import find_spec as f; raise SystemExit(not (f("agentic_video") and f("verl")))' \
      2>/dev/null; then
      echo "error: PYTHON=$PYTHON has no agentic_video with verl: install them there, or unset PYTHON to use .venv" >&2
      return 2
    fi
    return
  fi
  if command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L 2>/dev/null | grep -q '^GPU '; then kind=gpu; fi
  PYTHON=$repository/.venv/bin/python
  # The packages are in the lock; the commands and the plugins that the environment registers are in pyproject.toml.
  wanted="$kind $(cat "$repository/uv.lock" "$repository/pyproject.toml" | cksum)"
  if [ "$(cat "$repository/.venv/.agentic_video" 2>/dev/null)" = "$wanted" ]; then return; fi

  for candidate in python3.11 python3.12 python3 python; do
    if "$candidate" -c 'import sys; raise SystemExit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null; then
      python=$(command -v "$candidate")
      break
    fi
  done
  if [ -z "${python:-}" ]; then
    echo "error: Python 3.11 or 3.12 is needed and neither was found on PATH" >&2
    return 1
  fi
  echo "setting up $repository/.venv ($kind, $("$python" --version)): several GB, a few minutes, only once"
  tool=$repository/.venv-tools
  if [ ! -x "$tool/bin/uv" ]; then
    "$python" -m pip install --quiet --disable-pip-version-check --no-warn-script-location \
      --root-user-action=ignore --target "$tool" uv==0.13.8 || return 1
  fi
  # An environment that is half changed belongs to no stamp.
  rm -f "$repository/.venv/.agentic_video"
  (cd "$repository" && UV_PROJECT_ENVIRONMENT=.venv "$tool/bin/uv" sync --frozen --quiet --python "$python" \
    --compile-bytecode --extra "$kind" --extra dev) || return 1
  echo "$wanted" >"$repository/.venv/.agentic_video"
  echo "environment ready after $((SECONDS - started)) s"
}

setup_environment
