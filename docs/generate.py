"""What is made from the code: the pages of reference/, and parts of policies.md, design.md, ledger.md, library.md."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from documents import generated_documents
from typer.main import get_command

import cloudgpu
from cloudgpu import errors
from cloudgpu.cli.aliases import SYNONYMS
from cloudgpu.cli.common import PROVIDERS_PLACEHOLDER
from cloudgpu.cli.parser import app
from cloudgpu.cli.verbs import VERBS
from cloudgpu.config.settings import SHIPPED_KINDS
from cloudgpu.core.events.kinds import KINDS
from cloudgpu.core.reaper.rules import RULES
from cloudgpu.errors import CloudgpuError

_MADE = "<!-- Made by `python docs/check.py --write`. Changes here are lost. -->\n"
_CLI_HEAD = """\
`cloudgpu VERB --help` shows the same text. `-h` is short for `--help`; `cloudgpu --version` prints the version.
For what a verb prints with `-o json`, see [json.md](json.md); for exit codes, [errors.md](errors.md).
"""
_WORDS_HEAD = """\
## Other words

`cloudgpu help VERB` is the same as `cloudgpu VERB --help`, and `cloudgpu version` prints the version. Some verbs have
other names; `status` with a name is `show`. For other common words, such as `login`, an error says what to do.
"""
_ERRORS_HEAD = """\
An error is one sentence on stderr, and a second line that says what to do. With `-o json` it is one document on
stdout instead, `{"error": {...}}`: see [json.md](json.md#error).

Each code stands for what the caller does next. If a command has several errors, 9 takes precedence over 8, and 8 over
the others.
"""
_CLASSES_HEAD = """\
All are in `cloudgpu.errors` and inherit from `CloudgpuError`, which has `message`, `field`, `value`, `next`, `kind`,
`exit_code` and `retryable`. The tree, with what the caller does next:
"""
_RECORD = re.compile(r"Record\b")
_OTHER_CODES = {
    0: "Done, or you answered a question with no (one line on stderr says so).",
    130: "Interrupted with Ctrl-C. stderr names what may remain; with `-o json` there is no document.",
    141: "The reader of the output closed it (as `| head` does).",
    255: "From `exec` only: cloudgpu itself failed. Every other status is that of the command.",
}
_RULES, _RULES_END = f"<!-- rules -->\n{_MADE}\n", "\n<!-- end of rules -->\n"
_KINDS, _KINDS_END = f"<!-- kinds -->\n{_MADE}\n", "\n<!-- end of kinds -->\n"
_ERRORS, _ERRORS_END = f"<!-- errors -->\n{_MADE}\n", "\n<!-- end of errors -->\n"
_PROGRAM = re.compile(r"<!-- program (\S+) -->\n.*?<!-- end of program -->\n", re.DOTALL)
_TREE, _TREE_END = f"<!-- tree -->\n{_MADE}\n", "\n<!-- end of tree -->\n"
_TYPES, _TYPES_END = f"<!-- types -->\n{_MADE}\n", "\n<!-- end of types -->\n"
_MANY = 8


def generated(root: Path) -> dict[str, str]:
    """Return the text of every page that is generated, or has a part that is, by its path from the root."""
    policies, design, ledger, library = (
        (root / f"docs/{name}.md").read_text(encoding="utf-8") for name in ("policies", "design", "ledger", "library")
    )
    return {
        "docs/reference/cli.md": cli_page(),
        "docs/reference/errors.md": errors_page(),
        "docs/policies.md": with_rules(policies),
        "docs/design.md": with_types(with_tree(design)),
        "docs/ledger.md": with_kinds(ledger),
        "docs/library.md": with_errors(with_programs(library, root)),
        **generated_documents(),
    }


def with_programs(page: str, root: Path) -> str:
    """Return a page with each program between its two marks, as it is in its file; a notebook cell by cell."""

    def program(found: re.Match[str]) -> str:
        return f"<!-- program {found[1]} -->\n{_MADE}\n{_blocks(root / found[1])}\n<!-- end of program -->\n"

    return _PROGRAM.sub(program, page)


def _blocks(file: Path) -> str:
    text = file.read_text(encoding="utf-8")
    if file.suffix != ".ipynb":
        return f"```{'python' if file.suffix == '.py' else 'toml'}\n{text}```\n"
    cells = (cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code")
    return "\n".join(f"```python\n{''.join(cell['source'])}\n```\n" for cell in cells)


def with_errors(page: str) -> str:
    """Return a page with the classes of errors between its two marks: exit code, what to do, whether to repeat."""
    head = ["class", "exit code", "what to do", "repeat"]
    says = dict(re.findall(r"^[|`\- ]*(\w+) +\d+ {3}(.+)$", str(errors.__doc__), re.MULTILINE))
    rows = [
        [f"`{one.__name__}`", str(one.exit_code), says[one.__name__], "yes" if one.retryable else "no"]
        for one in classes()
    ]
    return _between(page, _ERRORS, _table(head, rows), _ERRORS_END)


def with_rules(page: str) -> str:
    """Return a page with the reaper's rules between its two marks, as a table in the order in which they are tried."""
    rows = [[f"`{one.rule}`", ", ".join(one.stages), one.says, "yes" if one.waits else "no"] for one in RULES]
    table = _table(["rule", "tried on", "what it does", "waits for a hold"], rows)
    return _between(page, _RULES, table, _RULES_END)


def with_tree(page: str) -> str:
    """Return a page with the packages of cloudgpu between its two marks, each with the first sentence of its docstring.

    A package stands below the one that it lies in, in the order of their names.
    """
    package = Path(cloudgpu.__path__[0])
    found = sorted(file.parent.relative_to(package) for file in package.rglob("*/__init__.py"))
    lines = [f"{'  ' * (len(one.parts) - 1)}- `{one.name}/`: {_clause(package / one)}\n" for one in found]
    return _between(page, _TREE, "".join(lines), _TREE_END)


def with_types(page: str) -> str:
    """Return a page with the classes that `_MANY` or more modules import between its two marks, but for errors.

    Each has the first sentences of its docstring and its module, in the order of their names.
    """
    root = Path(cloudgpu.__path__[0]).parent
    modules = {".".join(file.relative_to(root).with_suffix("").parts): file for file in root.glob("cloudgpu/**/*.py")}
    trees = {name: ast.parse(file.read_text(encoding="utf-8")) for name, file in modules.items()}
    imports = Counter(
        (node.module, alias.name)
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in trees and node.module != errors.__name__
        for alias in node.names
    )
    rows = []
    for (module, name), count in sorted(imports.items(), key=lambda one: one[0][::-1]):
        found = (one for one in trees[module].body if isinstance(one, ast.ClassDef) and one.name == name)
        if count >= _MANY and (defined := next(found, None)):
            says = " ".join((ast.get_docstring(defined) or "").split("\n\n")[0].split())
            rows.append([f"`{name}`", says, f"`{module.removeprefix('cloudgpu.')}`"])
    return _between(page, _TYPES, _table(["type", "is", "module"], rows), _TYPES_END)


def with_kinds(page: str) -> str:
    """Return a page with every kind of line between its two marks: what it is about, what it says, its body."""
    examples = (Path(__file__).parent / "reference" / "ledger.jsonl").read_text(encoding="utf-8")
    rows = [[f"`{kind}`", one.subject, _first(one.body), _keys(one.body)] for kind, one in KINDS.items()]
    table = _table(["kind", "about", "says", "body"], rows)
    head = "An example of each, with made-up values ([the same as a file](reference/ledger.jsonl)):"
    return _between(page, _KINDS, f"{table}\n{head}\n\n```json\n{examples}```\n", _KINDS_END)


def _keys(body: Any) -> str:
    """Return the keys of a typed dictionary, each with its type in JSON's words; `?` where it may be missing."""
    found = []
    for key, annotation in body.__annotations__.items():
        text = getattr(annotation, "__forward_arg__", None) or getattr(annotation, "__name__", str(annotation))
        inner = re.fullmatch(r"NotRequired\[(.*)\]", text)
        may_lack = inner is not None or key in body.__optional_keys__
        said = (inner[1] if inner else text).replace("| None", "or null").replace("None", "null").replace(" | ", " or ")
        found.append(f"`{key}`{'?' if may_lack else ''} {_json_words(_RECORD.sub('', said))}")
    return ", ".join(found)


def _json_words(said: str) -> str:
    """Return a type's text with JSON's words for Python's."""
    said = said.replace("Literal[True]", "true")
    said = re.sub(r"list\[(.*)\]", r"list of \1", re.sub(r"dict\[str, (\w+)\]", r"\1 by text", said))
    for python, word in (("str", "text"), ("int", "integer"), ("float", "number"), ("bool", "true or false")):
        said = re.sub(rf"\b{python}\b", word, said)
    return said.replace("list[", "list of ").replace("]", "")


def _clause(package: Path) -> str:
    said = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
    return re.split(r"\.(?:\s|$)", said, maxsplit=1)[0]


def _between(page: str, begin: str, text: str, end: str) -> str:
    before, _, rest = page.partition(begin)
    return f"{before}{begin}{text}{end}{rest.partition(end)[2]}"


def commands() -> dict[str, Any]:
    """Return every verb as the parser's command."""
    group = get_command(app)
    context = group.make_context("cloudgpu", [], resilient_parsing=True)
    return {verb: group.get_command(context, verb) for verb in VERBS}


def cli_page() -> str:
    """Return the reference of the command line."""
    parts = [
        f"# The command line\n\n{_MADE}",
        "This page lists every verb with its arguments and options.\n",
        _CLI_HEAD,
        _table(
            ["verb", "does"],
            [[f"[`{verb}`](#{verb.replace(' ', '-')})", summary] for verb, (_, summary) in VERBS.items()],
        ),
    ]
    by_verb: dict[str, list[str]] = {}
    for word, verb in SYNONYMS.items():
        by_verb.setdefault(verb, []).append(f"`{word}`")
    rows = [[_linked(verb), ", ".join(words)] for verb, words in by_verb.items()]
    parts += [_WORDS_HEAD, _table(["verb", "may also be typed as"], rows)]
    parts += [_verb(verb, command) for verb, command in commands().items()]
    return "\n".join(parts)


def _linked(verb: str) -> str:
    return f"[`{verb}`](#{verb.replace(' ', '-')})"


def _verb(verb: str, command: Any) -> str:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [param for param in command.params if param.param_type_name == "option" and not param.hidden]
    usage = " ".join(["cloudgpu", verb, "[OPTIONS]", *(_argument(param) for param in arguments)])
    lines = [f"## {verb}\n", f"```text\n{usage}\n```\n", inspect.cleandoc(command.help or "") + "\n"]
    if arguments:
        lines.append(_table(["argument", "is"], [[f"`{_word(param)}`", _said(param)] for param in arguments]))
    if options:
        lines.append(_table(["option", "means"], [[_option(param), _said(param)] for param in options]))
    return "\n".join(lines)


def _word(param: Any) -> str:
    return str(param.metavar or param.name.upper())


def _argument(param: Any) -> str:
    word = _word(param)
    return word if param.required or word.startswith("-") else f"[{word}]{'...' if param.nargs < 0 else ''}"


def _option(param: Any) -> str:
    names = ", ".join(f"`{name}`" for name in sorted(param.opts, key=len, reverse=True))
    if param.secondary_opts:
        return f"{names} / `{param.secondary_opts[0]}`"
    return names if param.is_flag else names + f" {_value(param)}"


def _value(param: Any) -> str:
    choices = getattr(param.type, "choices", None)
    words = [str(getattr(choice, "value", choice)) for choice in choices or ()]
    return " or ".join(f"`{word}`" for word in words) if words else f"`{param.metavar or param.type.name.upper()}`"


def _said(param: Any) -> str:
    default = param.default
    shown = getattr(default, "value", default)
    plain = default is None or isinstance(default, bool) or callable(default)
    said = (param.help or "").replace(PROVIDERS_PLACEHOLDER, f"{', '.join(SHIPPED_KINDS)} or a plug-in")
    return said + ("" if plain else f" Default: `{shown}`.")


def errors_page() -> str:
    """Return the reference of exit codes and error kinds."""
    return "\n".join(
        [
            f"# Exit codes and errors\n\n{_MADE}",
            "This page lists every exit code and every kind of error, with what to do next.\n",
            _ERRORS_HEAD,
            "## Exit codes\n",
            _table(["exit code", "kinds", "what to do"], sorted(_code_rows(), key=lambda row: int(row[0]))),
            "## Kinds\n",
            _table(
                ["kind", "exit code", "means", "class"],
                [[f"`{one.kind}`", str(one.exit_code), _first(one), f"`{one.__name__}`"] for one in classes()],
            ),
            _CLASSES_HEAD,
            f"```text\n{_tree()}\n```\n",
        ]
    )


def classes() -> list[type[CloudgpuError]]:
    """Return every error class, in the order of the file."""
    return [
        one
        for one in vars(errors).values()
        if inspect.isclass(one) and issubclass(one, CloudgpuError) and one.__module__ == errors.__name__
    ]


def exit_codes() -> set[int]:
    """Return every code that a command can exit with by itself."""
    return {*_OTHER_CODES, *(one.exit_code for one in classes())}


def _code_rows() -> Iterator[list[str]]:
    for code, meaning in _OTHER_CODES.items():
        yield [str(code), "", meaning]
    firsts: dict[int, str] = {}
    for found in re.finditer(r"\w +(\d+) +(\S.*)", _tree()):
        firsts.setdefault(int(found[1]), found[2])
    for code, meaning in firsts.items():
        kinds = ", ".join(f"`{one.kind}`" for one in classes() if one.exit_code == code)
        yield [str(code), kinds, meaning[0].upper() + meaning[1:] + "."]


def _tree() -> str:
    return (errors.__doc__ or "").split("\n\n")[1]


def _first(one: type) -> str:
    return " ".join((inspect.getdoc(one) or "").split("\n\n")[0].split())


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"
