"""Types of the tree to types of the document."""

from __future__ import annotations

from typing import get_args, get_type_hints

import msgspec

from fairlane.spec import ir, tree
from fairlane.spec.source import suggestion
from fairlane.spec.spec_file import SpecFile

SCALARS: tuple[str, ...] = get_args(get_type_hints(ir.Scalar)["of"])
OTHERS = ("list", "map", "enum")
_JSON = ir.Scalar(of="json")


def compile_record(file: SpecFile, node: tree.RecordType) -> ir.RecordType:
    fields: dict[str, ir.Type] = {}
    for field in node.fields:
        if field.name.text in fields:
            file.note(field.name, f"the field `{field.name.text}` is there twice")
        fields[field.name.text] = compile_type(file, field.type)
    return ir.RecordType(fields=fields)


def compile_type(file: SpecFile, node: tree.TypeNode) -> ir.Type:
    """A type; what is wrong with it is noted, and `json` stands for it so that compiling goes on."""
    match node:
        case tree.OptionalType(of=of):
            return msgspec.structs.replace(compile_type(file, of), optional=True)
        case tree.RecordType():
            return compile_record(file, node)
        case tree.NamedType(name=word):
            return _scalar(file, word)
        case tree.GenericType():
            return _generic(file, node)
        case tree.EnumType():
            return _enum(file, node)


def _scalar(file: SpecFile, word: tree.Word) -> ir.Type:
    if word.text in SCALARS:
        return msgspec.convert({"type": "scalar", "of": word.text}, ir.Scalar)
    if word.text in OTHERS:
        shape = {"list": "list<string>", "map": "map<string, json>", "enum": 'enum("a", "b")'}[word.text]
        file.note(word, f"`{word.text}` needs more: `{shape}`")
    else:
        file.note(word, f"there is no type `{word.text}`", hint=suggestion(word.text, [*SCALARS, *OTHERS]))
    return _JSON


def _generic(file: SpecFile, node: tree.GenericType) -> ir.Type:
    inner = [compile_type(file, of) for of in node.of]
    if node.name.text == "list" and len(inner) == 1:
        return ir.ListType(items=inner[0])
    if node.name.text == "map" and len(inner) == 2:
        if inner[0] != ir.Scalar(of="string"):
            file.note(node.of[0], "the keys of a map are strings, as those of a JSON object: `map<string, ...>`")
        return ir.MapType(values=inner[1])
    if node.name.text in ("list", "map"):
        file.note(node, f"`{node.name.text}` is written `{_shape(node.name.text)}`")
    else:
        hint = suggestion(node.name.text, ["list", "map"])
        file.note(node.name, f"`{node.name.text}` takes no types in `<>`", hint=hint)
    return _JSON


def _shape(name: str) -> str:
    return "list<T>" if name == "list" else "map<string, T>"


def _enum(file: SpecFile, node: tree.EnumType) -> ir.Type:
    if node.name.text != "enum":
        file.note(node.name, f"`{node.name.text}` takes no choices", hint=suggestion(node.name.text, ["enum"]))
        return _JSON
    choices: dict[str, None] = {}
    for literal in node.choices:
        if literal.value in choices:
            file.note(literal, f"the choice {literal.text} is there twice")
        choices[str(literal.value)] = None
    return ir.EnumType(choices=tuple(choices))
