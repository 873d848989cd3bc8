import pytest
import torch


@pytest.fixture(autouse=True)
def cuda() -> str:
    """A GPU that torch can use: a driver alone isn't enough."""
    if not torch.cuda.is_available():
        pytest.skip(f"torch {torch.__version__} sees no GPU")
    return "cuda"
