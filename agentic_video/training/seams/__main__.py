"""Print the patches and whether the installed packages are those that they were written for.

``python -m agentic_video.training.seams``; exit status 1 where a source has changed.
"""

import sys
from importlib.util import find_spec

from agentic_video.training.seams.table import OVERRIDES, VERL_SEAMS, VLLM_SEAMS, changed


def main() -> int:
    """Print the table."""
    reread: list[str] = []
    for seam in (*VERL_SEAMS, *VLLM_SEAMS):
        package = seam.module.partition(".")[0]
        if find_spec(package) is None:
            state = f"{package} is not installed"
        else:
            differing = changed(seam.sources)
            reread += differing
            state = f"CHANGED: {', '.join(differing)}" if differing else "unchanged"
        where = " (CPU only)" if seam.cpu_only else ""
        print(f"{seam.module}: {seam.patch.partition(':')[2]}{where}\n    why: {seam.reason}")
        print(f"    issue: {seam.issue}\n    source: {state}")
    reread += changed(OVERRIDES)
    print(f"{len(OVERRIDES)} definitions of verl that our subclasses override")
    if reread:
        print("\nRead again, then update the digests in agentic_video/training/seams/table.py:", *reread, sep="\n  ")
    return 1 if reread else 0


if __name__ == "__main__":
    sys.exit(main())
