"""`fairlane completion`: the commands for a shell, so that it completes those of fairlane."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal

from fairlane.cli.command import Command, Noun, Parameter, arg, is_option
from fairlane.cli.nouns import NOUNS, VERBS, noun, verb

app = Noun()

_BASH = """\
_fairlane() {
    local IFS=$'\\n'
    COMPREPLY=($(_FAIRLANE_COMPLETE=1 fairlane "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1))
}
complete -o default -F _fairlane fairlane
"""
_ZSH = """\
#compdef fairlane
_fairlane() {
    local -a found
    found=("${(@f)$(_FAIRLANE_COMPLETE=1 fairlane "${(@)words[2,$CURRENT]}" 2>/dev/null)}")
    found=("${(@)found//$'\\t'/:}")
    if [[ -n "${found[1]}" ]]; then _describe -V fairlane found; else _files; fi
}
if [[ "${funcstack[1]}" == _fairlane ]]; then _fairlane; else compdef _fairlane fairlane; fi
"""
_FISH = """\
function __fairlane
    set -l now (commandline -ct)
    set -l found (env _FAIRLANE_COMPLETE=1 fairlane (commandline -opc)[2..-1] "$now" 2>/dev/null)
    if set -q found[1]
        printf '%s\\n' $found
    else
        __fish_complete_path "$now"
    end
end
complete -c fairlane -f -a '(__fairlane)'
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


@app.command()
def completion(shell: Annotated[Literal["bash", "zsh", "fish"], arg("", "The shell.")]) -> None:
    """Print what a shell must run to complete commands: `source <(fairlane completion bash)`."""
    sys.stdout.write(_SCRIPTS[shell])


def complete(words: Sequence[str]) -> None:
    """Print the candidates for the last word, one a line, each with a tab and its help."""
    *before, now = words or [""]
    found = [(name, help) for name, help in _candidates(before, now) if name.startswith(now)]
    sys.stdout.write("".join(f"{name}\t{help}\n" for name, help in found))


def _candidates(before: list[str], now: str) -> Iterable[tuple[str, str]]:
    while before and is_option(before[0]):  # the broker, which may stand in front
        before = before[1 if "=" in before[0] else 2 :]
    match before:
        case []:
            return [*((name, _short(verb(name))) for name in VERBS), *NOUNS.items()]
        case [name, *rest] if name in VERBS:
            return _of_command(verb(name), rest, now)
        case [name] if name in NOUNS:
            return [(one, _short(command)) for one, command in noun(name).verbs.items()]
        case [name, one, *rest] if name in NOUNS and one in noun(name).verbs:
            return _of_command(noun(name).verbs[one], rest, now)
    return []


def _of_command(command: Command, before: list[str], now: str) -> Iterator[tuple[str, str]]:
    named = _valued(command, before[-1]) if before else None
    if named is not None:
        yield from ((choice, "") for choice in named.choices)
    elif is_option(now) or now == "-":
        for one in command.options:
            if not one.declared.hidden:
                yield from ((name, one.declared.help) for name in (max(one.names, key=len), *one.negations))
    else:
        values = sum(_valued(command, word) is not None for word in before)
        position = sum(not is_option(word) for word in before) - values
        yield from ((choice, "") for one in command.arguments[position : position + 1] for choice in one.choices)


def _valued(command: Command, word: str) -> Parameter | None:
    """The option of this name, if its value is the next word."""
    return next((one for one in command.options if word in one.names and one.kind is not bool), None)


def _short(command: Command) -> str:
    from fairlane.cli.usage import short

    return short(command.help)
