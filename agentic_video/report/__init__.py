"""What a run leaves for its reader."""
