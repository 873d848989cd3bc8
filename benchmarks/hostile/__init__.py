"""Corrupted videos and hostile model outputs: seeded, resumable, counted."""
