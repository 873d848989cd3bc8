"""A pass of the vision tower in micro-batches without pictures, for models whose forward leaves it out.

Under FSDP all ranks must run it equally often, whatever their micro-batches hold: a rank that leaves it out waits for
others' weights while they wait for its. verl adds such a pass to Qwen-VL's models.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any


def run_tower_always(model_class: Any, blank: Callable[[Any], Mapping[str, Any]]) -> None:
    """Have a model's forward run the tower on a blank picture where it is given none, and add nothing of it.

    Args:
        blank: Inputs of ``get_image_features`` for one blank picture, from the model.
    """
    original = model_class.forward

    @wraps(original)
    def forward(self: Any, *args: Any, **inputs: Any) -> Any:
        if inputs.get("pixel_values") is not None or inputs.get("past_key_values") is not None:
            return original(self, *args, **inputs)

        def run_tower(_: Any, __: Any, embedded: Any) -> Any:
            pooled = self.get_image_features(**blank(self), return_dict=True).pooler_output  # one, or one an image
            return embedded + 0 * sum(tokens.sum() for tokens in pooled)

        # Between embedding and decoder, as with pictures: FSDP's ranks gather weights in the order of their use.
        hook = self.get_input_embeddings().register_forward_hook(run_tower)
        try:
            return original(self, *args, **inputs)
        finally:
            hook.remove()

    model_class.forward = forward
