"""Type relations: what may be compared, what may go where, what two have in common."""

from __future__ import annotations

from fairlane.spec import ir

JSON = ir.Scalar(of="json")
STRING, INT, FLOAT, BOOL = (ir.Scalar(of=of) for of in ("string", "int", "float", "bool"))
_TEXTS = ("string", "time", "uuid", "bytes")


def family(type_: ir.Type) -> str:
    """What a value of a type is in JSON; `json` if that cannot be known."""
    match type_:
        case ir.Scalar(of=of):
            return "string" if of in _TEXTS else of
        case ir.EnumType():
            return "string"
        case ir.ListType():
            return "list"
        case _:
            return "map"


def named(type_: ir.Type) -> str:
    """A type as people write it; a text that is known stands for itself."""
    match type_:
        case ir.Scalar(of=of):
            return of
        case ir.ListType(items=items):
            return f"list<{named(items)}>"
        case ir.MapType(values=values):
            return f"map<string, {named(values)}>"
        case ir.EnumType(choices=choices):
            texts = ", ".join(f'"{choice}"' for choice in choices)
            return texts if len(choices) == 1 else f"enum({texts})"
        case ir.RecordType(fields=fields):
            inside = "  ".join(f"{name}: {named(of)}" for name, of in fields.items())
            return f"{{ {inside} }}"


def common(one: ir.Type, other: ir.Type) -> ir.Type:
    """The narrowest type that both are."""
    if one == other:
        return one
    if isinstance(one, ir.EnumType) and isinstance(other, ir.EnumType):
        return ir.EnumType(choices=tuple(dict.fromkeys(one.choices + other.choices)))
    families = {family(one), family(other)}
    if families == {"string"}:
        return STRING
    if families == {"int", "float"}:
        return FLOAT
    if isinstance(one, ir.ListType) and isinstance(other, ir.ListType):
        return ir.ListType(items=common(one.items, other.items))
    return JSON


def misfit(have: ir.Type, want: ir.Type) -> str | None:
    """Why a value of one type can never be one of the other, or None if it may.

    What may be absent may also be there, and a string may be any of an enum's choices: that is seen message by message.
    """
    if JSON in (_plain(have), _plain(want)):
        return None
    if isinstance(have, ir.EnumType) and isinstance(want, ir.EnumType):
        strange = [choice for choice in have.choices if choice not in want.choices]
        return f'"{strange[0]}" is none of {named(want)}' if strange else None
    if isinstance(have, ir.ListType) and isinstance(want, ir.ListType):
        return misfit(have.items, want.items)
    if isinstance(want, ir.RecordType):
        return _record_misfit(have, want)
    if isinstance(want, ir.MapType):
        return _map_misfit(have, want)
    if family(have) == family(want) or (family(have), family(want)) == ("int", "float"):
        return None
    return f"this is {named(have)}, not {named(want)}"


def _plain(type_: ir.Type) -> ir.Type:
    return JSON if isinstance(type_, ir.Scalar) and type_.of == "json" else type_


def _map_misfit(have: ir.Type, want: ir.MapType) -> str | None:
    if isinstance(have, ir.MapType):
        return misfit(have.values, want.values)
    if isinstance(have, ir.RecordType):
        return next(filter(None, (misfit(of, want.values) for of in have.fields.values())), None)
    return f"this is {named(have)}, not {named(want)}"


def _record_misfit(have: ir.Type, want: ir.RecordType) -> str | None:
    if isinstance(have, ir.MapType):
        return next(filter(None, (misfit(have.values, of) for of in want.fields.values())), None)
    if not isinstance(have, ir.RecordType):
        return f"this is {named(have)}, not {named(want)}"
    for name, of in want.fields.items():
        if name in have.fields:
            why = misfit(have.fields[name], of)
            if why:
                return f"`{name}`: {why}"
        elif not of.optional:
            return f"`{name}` is missing"
    return None
