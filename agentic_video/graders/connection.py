"""The HTTP connection of a model's client: a reply has a largest size, and the key goes to one server only."""

import os
import ssl
from typing import TYPE_CHECKING, Any

from agentic_video.utils.errors import SetupError
from agentic_video.utils.proxies import proxy_for, proxy_problem

if TYPE_CHECKING:
    from openai import AsyncOpenAI

MAX_REPLY_BYTES = 4 * 2**20
"""Most bytes of a reply. A hundred thousand tokens are less than one MiB."""


class RefusedReply(Exception):
    """A reply that the client refuses to read; the message has the reason."""


def api_key(variable: str) -> str:
    """The key in an environment variable, stripped; empty where it isn't set.

    Raises:
        SetupError: No request can carry it. The message never holds the value.
    """
    key = os.environ.get(variable, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise SetupError(
            f"{variable}: no key: it holds line breaks, or characters other than plain letters, digits and signs; "
            "set it to the key alone",
            key=variable,
        )
    return key


def connect(base_url: str, key: str, timeout: float, max_reply_bytes: int = MAX_REPLY_BYTES) -> "AsyncOpenAI":
    """A client of an OpenAI-compatible server; it belongs to the event loop that uses it first.

    Redirects aren't followed: they would carry the key elsewhere. Replies come without compression, so that
    they are no larger in memory than on the wire. Other replies fail as :class:`RefusedReply`, which may be the cause
    of the client's own error. A server of this machine or of its network is asked without a proxy.
    """
    proxy = proxy_for(base_url)
    if proxy and (problem := proxy_problem(proxy)):
        raise SetupError(problem)
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient

    class Bounded(DefaultAsyncHttpxClient):
        async def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
            response = await super().send(request, stream=True, **options)
            try:
                if response.has_redirect_location:
                    where = response.url.join(response.headers["Location"])
                    raise RefusedReply(f"the server redirects to {where}: set base_url to the address that answers")
                encoding = response.headers.get("Content-Encoding", "identity")
                if encoding.lower() != "identity":
                    raise RefusedReply(f"the reply is compressed ({encoding[:40]}), which was not asked for")
                body = bytearray()
                async for chunk in response.aiter_raw():
                    body += chunk
                    if len(body) > max_reply_bytes:
                        raise RefusedReply(f"the reply is larger than {max_reply_bytes} bytes")
            finally:
                await response.aclose()
            return type(response)(
                response.status_code, headers=response.headers, content=bytes(body), request=response.request
            )

    client = Bounded(
        timeout=timeout,
        follow_redirects=False,
        headers={"Accept-Encoding": "identity"},
        trust_env=proxy is not None,
        verify=True if proxy else _certificates(),
    )
    return AsyncOpenAI(base_url=base_url, api_key=key, timeout=timeout, max_retries=0, http_client=client)


def _certificates() -> ssl.SSLContext:
    """TLS settings with the authorities that the environment names, else certifi's."""
    import certifi

    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    return ssl.create_default_context(cafile=file or (None if folder else certifi.where()), capath=folder or None)


def without_key(text: str, key: str) -> str:
    """A text from a server, without the key that the server was sent, nor a beginning of it."""
    if not key:
        return text
    head, *rest = text.split(key[:8])
    for after in rest:
        same = 0
        while same < len(after) and after[same] == key[8:][same : same + 1]:
            same += 1
        head += "***" + after[same:]
    return head
