"""Bytes and delays of a step compared with stock verl, and latency of a tool compared with decord."""
