"""Makes a recipe's synthetic world and tiny models: what jobs use, and the models that come with the package."""
