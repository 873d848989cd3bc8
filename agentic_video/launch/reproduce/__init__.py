"""A paper from its data to its table: the stages of a recipe's ``reproduce.yaml``, planned and run."""
