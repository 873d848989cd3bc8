"""``python -m agentic_video.launch.main``."""

import sys

from agentic_video.launch.main import main

sys.exit(main())
