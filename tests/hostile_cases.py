"""Every packaged system with small constants, its grammar, and bounds of an episode's cost and reward."""

from dataclasses import dataclass

from agentic_video.systems.base import System
from agentic_video.systems.eva import Eva
from agentic_video.systems.framemind import FrameMind, FrameSampling
from agentic_video.systems.framethinker import FrameThinker
from agentic_video.systems.longvt import LongVT
from agentic_video.systems.paravt import ParaVT
from agentic_video.systems.timesearch import TimeSearch
from agentic_video.systems.videobrain import VideoBrain
from agentic_video.systems.videoo3 import VideoO3
from agentic_video.systems.videozoomer import VideoZoomer
from agentic_video.types.row import VideoQA

OPTIONS = ("red", "green", "blue", "grey")
QA = VideoQA(id="q", video="v", question="What?", answer="B", options=OPTIONS, extra={"class": "active"})


@dataclass(frozen=True)
class Case:
    """A system with small constants, its grammar, and bounds of its cost and reward.

    Attributes:
        call: A turn with a legal request.
        answer: A turn that answers ``{}``.
        tags: Pairs of tags, the request's first.
        requests: Bodies of requests, most of them illegal.
        frames: Most frames that an episode may read: the overview's, and those of a turn for each turn but the last.
        wrong: Most that an episode without a right answer earns.
        right: Most that any episode earns.
    """

    system: System
    call: str
    answer: str
    tags: tuple[tuple[str, str], ...]
    requests: tuple[str, ...]
    frames: int
    wrong: float
    right: float

    def request(self, body: str) -> str:
        """A turn with this request."""
        opened, closed = self.tags[0]
        start, end = self.call.index(opened) + len(opened), self.call.index(closed)
        return self.call[:start] + body + self.call[end:]

    def thinking(self, thought: str) -> str:
        """A turn with a legal request after this thought."""
        opened, _, rest = self.call.partition(">")
        return f"{opened}>{thought}{rest[rest.index('</') :]}"


THINK = ("<think>", "</think>")
ANSWER = ("<answer>", "</answer>")
TOOL = ("<tool_call>", "</tool_call>")
EXTREMES = ("NaN", "Infinity", "-Infinity", "1e308", "-1e308", "1e999", "9" * 1000)
NUMBERS = (*EXTREMES, "true", "null", '"2"', "[1]", "{}", "")
SELECT = '{"tool": "frame_select", "arguments": {"start_time": 2, "end_time": 2, "nframes": 2, "resize": 2}}'


def with_numbers(*templates: str) -> tuple[str, ...]:
    """Fill each template's ``#`` with good and bad numbers."""
    return tuple(template.replace("#", number) for template in templates for number in NUMBERS)


