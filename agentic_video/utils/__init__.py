"""Helpers of every room: working folders, probes of the machine, environment variables, errors."""
