"""Every scenario of docs/state-model.md by its number, and the golden traces by their case. Law: each has a test of its
number, or is in NOT_YET with the reason; `test_catalogue.py` checks both directions."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Scenario:
    """`first`: it belongs to the first release; the others may have a test and need none."""

    title: str
    group: str
    first: bool = True


GROUPS = {
    "A": "contexts",
    "B": "storage owner and conflicts",
    "C": "rotating handles",
    "D": "persistence and atomicity",
    "E": "tool loop",
    "F": "tool calls in the view",
    "G": "streaming equals not streaming",
    "H": "repeats and replay safety",
    "I": "interruption and resume",
    "J": "compaction",
    "K": "serialisation and versions",
    "L": "concurrency on one context",
    "M": "deletion and retention",
}


def _group(letter: str, first: dict[str, str], later: dict[str, str] | None = None) -> dict[str, Scenario]:
    rows = {number: Scenario(title, letter) for number, title in first.items()}
    return rows | {number: Scenario(title, letter, first=False) for number, title in (later or {}).items()}


SCENARIOS: dict[str, Scenario] = {
    **_group(
        "A",
        {
            "1": "a message without a context gets a new one",
            "2": "a context id that the client made is kept",
            "3": "the second turn goes on where the first one ended, in any process",
            "4": "ids of backends stay inside, public ids never go upstream",
            "5": "not every id of a response is a handle",
            "6": "a task names its context",
            "7": "a task and a context that do not belong together",
            "8": "a task that is unknown, or another caller's",
            "9": "a message to a task that has ended",
            "10": "two tasks of one context",
            "11": "the context id of another principal",
            "12": "hostile ids",
            "13": "one context, two agents",
            "14": "compound state of an upstream agent",
            "15": "the upstream names another context",
        },
        {"16": "a context is read in one go", "17": "callers that send their whole transcript again"},
    ),
    **_group(
        "B",
        {
            "18": "owner and kind of handle are known before the first byte",
            "19": "both owners are configured",
            "20": "two kinds of handle are configured",
            "21": "a backend that stores without saying so: fail",
            "25": "an expected handle is missing",
            "26": "a caller names an id of the backend",
            "27": "a static handle changes",
            "29": "the configuration changes under live threads",
            "30": "the history is changed while the backend owns it",
            "31": "instructions go with every call of a chain",
        },
        {
            "22": "a backend that stores without saying so: warn",
            "23": "a backend that stores without saying so: adopt",
            "24": "the owner is left open",
            "28": "a backend turns out not to store",
            "32": "owners in layers",
        },
    ),
    **_group(
        "C",
        {
            "33": "the canonical chain",
            "34": "the handle moves with each service call",
            "35": "no move on weak evidence",
            "36": "a response without an id between two with one",
            "37": "open calls and a new message, rotating handle",
            "38": "open calls and a new message, static handle",
            "39": "two go on from the same handle",
            "40": "a handle is not found right after it was stored",
            "41": "a handle is gone or has expired",
            "44": "handles are never forgotten",
        },
        {"42": "the backend's retention is known", "43": "a branch from an earlier task"},
    ),
    **_group(
        "D",
        {
            "45": "accepted means durable",
            "46": "the message survives the failure of its call",
            "46b": "what a backend refused for its content is left out",
            "47": "a repeat after a failure",
            "48": "a service call is one commit",
            "49": "a tool's outcome is one commit",
            "50": "a crash between a tool's effect and its record",
            "51": "a crash between the backend's end and its record",
            "52": "a failure inside the tool loop",
            "53": "tool results that no call has carried yet",
            "54": "when things are stored cannot be seen in a turn that succeeded",
            "55": "storage fails before the call",
            "56": "storage fails after the call",
            "57": "the client goes away",
            "58": "the upstream is cut in the middle of its text",
            "59": "a failed turn is left out as a whole",
            "61": "what is being stored is stored although its request was cancelled",
        },
        {"60": "writes in pieces"},
    ),
    **_group(
        "E",
        {
            "62": "parallel calls",
            "63": "indices of rounds and calls",
            "64": "handled by the backend already, not streamed",
            "65": "handled by the backend already, the result comes late",
            "66": "a result before its call",
            "67": "loops in layers",
            "68": "a call for information only",
            "68b": "the result comes with a later call",
            "69": "the mark of a handled call survives storage",
            "70": "history is no request",
            "71": "handled and open calls in one response",
            "73": "a handled call of a tool that needs approval",
            "74": "the result of a call that nobody made",
            "75": "an unknown tool",
            "76": "a tool raises",
            "77": "a tool hangs",
            "79": "the limit of rounds",
            "80": "a batch that ends early",
            "82": "a call id comes again",
            "83": "an empty call id",
            "84": "arguments that are not JSON",
            "85": "tools of the backend, seen from outside",
        },
        {
            "72": "tools of the gateway and of the client in one response",
            "78": "nothing but failures",
            "81": "a tool that is only declared",
        },
    ),
    **_group(
        "F",
        {
            "86": "a round without any outcome",
            "87": "a round with some outcomes",
            "88": "an empty result is an outcome",
            "89": "one external id in two rounds",
            "90": "order of the view",
            "91": "no empty text of the assistant",
            "92": "loaded in one go",
            "93": "the ledger cannot be read",
            "94": "a canceled turn stays in the ledger",
            "94b": "what an agent has asked is its own words",
            "95": "ids of items at the provider",
            "96": "reasoning stays with its calls",
            "99": "a window on the history",
            "100": "two outputs for one call",
        },
        {"97": "sources that nobody cited", "98": "numbers of sources"},
    ),
    **_group(
        "G",
        {
            "101": "the same ledger both ways",
            "102": "a legal stream",
            "102b": "a bare message or a task",
            "103": "updates of a tool call",
            "104": "errors from a fixed table",
            "105": "an end without a last event",
            "106": "a subscriber comes back",
        },
    ),
    **_group(
        "H",
        {
            "107": "the repeat of a message",
            "108": "owner gateway, a transport error before any output",
            "109": "owner backend, the outcome is not known",
            "109b": "a retry sends exactly what the failed attempt sent",
            "109c": "a cancel while a retry is waited for",
            "109d": "turns of a dead process",
        },
    ),
    **_group(
        "I",
        {
            "110": "an approval is needed",
            "111": "a safe and a gated call in one response",
            "112": "approved once",
            "113": "approved twice",
            "114": "rejected with a reason",
            "115": "a forged decision",
            "116": "the resume fails before the tool ran",
            "117": "the resume fails after the tool ran",
            "118": "a waiting turn is abandoned",
            "118b": "a new task while another one waits",
            "119": "some decisions, expiry, cancel",
            "120": "a restart while a turn waits",
        },
        {"121": "an approval for always", "122": "runs in the background"},
    ),
    **_group(
        "J",
        {
            "123": "who may compact",
            "124": "groups go whole, and never with a call open",
            "125": "a compaction replaces all or nothing",
            "127": "what is written grows with the turn, not with the history",
        },
        {"126": "what is cut first"},
    ),
    **_group(
        "K",
        {
            "128": "versions of an adapter's state",
            "129": "kinds that are not known",
            "130": "a row that cannot be read",
            "131": "what is stored is what came",
        },
        {"132": "an adapter is removed"},
    ),
    **_group(
        "L",
        {
            "133": "two messages at once",
            "134": "two first messages of a context",
            "135": "two processes on a thread",
            "136": "the holder of a lease dies",
            "137": "of two that race, one wins",
            "138": "many contexts at once",
        },
    ),
    **_group(
        "M",
        {
            "139": "a context is deleted",
            "140": "a context is deleted during a turn",
            "142": "expiry and lists",
        },
        {"141": "handles that nobody will use again"},
    ),
}


NOT_YET: dict[str, str] = {}
"""Numbers of the first release without a test, and why. Their test takes them out of here."""

GOLDEN: tuple[str, ...] = (
    "plain, 2 turns",
    "plain, 3 turns",
    "one tool round",
    "two parallel calls",
    "two rounds, then turn 2",
    "backend handled C1/O1, text A1",
    "handled C1 and open C2",
    "the result of a handled call never came",
    "a call that nobody can run is answered on the chain",
    "reasoning model, store=false",
    "call 1 fails, known rejected, new message",
    "call 1 refused for its content, new message",
    "call 2 refused for its content, new message",
    "call 1 fails, call 2 refused for its message",
    "call 1 fails, call 2 refused with and without its message",
    "call 2 refused for a tool's output, new message",
    "call 2 refused for a tool's output, per_turn",
    "call 2 refused for a tool's output, and what stands for it refused too",
    "call 2 refused for a tool's output, and the next message refused",
    "call 2 refused for a tool's output, static, and the next message refused",
    "call 2 refused for a tool's output, static, and what stands for it refused too, rebuild",
    "call 2 of a tool round fails, the next message refused",
    "call 2 of a tool round fails, its output refused with the next message",
    "handle lost, rebuild refused",
    "call 1 fails, outcome unknown, new message of the same text",
    "call 1 fails, same idempotency key again",
    "call 1 fails, new message, per_turn",
    "call 2 fails, new message",
    "call 2 fails, new message, per_turn",
    "call 2 of a tool round fails, new message",
    "two failures in a row send nothing twice",
    "stream of call 2 fails after created(r2)",
    "call 1 fails, new message, tail listed first: nothing is there",
    "call 1 fails, new message, tail listed first: all of it is there",
    "call 2 fails, new message, tail listed first: nothing is there",
    "call 2 fails, new message, tail listed first: all of it is there",
    "call 2 of a tool round fails, new message, tail listed first: nothing is there",
    "call 2 of a tool round fails, new message, tail listed first: all of it is there",
    "stream of call 2 fails after created(r2), its response is complete",
    "stream of call 2 fails after created(r2), its response is running",
    "stream of call 2 fails after created(r2), its response is failed",
    "stream of call 2 fails after created(r2), its response is gone",
    "safe C1 and gated C2, approved",
    "safe C1 and gated C2, rejected",
    "safe C1 and gated C2, abandoned",
    "crash while C1 runs, then U2",
    "response without id on turn 2, fail",
    "response without id on turn 2, tolerate",
    "response without id on turn 2, no handle needed",
    "handle lost, rebuild",
    "handle lost, default",
    "cancelled",
    "cancelled, without a note",
    "the agent asks",
    "a call that nobody can run is left out with its turn, per_turn",
    "handle not found right after its commit",
    "a call that did not reach the backend is made again",
    "response without id on turn 2, static",
    "cancelled, per_turn",
    "call 2 of a tool round fails, new message, per_turn",
)
"""By the names of their rows: any list ROWS in a module of tests/scenarios may hold them."""

GOLDEN_NOT_YET: dict[str, str] = {}
