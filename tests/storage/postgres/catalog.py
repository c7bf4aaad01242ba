"""What a schema of PostgreSQL holds, as its catalogue words it."""

import psycopg

_PARTS = {
    "column": """
        SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
               CASE WHEN a.attcollation <> 0 THEN a.attcollation::regcollation::text END,
               pg_get_expr(d.adbin, d.adrelid)
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
    """,
    "constraint": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = current_schema()::regnamespace
    """,
    "index": "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema()",
    "trigger": """
        SELECT tgrelid::regclass::text, tgname, pg_get_triggerdef(t.oid) FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid
        WHERE NOT tgisinternal AND c.relnamespace = current_schema()::regnamespace
    """,
    "function": """
        SELECT proname, pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = current_schema()::regnamespace
    """,
}


def catalog(url: str) -> set[tuple[object, ...]]:
    """Without the order of columns: one that is added is the last."""
    with psycopg.connect(url) as connection:
        return {(part, *row) for part, query in _PARTS.items() for row in connection.execute(query).fetchall()}
