"""The scale of a timeline: where a moment lies between its ends. Law: pure; what a row shows does not move with the clock,
and a long pause in which nothing runs takes a twentieth of the whole."""

from collections.abc import Iterable

import msgspec

WIDTH = 1000
"""Of the whole, in units of the picture."""

_PAUSE = 5_000
_STEP = 1_000
_CUT_TO = WIDTH // 20


class Span(msgspec.Struct, frozen=True):
    """Milliseconds since 1970."""

    begin: int
    end: int


class Scale(msgspec.Struct, frozen=True):
    """`cuts` are pauses that are cut, in order."""

    begin: int
    end: int
    cuts: tuple[Span, ...] = ()

    @property
    def left_out(self) -> int:
        """Milliseconds that the cuts leave out."""
        return sum(cut.end - cut.begin for cut in self.cuts)

    @property
    def shown(self) -> int:
        """Milliseconds that are drawn to scale."""
        return self.end - self.begin - self.left_out

    def place(self, moment: int) -> int:
        """From 0 to WIDTH."""
        moment = min(max(moment, self.begin), self.end)
        before, cut_width = moment - self.begin, 0.0
        for cut in self.cuts:
            if moment <= cut.begin:
                break
            inside = min(moment, cut.end) - cut.begin
            before -= inside
            cut_width += _CUT_TO * inside / max(1, cut.end - cut.begin)
        room = WIDTH - _CUT_TO * len(self.cuts)
        return round(cut_width + room * before / max(1, self.shown))


def scale(spans: Iterable[Span], begin: int, now: int | None) -> Scale:
    """`spans` are those in which something ran. `now` is the time of a task that has not ended: the scale then ends at a step
    behind it, so that it changes seldom."""
    busy = _merged(spans)
    end = max([begin, *(span.end for span in busy)])
    if now is not None:
        end = max(end, begin + _stepped(now - begin))
    cuts: list[Span] = []
    pauses = _pauses(busy, begin)
    shown = end - begin
    for pause in sorted(pauses, key=lambda span: span.begin - span.end):
        length = pause.end - pause.begin
        if length <= _PAUSE or 2 * length <= shown or _CUT_TO * (len(cuts) + 2) > WIDTH:
            break
        cuts.append(pause)
        shown -= length
    return Scale(begin, max(end, begin + 1), tuple(sorted(cuts, key=lambda span: span.begin)))


def covered(spans: Iterable[Span]) -> int:
    """Milliseconds that lie in any of the spans. What lies in several counts once."""
    return sum(span.end - span.begin for span in _merged(span for span in spans if span.begin < span.end))


def _stepped(length: int) -> int:
    """The next step: each is half as long again as the one before."""
    step = float(_STEP)
    while step < length:
        step *= 1.5
    return round(step)


def _merged(spans: Iterable[Span]) -> list[Span]:
    found: list[Span] = []
    for span in sorted(spans, key=lambda each: each.begin):
        if found and span.begin <= found[-1].end:
            found[-1] = Span(found[-1].begin, max(found[-1].end, span.end))
        else:
            found.append(span)
    return found


def _pauses(busy: list[Span], begin: int) -> list[Span]:
    ends = [begin, *(span.end for span in busy)]
    return [Span(end, span.begin) for end, span in zip(ends, busy, strict=False) if span.begin > end]
