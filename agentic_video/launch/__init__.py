"""What a recipe's scripts run: profile, run folder, toy world, process, progress, summary."""