CASES = {
    case.system.name: case
    for case in (
        Case(
            VideoZoomer(min_pixels=784, max_pixels=3136, overview_max_frames=8),
            call='<think>a</think><video_zoom>{"segment": [1, 3], "fps": 2}</video_zoom>',
            answer="<think>a</think><answer>{}</answer>",
            tags=(("<video_zoom>", "</video_zoom>"), THINK, ANSWER),
            requests=(
                *with_numbers('{"segment": [1, #], "fps": 2}', '{"segment": [#, 3], "fps": #}', '{"segment": #}'),
                '{"segment": [0, 60], "fps": 0.2}',
                '{"segment": [1, 2], "fps": 16}',
                '{"segment": [3, 1], "fps": 2}',
                '{"segment": [-1e308, 1e308], "fps": 1e-300}',
                '{"segment": {"0": 1}, "fps": [2]}',
                '{"segment": [1, 3], "fps": 2, "segment": [0, 9]}',
            ),
            frames=8 + 4 * 16,
            wrong=0.1,  # the format
            right=0.9 + 0.1 + 0.5,
        ),
        Case(
            FrameThinker(
                overview_frames=4,
                look_frames=4,
                max_width=28,
                max_height=28,
                long_overview_frames=4,
                long_look_frames=4,
                long_max_width=28,
                long_max_height=28,
            ),
            call="<think>from 20 to 40</think><action>choose frames between 20 and 40</action>",
            answer="<think>a</think><action>output answer: {}</action>",
            tags=(("<action>", "</action>"), THINK),
            requests=(
                *with_numbers(
                    "choose frames between # and #", "choose frames between 2 and #", "get frame number at time #:00"
                ),
                "choose frames between -5 and 40",
                "choose frames between 40 and 20",
                "choose frames between 20 and 21",
                "get frame number at time 00:42",
                "get frame number at time 999:99",
                "get frame number at time 1:2:3",
                "choose frames between 20 and 40 choose frames between 50 and 90",
                "output answer:",
            ),
            frames=4 + 4 * 4,
            wrong=0.0,
            right=1.0 + 0.02,  # the question holds no clock time
        ),
        Case(
            FrameMind(
                low=FrameSampling(8, 28, 28),
                high=FrameSampling(4, 56, 56),
                tool_side=28,
                clip_min_frames=2,
                clip_max_frames=6,
            ),
            call='<think>a</think><tool_call>{"name": "FrameAt", "arguments": {"t": 2}}</tool_call>'
            '<tool_call>{"name": "VideoClip", "arguments": {"t_start": 1, "t_end": 3}}</tool_call>'
            "<turn_sum>b</turn_sum>",
            answer="<think>a</think><answer>{}</answer>",
            tags=(TOOL, THINK, ("<turn_sum>", "</turn_sum>"), ANSWER),
            requests=(
                *with_numbers(
                    '{"name": "FrameAt", "arguments": {"t": #}}',
                    '{"name": "VideoClip", "arguments": {"t_start": 1, "t_end": #}}',
                    '{"name": #, "arguments": #}',
                ),
                '{"name": "VideoClip", "arguments": {"t_start": 3, "t_end": 1}}',
                '{"name": "FrameAt", "arguments": {"t": 1, "t_end": 9}}',
                '{"name": "refused", "arguments": {}}',
                '{"name": "refused", "arguments": {"reason": 1}}',
            ),
            frames=8 + 2 * 3 * 6,
            wrong=1.2 * 0.2 + 0.5,  # both tools, three turns
            right=1.0 + 1.2 + 0.5,
        ),
        Case(
            VideoBrain(overview_frames=4, uniform_frames=4, max_width=32, max_height=32, answer_match="robust"),
            call='<thinking>a</thinking><tool_call>{"name": "uniform_sample", "arguments": '
            '{"start_frame": 0, "end_frame": 100}}</tool_call>',
            answer="<thinking>a</thinking><answer>{}</answer>",
            tags=(TOOL, ("<thinking>", "</thinking>"), ANSWER),
            requests=(
                *with_numbers(
                    '{"name": "uniform_sample", "arguments": {"start_frame": 1, "end_frame": #}}',
                    '{"name": "clip_sample", "arguments": {"start_frame": 0, "end_frame": 99, "prompt": #}}',
                    '{"name": #, "arguments": #}',
                ),
                '{"name": "clip_sample", "arguments": {"start_frame": 0, "end_frame": 300, "prompt": "red"}}',
                '{"name": "clip_sample", "arguments": {"start_frame": 0, "end_frame": 300, "prompt": "\\ud800"}}',
                '{"name": "uniform_sample", "arguments": {"start_frame": 9, "end_frame": 1}}',
                '{"name": "uniform_sample", "arguments": {"start_frame": -5, "end_frame": 10000000000}}',
            ),
            frames=4 + 4 * 4,
            wrong=0.05 + 0.2,  # an "active" question, tools used
            right=0.05 + 1.0 + 0.5,
        ),
        Case(
            Eva(min_pixels=784, max_pixels=3136, max_frames=8),
            call='<think>a</think><tool_call>{"tool": "frame_select", "arguments": '
            '{"start_time": 1, "end_time": 3, "nframes": 4, "resize": 0.5}}</tool_call>',
            answer="<think>a</think><answer>{}</answer>",
            tags=(TOOL, THINK, ANSWER),
            requests=(
                *with_numbers(
                    *(
                        SELECT.replace(f'"{key}": 2', f'"{key}": #')
                        for key in ("start_time", "end_time", "nframes", "resize")
                    ),
                    '{"tool": #, "parameters": #}',
                    "[#, #]",
                ),
                '{"tool": "frame_select", "arguments": {"start_time": 0, "end_time": 60, "nframes": 1000000}}',
                '{"tool": "frame_select", "arguments": {"start_time": 3, "end_time": 1, "nframes": 2}}',
                '{"tool": "frame_select", "arguments": {"start_time": 1, "end_time": 2, "nframes": 2}}' * 20,
            ),
            frames=5 * 4 * 8,
            wrong=0.05,  # a call
            right=1.0,
        ),
        Case(
            LongVT(
                overview="uniform",
                overview_max_frames=8,
                min_pixels=784,
                max_pixels=784,
                crop_max_frames=8,
                max_images=48,
                video_path="none",
            ),
            call='<think>a</think><tool_call>{"name": "crop_video", "arguments": '
            '{"start_time": 1, "end_time": 3}}</tool_call>',
            answer="<think>a</think><answer>{}</answer>",
            tags=(TOOL, THINK, ANSWER),
            requests=(
                *with_numbers(
                    '{"name": "crop_video", "arguments": {"start_time": 1, "end_time": #}}',
                    '{"name": "crop_video", "arguments": {"start_time": #, "end_time": #, "video_path": #}}',
                    '{"name": #, "arguments": #}',
                ),
                '{"name": "crop_video", "arguments": {"start_time": 3, "end_time": 1}}',
                '{"name": "crop_video", "arguments": {"start_time": -1, "end_time": 100000}}',
                '{"name": "crop_video", "arguments": {"start_time": 0, "end_time": 60, "video_path": "/dev/zero"}}',
                '{"name": "crop_video", "arguments": {"start_time": 1, "end_time": 3, "start_time": 9}}',
            ),
            # five calls in all, however many turns they take
            frames=8 + 5 * 8,
            wrong=1.0,  # the format: the row has no gold window, so a crop earns nothing
            right=1.0 + 1.0,
        ),
        Case(
            # the released rule reads the letter that an answer starts with, "B or A" among them: it pays no more than a
            # guess (benchmarks/rewards), but isn't what these cases are about
            TimeSearch(
                overview_max_frames=8,
                min_frame_tokens=1,
                seek_min_tokens=1,
                seek_max_tokens=4,
                answer_match="robust",
            ),
            call='<think>a</think><tool_call>{"name": "seek_video_frames", "arguments": '
            '{"start_time": 1, "end_time": 9, "num_frames": 4}}</tool_call>',
            answer="<think>a</think><answer>{}</answer>",
            tags=(TOOL, THINK, ANSWER),
            requests=(
                *with_numbers(
                    '{"name": "seek_video_frames", "arguments": {"start_time": #, "end_time": 9}}',
                    '{"name": "seek_video_frames", "arguments": {"start_time": 1, "end_time": #, "num_frames": #}}',
                    '{"name": "seek_video_frames", "arguments": {"query": #}}',
                    '{"name": #, "arguments": #}',
                ),
                '{"name": "seek_video_frames", "arguments": {"query": "red"}}',
                '{"name": "seek_video_frames", "arguments": {"query": "\\ud800"}}',
                '{"name": "seek_video_frames", "arguments": "{}"}',
                '{"name": "seek_video_frames", "arguments": {"start_time": 9, "end_time": 1}}',
                '{"name": "seek_video_frames", "arguments": {"start_time": -1e308, "end_time": 1e308}}',
            ),
            # and those that the self-verification is shown again
            frames=8 + 2 * 7 * 8,
            wrong=1.0,  # the format
            right=1.0 + 0.5 + 0.5,
        ),
        Case(
            # nothing is given at the start of a reply, so that a case's texts are whole
            ParaVT(max_pixels=3136, overview_least=4, overview_frames=8, crop_max_frames=4, reply_prefix=""),
            call='<think>look at two</think><tool_call>{"name": "crop_video", "arguments": {"start_time": 1, '
            '"end_time": 3}}</tool_call><tool_call>{"name": "crop_video", "arguments": {"start": 5, "end": 90}}'
            "</tool_call>",
            answer="<think>it was seen</think><answer>{}</answer>",
            tags=(TOOL, THINK, ANSWER),
            requests=(
                *with_numbers(
                    '{"name": "crop_video", "arguments": {"start_time": 1, "end_time": #}}',
                    '{"name": "crop_video", "arguments": {"start_time": #, "end_time": #, "video_path": #}}',
                    '{"name": #, "arguments": #}',
                ),
                '{"name": "crop_video", "arguments": {"start_time": 3, "end_time": 1}}',
                '{"name": "crop_video", "arguments": {"start_time": -1e308, "end_time": 1e308}}',
                '{"name": "refused", "arguments": {}}',
                '{"name": "refused", "arguments": {"reason": 1}}',
            ),
            frames=8 + 4 * 5 * 4,
            wrong=1.0 + 0.1,  # the format, a call
            right=1.0 + 1.0 + 0.6,
        ),
        Case(
            VideoO3(
                overview_max_frames=8,
                crop_max_frames=8,
                overview_tokens=16,
                frame_min_tokens=1,
                frame_max_tokens=4,
                unnamed_class="single_tool",
            ),
            call='<think>a</think><grounding>{"temporal_segment": [1, 3], "sampling_strategy": "coarse"}</grounding>',
            answer="<think>a</think><answer>{}</answer>",
            tags=(("<grounding>", "</grounding>"), THINK, ANSWER),
            requests=(
                *with_numbers(
                    '{"temporal_segment": [1, #], "sampling_strategy": "fine"}',
                    '{"temporal_segment": [#, 3], "sampling_strategy": #}',
                    '{"temporal_segment": #}',
                    "{'temporal_segment': [#, #], 'sampling_strategy': 'fine'}",
                ),
                '{"temporal_segment": [0, 60], "sampling_strategy": "fine"}',
                '{"temporal_segment": [3, 1], "sampling_strategy": "fine"}',
                '{"temporal_segment": [1, 1.5], "sampling_strategy": "fine"}',
                '{"temporal_segment": [-1e308, 1e308], "sampling_strategy": "medium"}',
                '{"temporal_segment": [1, 3], "sampling_strategy": "finest"}',
                '{"temporal_segment": [1, 3], "sampling_strategy": "fine"}' * 20,
                "{" * 500 + "}" * 500,
            ),
            frames=8 + 5 * 8,
            wrong=1.0,  # the format
            right=1.0 + 1.0 + 0.5,  # a look, which no clue is known for
        ),
    )
}
