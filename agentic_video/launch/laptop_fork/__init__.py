"""A laptop job's processes forked from one that has imported everything: saves over a minute and gigabytes of a start.

One switch: the environment variable ``AGENTIC_VIDEO_FORK``; ``0`` starts each process by itself.
"""
