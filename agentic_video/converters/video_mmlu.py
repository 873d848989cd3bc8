"""Video-MMLU: json lines, one a lecture, with questions for the quiz and for the caption. Open ended: needs a judge.

The score is the mean of the three disciplines', so ``extra_info.category`` holds the discipline.
"""

from agentic_video.converters.base import Converter, Fields, Question, Questions, Split, as_json, each, graded_by

CAPTION_REQUEST = "Describe this lecture in detail: what is explained, step by step, and what is shown or written."


def convert(row: Fields, split: str) -> Questions:
    video = row.label("video_id")
    discipline = next((row.label(name) for name in ("discipline", "label") if row.has(name)), "")
    extra = {"category": discipline, "video_id": video}
    if split == "quiz":
        return each(
            row.children("reasoning_qa"),
            lambda part: Question(
                f"{video}-quiz-{part.number}", (video,), part.text("question"), part.label("answer"), extra=extra
            ),
        )
    pairs, bad = graded_by(row, "captions_qa")
    # The caption is graded by whether these questions can be answered from it.
    answer = "\n".join(f"{pair['question']} {pair['answer']}" for pair in pairs)
    listed = {**extra, "qa_list": as_json(pairs)}
    return [*bad, Question(f"{video}-caption", (video,), CAPTION_REQUEST, answer, extra=listed)]


CONVERTER = Converter(
    name="video_mmlu",
    title="Video-MMLU",
    source="Hugging Face: Enxin/Video-MMLU",
    files="video_mmlu.jsonl, best with the disciplines of video_sources.jsonl in each line as `discipline`",
    videos="the lectures as <video_id>.mp4",
    splits={
        "quiz": Split(("video_mmlu_with_labels.jsonl", "video_mmlu.jsonl")),
        "caption": Split(("video_mmlu_with_labels.jsonl", "video_mmlu.jsonl"), rows=1_065),
    },
    convert=convert,
)
