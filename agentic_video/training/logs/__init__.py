"""Figures, records and pictures of a run, and the watch over its processes."""
