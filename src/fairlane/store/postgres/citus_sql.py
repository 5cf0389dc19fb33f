"""The forms of statements and functions that Citus accepts. One source serves all servers."""

from __future__ import annotations

import re
from functools import cache

from fairlane.model.ids import first_id

_FUNCTION = re.compile(
    r"(?P<head>CREATE OR REPLACE FUNCTION fairlane\.\w+\((?P<parameters>(?:[^()]|\([^()]*\))*?)\)\s*"
    r"(?:RETURNS\s+(?P<returns>(?:(?!LANGUAGE).)*?)\s*)?)"
    r"LANGUAGE sql\b(?P<options>[^$]*?)AS \$\$(?P<body>.*?);?\s*\$\$;",
    re.DOTALL,
)
_OUT = re.compile(r"\bOUT (\w+)")
_READS_TABLES = re.compile(r"(?:FROM|JOIN|INTO|UPDATE) fairlane\.\w+(?!\w*\()")
SETTINGS = {"citus.allow_nested_distributed_execution": "on"}
"""Settings of sessions. A function of a cell only reads and writes tables of the same node."""
_NOW = re.compile(r"coalesce\((\$\d+), (?:clock_timestamp|now)\(\)\)")
VERBS = ("push", "pop", "ack", "ack_unordered", "renew", "release", "ensure", "ensure_partitions")
"""Functions that other nodes delegate to the owner of a cell. Session settings do not apply to delegated calls."""
_DELEGATED = re.compile(rf"(FUNCTION fairlane\.(?:{'|'.join(VERBS)})\((?:(?!\$\$).)*?LANGUAGE plpgsql)", re.DOTALL)
_NUMBERS = re.compile(r"(\$\d+::text)::(bigint|int)\[\]")
_FIRST_TIME = re.compile(r"coalesce\((\w\.\w+), (fairlane\.now_or\(\$\d+\))\)")


@cache
def statement(text: str) -> str:
    """Return a statement in the form that Citus accepts.

    Citus rejects volatile functions in writes, functions in COALESCE that are not immutable, and casts from text to an
    array in delegated calls.
    """
    text = _NUMBERS.sub(r"fairlane.\2s_of(\1)", text)
    text = _FIRST_TIME.sub(r"least(\1, \2)", _NOW.sub(r"fairlane.now_or(\1)", text))
    return text.replace("clock_timestamp()", "statement_timestamp()")


@cache
def function_text(text: str) -> str:
    """Return functions in the forms that Citus accepts.

    It cannot use a generic plan of a statement with arrays, nor call an SQL function that reads its tables with
    parameters.
    """
    text = text.replace("SET plan_cache_mode = force_generic_plan", "SET plan_cache_mode = auto")
    text = _DELEGATED.sub(r"\1 SET citus.allow_nested_distributed_execution = on", text)
    return _FUNCTION.sub(_as_plpgsql, text)


def _as_plpgsql(match: re.Match[str]) -> str:
    body = match["body"].strip()
    code = re.sub(r"--.*", "", body)
    if not _READS_TABLES.search(code):
        return match[0]
    returns = (match["returns"] or "").strip()
    out = _OUT.findall(match["parameters"])
    if out:
        inner = f"SELECT x.* INTO {', '.join(out)} FROM (\n{body}) x;"  # noqa: S608  # ours
    elif returns == "void":
        inner = f"{body};"
    elif returns.startswith(("TABLE", "SETOF")):
        inner = f"RETURN QUERY\n{body};"
    else:
        inner = f"RETURN (\n{body});"
    return (
        f"{match['head']}LANGUAGE plpgsql{match['options']}AS $$\n#variable_conflict use_column\n"
        f"BEGIN\n{inner}\nEND $$;"
    )


def own_functions(cell: int) -> str:
    """Return the functions that only cells on Citus have, and those that differ there.

    Each node counts ids for itself, beginning at its number times 2**48. An id has the cell, then the node, then the
    count.
    """
    return f"""
CREATE OR REPLACE FUNCTION fairlane.new_id(p_number bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT {first_id(cell) - 1} + ((p_number >> 48) << 36) + (p_number & 68719476735);
$$;
CREATE OR REPLACE FUNCTION fairlane.ints_of(p_text text) RETURNS int[] LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN p_text::int[];
END $$;
CREATE OR REPLACE FUNCTION fairlane.bigints_of(p_text text) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN p_text::bigint[];
END $$;
CREATE OR REPLACE FUNCTION fairlane.now_or(p_now timestamptz) RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce(p_now, clock_timestamp());
END $$;
"""
