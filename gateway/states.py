"""What an adapter remembers of a thread, as the adapter that runs now understands it. Law: an older state is read through the
adapter, a newer one is left untouched."""

from gateway.abilities import StateReading
from gateway.commits.threads import ThreadRecord
from gateway.model import Json
from gateway.ports import Adapter, AdapterError, ErrorClass


def is_newer(adapter: Adapter, thread: ThreadRecord) -> bool:
    """Whether a newer version of the adapter has written it. Source: state-model, scenario 128."""
    return thread.adapter_state is not None and thread.state_version > adapter.ownership.state_version


def state_of(adapter: Adapter, thread: ThreadRecord) -> Json:
    """Raises: AdapterError for a state that this adapter cannot read."""
    state, version = thread.adapter_state, thread.state_version
    if state is None or version == adapter.ownership.state_version:
        return state
    if is_newer(adapter, thread):
        raise _unreadable(f"is of version {version}, newer than the adapter's {adapter.ownership.state_version}")
    if not isinstance(adapter, StateReading):
        return state
    try:
        return adapter.read_state(state, version)
    except ValueError as error:
        raise _unreadable(f"of version {version} cannot be read: {error}") from error


def _unreadable(why: str) -> AdapterError:
    return AdapterError(ErrorClass.CONTRACT_BROKEN, f"the state of the thread {why}")
