"""Commands that make training data with teachers; ``docs/making-data.md`` describes each."""
