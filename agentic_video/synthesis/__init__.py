"""Training data made with teachers; ``docs/making-data.md`` describes each command."""
