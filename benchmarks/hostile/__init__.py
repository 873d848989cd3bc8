"""What corrupted videos and hostile model outputs do to the package: seeded, resumable, counted."""
