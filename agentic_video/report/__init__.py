"""Reports of a run for its reader."""
