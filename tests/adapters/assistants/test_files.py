"""Files and citations, in and out, at either service."""

import base64

from gateway.a2a.model import Part
from gateway.ports.adapter import (
    PartReady,
)
from gateway.testing.adapter_scripts import completed, of_type
from tests.adapters.assistants.support import Service, parts, said
from tests.adapters.emulator_support import plays
from tests.emulators.scripts import (
    Cite,
    ImageOut,
    Say,
    rate_limited,
)

PNG = base64.b64encode(b"png").decode()


async def test_files_are_stored_at_the_service_and_named_in_the_message(service: Service) -> None:
    given = parts(
        Part(text="Look"),
        Part(data={"n": 1}),
        Part(raw=PNG, media_type="image/png"),
        Part(raw=PNG, filename='re"port.pdf'),
        Part(raw=PNG, filename="table.csv"),
        Part(url="https://files.example/a.png", media_type="image/png"),
        Part(url="https://files.example/a.pdf", filename="a.pdf"),
    )
    await service.call(given)
    assert service.emulator.violations == []
    [sent] = service.emulator.asked[-1]["additional_messages"]
    image, report, table = service.emulator.files
    assert sent["content"] == [
        {"type": "text", "text": "Look"},
        {"type": "text", "text": '{"n":1}'},
        {"type": "image_file", "image_file": {"file_id": image, "detail": "auto"}},
        {"type": "image_url", "image_url": {"url": "https://files.example/a.png", "detail": "auto"}},
        {"type": "text", "text": "a.pdf: https://files.example/a.pdf"},
    ]
    assert sent["attachments"] == [
        {"file_id": report, "tools": [{"type": "file_search"}]},
        {"file_id": table, "tools": [{"type": "code_interpreter"}]},
    ]
    assert list(service.emulator.files.values()) == [
        ("file.png", b"png"),
        ("re%22port.pdf", b"png"),
        ("table.csv", b"png"),
    ]


async def test_a_message_always_has_content(service: Service) -> None:
    await service.call(parts(Part(raw=PNG, filename="a.pdf"), Part(raw=PNG, filename="b.pdf")), parts(Part(text="")))
    contents = [message["content"] for message in service.emulator.asked[-1]["additional_messages"]]
    assert contents == [
        [{"type": "text", "text": "a.pdf, b.pdf"}],
        [{"type": "text", "text": "(an empty message)"}],
    ]


async def test_the_files_of_a_refused_request_are_taken_back(service: Service) -> None:
    service.emulator.script = plays(rate_limited())
    await service.fails(parts(Part(raw=PNG, media_type="image/png")))
    assert service.emulator.files == {}


async def test_files_and_marks_of_an_answer_come_behind_its_text(service: Service) -> None:
    where = {"start_index": 0, "end_index": 3}
    service.emulator.files = {"file-1": ("law.pdf", b""), "file-2": ("/mnt/data/out.csv", b"1,2")}
    service.emulator.script = plays(
        Say("[0] and [1], in sandbox:/mnt/data/out.csv"),
        Cite({"type": "file_citation", "text": "[0]", "file_citation": {"file_id": "file-1"}} | where),
        Cite(
            {"type": "url_citation", "text": "[1]", "url_citation": {"url": "https://a.example", "title": "A"}} | where
        ),
        Cite({"type": "file_path", "text": "sandbox:/mnt/data/out.csv", "file_path": {"file_id": "file-2"}} | where),
        ImageOut(b"png"),
    )
    events = await service.call(said("Hi"))
    assert [event.part for event in of_type(events, PartReady)] == [
        Part(raw=PNG, filename="plot.png", media_type="image/png"),
        Part(raw=base64.b64encode(b"1,2").decode(), filename="out.csv", media_type="text/csv"),
        Part(
            data={
                "citations": [
                    {"text": "[0]", "file": "law.pdf"},
                    {"text": "[1]", "url": "https://a.example", "title": "A"},
                ]
            },
            media_type="application/json",
        ),
    ]


async def test_an_answer_does_not_fail_for_a_file_that_cannot_be_had(service: Service) -> None:
    service.emulator.script = plays(
        Say("See."), Cite({"type": "file_path", "text": "x", "file_path": {"file_id": "file-9"}})
    )
    events = await service.call(said("Hi"))
    [part] = of_type(events, PartReady)
    assert part.part == Part(text="[file-9: this file could not be read]")
    completed(events)


async def test_a_thread_that_is_forgotten_takes_its_own_files_with_it(service: Service) -> None:
    service.emulator.files = {"file-1": ("of another.pdf", b"")}
    image, report = Part(raw=PNG, media_type="image/png"), Part(raw=PNG, filename="a.pdf")
    first = completed(await service.call(parts(Part(text="Look"), image, report)))
    assert len(service.emulator.files) == 3
    assert first.handle is not None
    await service.adapter.forget(first.handle)
    assert (service.emulator.threads, list(service.emulator.files)) == ({}, ["file-1"])
    await service.adapter.forget(first.handle)
