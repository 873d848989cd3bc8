import asyncio
from pathlib import Path

from agentic_video.evaluation.model import ModelSpec
from agentic_video.rollout.episode import play
from agentic_video.toyworld.backend import ToyBackend
from agentic_video.toyworld.build.scripted import Setting
from agentic_video.toyworld.questions import World
from agentic_video.types.row import VideoQA
from agentic_video.video.store import FrameStore


def test_an_episode_s_name_decides_what_is_drawn(
    checkpoint: Path, small_world: World, rows: list[VideoQA], setting: Setting
) -> None:
    backend = ToyBackend(ModelSpec("toy", str(checkpoint), temperature=1.0, seed=5), 14)
    assert backend.chat_format is not None  # it counts visual tokens, whatever the system's are
    assert backend.chat_format.image_tokens(28, 56) == 2

    async def said(episode: str) -> str:
        policy = backend.policy(setting.system, setting.limits, episode)
        trajectory = await play(setting.system, policy, rows[0], FrameStore())
        return "".join(turn.text for turn in trajectory.turns)

    async def all_said() -> list[str]:
        return [await said(name) for name in ("a", "b", "a")]

    first, other, again = asyncio.run(all_said())
    assert first == again != other
