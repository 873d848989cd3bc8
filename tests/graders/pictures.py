"""Pictures as endpoints are sent them."""

import base64
import io

import numpy as np
from PIL import Image


def picture(url: str) -> np.ndarray:
    return np.array(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))))
