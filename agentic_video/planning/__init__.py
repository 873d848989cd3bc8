"""Memory, moved bytes and seconds of a run, computed from its config."""
