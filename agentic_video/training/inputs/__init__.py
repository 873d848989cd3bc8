"""Model inputs of a sequence: pixel values, sizes, positions, spans."""
