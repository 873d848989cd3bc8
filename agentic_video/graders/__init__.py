"""Whom a reward may ask: answer matching, a judge that reads, a verifier that looks, and their servers' client."""
