"""Rows: one question about one video."""
