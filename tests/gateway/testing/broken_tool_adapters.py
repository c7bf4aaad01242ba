"""Adapters that are each wrong in one way about tools that the gateway runs."""

from collections.abc import Iterable

from msgspec.structs import replace

from gateway.ports.adapter import AdapterError, AdapterEvent, ErrorClass, ServiceRequest, ToolCallReady, ToolResultReady
from gateway.ports.conversation import OutputItem, UserItem
from gateway.ports.tools import ToolDeclaration
from tests.gateway.testing.broken_adapters import Right


class OffersToolsOnce(Right):
    def offers(self, request: ServiceRequest) -> list[ToolDeclaration]:
        return super().offers(request) if self.calls == 1 else []


class SaysThatTheBackendRanIt(Right):
    def open_calls(self) -> Iterable[AdapterEvent]:
        for event in super().open_calls():
            yield replace(event, handled=True) if isinstance(event, ToolCallReady) else event


class AnswersCallsItself(Right):
    def open_calls(self) -> Iterable[AdapterEvent]:
        for event in super().open_calls():
            yield event
            if isinstance(event, ToolCallReady):
                yield ToolResultReady(event.call_id, "")


class GivesEveryCallTheSameId(Right):
    def call_id(self, index: int) -> str:
        return "call-1"


class TurnsCallsRound(Right):
    def open_calls(self) -> Iterable[AdapterEvent]:
        return reversed(list(super().open_calls()))


class TurnsOutputsRound(Right):
    def answers(self, request: ServiceRequest) -> list[tuple[str, str]]:
        return super().answers(request)[::-1]


class DropsEmptyOutputs(Right):
    def answers(self, request: ServiceRequest) -> list[tuple[str, str]]:
        return [(name, text) for name, text in super().answers(request) if text]


class SendsWhatPythonCallsIt(Right):
    def output_text(self, item: OutputItem) -> str:
        return str(item.output)


class HidesWhatFailed(Right):
    def output_text(self, item: OutputItem) -> str:
        return "failed" if item.error else super().output_text(item)


class KnowsOneRound(Right):
    def open_calls(self) -> Iterable[AdapterEvent]:
        return super().open_calls() if self.backend.round == 0 else ()


class SendsOnlyTheLastItem(Right):
    def answers(self, request: ServiceRequest) -> list[tuple[str, str]]:
        return [] if isinstance(request.items[-1], UserItem) else super().answers(request)


class NeedsTools(Right):
    def offers(self, request: ServiceRequest) -> list[ToolDeclaration]:
        if not request.tools:
            raise AdapterError(ErrorClass.REJECTED, "no tools")
        return super().offers(request)


OFFERED = "test_tools_are_offered_with_every_call_that_has_them_and_with_no_other"
OPEN = "test_a_call_that_the_backend_does_not_answer_is_left_to_the_gateway"
PARALLEL = "test_parallel_calls_keep_their_order_and_have_ids_of_their_own"
OUTPUTS = "test_outputs_go_back_in_one_request_each_to_its_call"
ROUNDS = "test_a_turn_of_several_rounds_ends_with_its_answer"

WRONG: list[tuple[type[Right], set[str]]] = [
    (OffersToolsOnce, {OFFERED}),
    (SaysThatTheBackendRanIt, {OPEN}),
    (AnswersCallsItself, {OPEN}),
    (GivesEveryCallTheSameId, {PARALLEL}),
    (TurnsCallsRound, {PARALLEL}),
    (TurnsOutputsRound, {OUTPUTS}),
    (DropsEmptyOutputs, {OUTPUTS}),
    (SendsWhatPythonCallsIt, {OUTPUTS}),
    (HidesWhatFailed, {"test_the_model_learns_that_a_tool_failed"}),
    (KnowsOneRound, {ROUNDS}),
    (SendsOnlyTheLastItem, {"test_outputs_and_a_message_after_them_go_together"}),
    (NeedsTools, {"test_after_tools_a_last_call_without_any_is_answered"}),
]
"""Each with the tests of the suite that it must fail."""
