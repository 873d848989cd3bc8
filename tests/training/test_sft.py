import pytest

from agentic_video.training.sft import check_batches


def test_samples_that_fill_no_batch_are_refused() -> None:
    check_batches("train", samples=8, batches=1, size=8)
    with pytest.raises(ValueError, match=r"data\.val_files: 7 samples don't fill a batch of data\.train_batch_size=8"):
        check_batches("val", samples=7, batches=0, size=8)
