"""Families of vision-language models: everything that is particular to a ``model_type``, behind one protocol."""
