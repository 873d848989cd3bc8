"""What the recipes' training scripts run: profile, run folder, synthetic world, process, progress, summary."""
