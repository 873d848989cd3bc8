"""Changes of verl, vLLM and torch where they have no seam, and verl on a CPU."""
