from tests.toyworld.conftest import checkpoint, tokenizer

__all__ = ["checkpoint", "tokenizer"]
