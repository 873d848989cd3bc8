"""The launcher of recipes: profile, checks, run folder, synthetic world, process, progress, Ray."""
