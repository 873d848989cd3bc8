"""The engines of a run: the actor that trains, and the vLLM servers that generate."""
