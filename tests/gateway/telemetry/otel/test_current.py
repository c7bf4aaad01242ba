"""The current context of OpenTelemetry for code of operators."""

import contextvars

from msgspec.structs import replace
from opentelemetry.trace import get_current_span

from gateway.telemetry.otel.current import attach, span_context
from tests.support.spans import CALLER


def test_code_of_an_operator_finds_the_call_that_it_serves() -> None:
    def inside() -> tuple[int, int, bool]:
        attach(CALLER)
        found = get_current_span().get_span_context()
        return found.trace_id, found.span_id, found.is_remote

    assert contextvars.copy_context().run(inside) == (int("a" * 32, 16), int("b" * 16, 16), True)
    assert not get_current_span().get_span_context().is_valid


def test_flags_and_state_go_along() -> None:
    context = span_context(replace(CALLER, flags=0, state="a=1,b=2"), remote=False)
    assert (context.trace_flags.sampled, dict(context.trace_state)) == (False, {"a": "1", "b": "2"})
