from agentic_video.toyworld.model import ModelRecipe, build_model, build_tokenizer


def test_queries_begin_scaled() -> None:
    """Gemma's attention divides by nothing; others divide by the square root of a head's size."""
    model = build_model(build_tokenizer(["what colour?"], family="gemma4"), ModelRecipe(family="gemma4"))
    norms = {name: module.weight for name, module in model.named_modules() if name.endswith("q_norm")}
    assert {len(weight) for weight in norms.values()} == {16, 32, 64}  # the tower's heads, sliding and full attention
    assert all((weight == len(weight) ** -0.5).all() for weight in norms.values())
