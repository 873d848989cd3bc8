from tests.evaluation.conftest import checkpoint, quiet_threads, recipe, small_world, tokenizer

__all__ = ["checkpoint", "quiet_threads", "recipe", "small_world", "tokenizer"]
