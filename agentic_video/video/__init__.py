"""Reading video: exact readers, sampling, sizes, the bounded frame store and its one-per-node service."""
