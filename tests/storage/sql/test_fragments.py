"""SQL as text: named parameters, and constants that a planner can see."""

from sqlalchemy import insert, select

from storage.schema.tables import secret, task
from storage.sql.compile import sql
from storage.sql.fragments import given, word


def test_parameters_keep_their_names() -> None:
    assert sql(insert(secret).values(**given("name", "value"))) == (
        "INSERT INTO secret (name, value) VALUES (:name, :value)"
    )


def test_a_word_is_part_of_the_text() -> None:
    query = sql(select(task.c.id).where(task.c.state == word("open")))
    assert query.split("WHERE ")[1] == "task.state = 'open'"
