"""A scripted backend that describes its agent."""

from collections.abc import Sequence

from gateway.ports.capabilities import Backend, Description
from tests.support.scripted import G, Pause, Script, ScriptedAdapter

Answer = Description | BaseException | Pause


class DescribingAdapter(ScriptedAdapter):
    """`answers`: to each question, in order; the last one is repeated. A pause precedes its next answer. `asked`: how often."""

    def __init__(self, *calls: Script, answers: Sequence[Answer]) -> None:
        super().__init__(G, *calls)
        self._answers = list(answers)
        self.asked = 0
        self.backend = Backend("http://described")

    async def describe(self) -> Description:
        self.asked += 1
        answer = self._next()
        if isinstance(answer, Pause):
            await answer.pass_by()
            answer = self._next()
        if isinstance(answer, BaseException):
            raise answer
        assert isinstance(answer, Description)
        return answer

    def _next(self) -> Answer:
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
