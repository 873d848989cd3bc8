from tests.toyworld.conftest import any_checkpoint, checkpoint, tokenizer

__all__ = ["any_checkpoint", "checkpoint", "tokenizer"]
