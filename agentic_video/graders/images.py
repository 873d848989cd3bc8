"""Frames as an endpoint takes them."""

import base64
import io
from typing import Literal

from PIL import Image

from agentic_video.types.frame import Frame

ImageFormat = Literal["png", "jpeg"]


def data_url(frame: Frame, image_format: ImageFormat, quality: int) -> str:
    """A frame as a ``data:`` URL; ``quality`` is JPEG's, 1 to 95."""
    buffer = io.BytesIO()
    options = {"quality": quality} if image_format == "jpeg" else {}
    Image.fromarray(frame.image).save(buffer, format=image_format, **options)
    return f"data:image/{image_format};base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"
