"""What the requests of one conversation must be, from what was said in it so far. Law: it repeats the rules of
docs/state-model.md (section 8, scenario 46b) in its own words, and knows nothing of the code that follows them."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from gateway.core.history import INTERRUPTED
from gateway.ports.conversation import REFUSED_OUTPUT


@dataclass
class Piece:
    """One thing that was said. `kind`: U a message, O the outcome of a call, N a note on an interrupted answer, X anything
    else of the agent's.

    `sent_by`: the turn whose completed call carried it. `refused`: a backend did not take it. `aside`: it was taken once and
    then not any more, together with all that has the same number.
    """

    turn: str
    place: int
    kind: str
    text: str
    sent_by: str | None = None
    refused: bool = False
    aside: int | None = None


@dataclass(frozen=True)
class Doubt:
    """What another try of the same turn does without: pieces of earlier turns, then a whole turn, too. `cleared` are in order
    if the latest are not."""

    turn: str
    pieces: frozenset[int] = frozenset()
    latest: frozenset[int] = frozenset()
    without: str | None = None
    tries: int = 0
    cleared: frozenset[int] = frozenset()


@dataclass
class ConversationModel:
    """`backend`: it keeps the conversation. `handle` is where its chain stands, `begins` where each turn began on it."""

    backend: bool
    failed: frozenset[str]
    handle: str | None = None
    pieces: list[Piece] = field(default_factory=list)
    begins: dict[str, str | None] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)
    interrupted: set[str] = field(default_factory=set)
    doubt: Doubt | None = None
    refusals: int = 0

    def arrive(self, turn: str, place: int, text: str) -> None:
        if all(piece.turn != turn for piece in self.pieces):
            self.pieces.append(Piece(turn, place, "U", f"U {text}"))

    def interrupt(self, turn: str, place: int, texts: Iterable[str]) -> None:
        """The turn was cancelled, and its last call had said this until then."""
        if turn not in self.interrupted:
            self.interrupted.add(turn)
            kind, start = ("N", f"U {INTERRUPTED}") if self.backend else ("X", "A ")
            self.pieces += [Piece(turn, place, kind, f"{start}{text}") for text in texts]

    def request(self, turn: str, place: int) -> tuple[str | None, list[str]]:
        """The handle and the items of the next request of this turn."""
        if self.doubt is not None and self.doubt.turn != turn:
            self.doubt = None  # The turn in which there was a doubt has ended without another try.
        return self._start(), [self._shown(index, refused=refused) for index, refused in self._view(place)]

    def complete(self, turn: str, place: int, handle: str | None, said: Iterable[tuple[str, str, bool]]) -> None:
        """The request was answered with `said`: kind, text, and whether the next request has to carry it."""
        carried = [index for index, _ in self._view(place)]
        self.begins.setdefault(turn, self._start())
        innocent = self._back()[0].intersection(carried)
        if self.doubt is not None:
            for index in self.doubt.latest | self.doubt.pieces.intersection(carried):
                if self.pieces[index].sent_by is None:
                    self.pieces[index].refused = True
                else:
                    self.pieces[index].aside = self.refusals
            if self.doubt.without is not None and not self.doubt.latest:
                self.left_out.add(self.doubt.without)
            innocent |= self.doubt.cleared
        for index in innocent:
            self.pieces[index].aside = None
        for index in carried:
            if self.pieces[index].sent_by in (None, *self.left_out):
                self.pieces[index].sent_by = turn
        self.doubt, self.handle = None, handle
        self.pieces += [Piece(turn, place, kind, text, None if due else turn) for kind, text, due in said]

    def refuse(self, turn: str, place: int, *, emitted: bool, ended: bool) -> None:
        """The request was refused for its content. `ended`: this has ended the turn; else another try may follow."""
        self.refusals += 1
        narrower = None if emitted else self._narrower(turn, place)
        if narrower is not None:
            self.doubt = narrower
            return
        doubted = frozenset() if self.doubt is None else self.doubt.pieces
        for index, _ in self._new(place) if ended else ():
            if index not in doubted:
                self.pieces[index].refused = True

    def _narrower(self, turn: str, place: int) -> Doubt | None:
        before = [(index, refused) for index, refused in self._new(place) if self.pieces[index].turn != turn]
        turns: dict[int, set[int]] = {}
        for index, refused in before:
            if not refused:
                turns.setdefault(self.pieces[index].place, set()).add(index)
        stuck = {self.pieces[index].turn for index, refused in before if refused}
        done = self.doubt or Doubt(turn)
        taken = self._taken(place)
        if done.tries == 6 or (done.without is not None and not taken):
            return None
        later, rest = self._back()
        later = later.intersection(index for index, _ in self._view(place))
        if later:
            return Doubt(turn, done.pieces | later, later, done.without, done.tries + 1, rest)
        if turns:
            # What no tool has done is left out first, and the oldest of it before the rest.
            groups = sorted(turns.items(), key=lambda each: (any(self.pieces[i].kind == "O" for i in each[1]), each[0]))
            return self._less(done, [group for _, group in groups])
        if len(stuck) == 1 and stuck <= self.failed and not (taken and done.tries == 5):
            return Doubt(turn, done.pieces, frozenset(), next(iter(stuck)), done.tries + 1)
        return self._less(done, taken) if taken else None

    def _less(self, done: Doubt, groups: list[set[int]]) -> Doubt:
        latest = frozenset().union(*(groups[:1] if done.tries < 4 else groups))
        return Doubt(done.turn, done.pieces | latest, latest, done.without, done.tries + 1)

    def _taken(self, place: int) -> list[set[int]]:
        """What the backend had taken of earlier turns, by turn, the last first: to be left out when it takes nothing any
        more."""
        numbered = [(piece.place, index) for index, piece in enumerate(self.pieces)]
        last = max((each for each in numbered if self.pieces[each[1]].sent_by is not None), default=(-1, -1))
        signs = [
            piece.aside is not None or (piece.refused and (piece.place, index) > last)
            for index, piece in enumerate(self.pieces)
            if piece.place < place
        ]
        if self.backend or not any(signs):
            return []
        turns: dict[int, set[int]] = {}
        for index, refused in self._view(place):
            piece = self.pieces[index]
            if piece.sent_by is not None and piece.place < place and not refused:
                turns.setdefault(piece.place, set()).add(index)
        return [turns[number] for number in sorted(turns, reverse=True)]

    def _back(self) -> tuple[frozenset[int], frozenset[int]]:
        """Of the largest part that was taken once and then not any more, the later half, which is tried again, and the
        rest."""
        parts: dict[int, dict[int, set[int]]] = {}
        for index, piece in enumerate(self.pieces):
            if piece.aside is not None:
                parts.setdefault(piece.aside, {}).setdefault(piece.place, set()).add(index)
        most = max(parts.values(), key=len, default={})
        if len(most) < 2:
            return frozenset(), frozenset()
        turns = [most[number] for number in sorted(most)]
        half = len(turns) // 2
        return frozenset().union(*turns[half:]), frozenset().union(*turns[:half])

    def _start(self) -> str | None:
        without = self.doubt.without if self.doubt is not None else None
        return self.handle if without is None else self.begins[without]

    def _new(self, place: int) -> list[tuple[int, bool]]:
        return [(index, refused) for index, refused in self._view(place) if self.pieces[index].sent_by is None]

    def _view(self, place: int) -> list[tuple[int, bool]]:
        """What is sent, by its index, and whether something else stands for it."""
        doubt, back = self.doubt or Doubt(""), self._back()[0]
        found, gone = [], set()
        for index, piece in enumerate(self.pieces):
            taken = piece.sent_by is not None
            refused = piece.refused or index in doubt.pieces
            apart = (piece.aside is not None and index not in back) or (taken and index in doubt.pieces)
            if apart and not self.backend:
                gone.add(piece.turn)
            hidden = piece.place > place or piece.turn in self.left_out or piece.turn == doubt.without
            if not hidden and not (refused and piece.kind != "O") and not (apart and not self.backend):
                found.append((index, refused))
        # An outcome goes with its call.
        found = [each for each in found if not (self.pieces[each[0]].kind == "O" and self.pieces[each[0]].turn in gone)]
        found.sort(key=lambda each: self.pieces[each[0]].place)
        if not self.backend:
            return found
        due = [each for each in found if self.pieces[each[0]].sent_by in (None, doubt.without)]
        return [each for kinds in ("O", "UN") for each in due if self.pieces[each[0]].kind in kinds]

    def _shown(self, index: int, *, refused: bool) -> str:
        text = self.pieces[index].text
        return f"{' '.join(text.split()[:2])} {REFUSED_OUTPUT}" if refused else text
