"""Backends: engines and servers behind the policies of an evaluation."""
