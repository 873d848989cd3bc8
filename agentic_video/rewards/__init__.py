"""Rewards: answer matching, the judge, one file per system, and the reward manager that verl calls."""
