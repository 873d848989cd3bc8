"""Evaluation: runs, reports, sweeps, and our agents as a model of lmms-eval."""
