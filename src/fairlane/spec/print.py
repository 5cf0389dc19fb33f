"""Expressions and types as text, with the fewest brackets that keep their meaning."""

from __future__ import annotations

from fairlane.spec import tree

_BINDS = {"||": 1, "&&": 2, "in": 3, **dict.fromkeys(("==", "!=", "<=", ">=", "<", ">"), 3)}
_BINDS |= {"+": 4, "-": 4, "*": 5, "/": 5, "%": 5}
_UNARY, _POSTFIX = 6, 7


def print_type(node: tree.TypeNode) -> str:
    match node:
        case tree.NamedType(name=name):
            return name.text
        case tree.GenericType(name=name, of=of):
            return f"{name.text}<{', '.join(map(print_type, of))}>"
        case tree.EnumType(name=name, choices=choices):
            return f"{name.text}({', '.join(choice.text for choice in choices)})"
        case tree.OptionalType(of=inner):
            return f"{print_type(inner)}?"
        case tree.RecordType(fields=fields):
            inside = "  ".join(f"{field.name.text}: {print_type(field.type)}" for field in fields)
            return f"{{ {inside} }}" if inside else "{}"


def print_expression(node: tree.Expression, binding: int = 0) -> str:
    """`binding` is how strongly its surroundings bind; an expression that binds less is put in brackets."""
    own, text = _printed(node)
    return f"({text})" if own < binding else text


def _printed(node: tree.Expression) -> tuple[int, str]:
    match node:
        case tree.Literal(text=text):
            return _POSTFIX + 1, text
        case tree.Name(name=name):
            return _POSTFIX + 1, name
        case tree.Member(of=of, name=word):
            return _POSTFIX, f"{print_expression(of, _POSTFIX)}.{word.text}"
        case tree.Index(of=of, key=key):
            return _POSTFIX, f"{print_expression(of, _POSTFIX)}[{print_expression(key)}]"
        case tree.Function(name=word, target=None, arguments=arguments):
            return _POSTFIX, f"{word.text}({_joined(arguments)})"
        case tree.Function(name=word, target=target, arguments=arguments):
            assert target is not None
            return _POSTFIX, f"{print_expression(target, _POSTFIX)}.{word.text}({_joined(arguments)})"
        case tree.Unary(operator=operator, of=of):
            return _UNARY, f"{operator}{print_expression(of, _UNARY)}"
        case tree.Binary(operator=operator, left=left, right=right):
            own = _BINDS[operator]
            return own, f"{print_expression(left, own)} {operator} {print_expression(right, own + 1)}"
        case tree.Conditional(test=test, then=then, otherwise=otherwise):
            parts = (print_expression(test, 1), print_expression(then, 1), print_expression(otherwise))
            return 0, f"{parts[0]} ? {parts[1]} : {parts[2]}"
        case tree.ListOf(items=items):
            return _POSTFIX, f"[{_joined(items)}]"
        case tree.MapOf(pairs=pairs):
            inside = (f"{print_expression(key)}: {print_expression(value)}" for key, value in pairs)
            return _POSTFIX, f"{{{', '.join(inside)}}}"


def _joined(nodes: tuple[tree.Expression, ...]) -> str:
    return ", ".join(map(print_expression, nodes))
