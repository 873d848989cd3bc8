"""EVA's labels (section 3.2) in the world that must be searched, where it is known what an answer rests on."""

from collections.abc import Sequence
from dataclasses import replace

from agentic_video.synthesis.preferences import DESIRABLE, UNDESIRABLE, PreferenceOptions, mixture, with_evidence
from agentic_video.toyworld.search import search_figures
from agentic_video.types.record import Record


def labelled(records: Sequence[Record]) -> list[Record]:
    """Label graded episodes on questions of the kind ``search`` for KTO.

    As ``agentic-video preferences`` labels them, without a judge: an answer is a guess where no look showed the event.
    Right answers that rest on what was seen are desirable, all others undesirable; the first of each kind are taken, so
    many that the paper's share holds.
    """
    kinds: dict[str, list[Record]] = {DESIRABLE: [], UNDESIRABLE: []}
    for record in records:
        found = search_figures(record.trajectory, float(record.qa.extra["event_time"])).found
        right = record.rewards["acc"] >= 0.5
        label = with_evidence("enough" if found else "guess", right, "wrong-or-guess")
        kinds[label].append(replace(record, provenance={**record.provenance, "label": label}))
    counts = mixture(len(kinds[DESIRABLE]), len(kinds[UNDESIRABLE]), PreferenceOptions.share)
    return [record for kind, count in zip(kinds.values(), counts, strict=True) for record in kind[:count]]
