"""Assembles the agent's modules into one minified program: no comments, docstrings, annotations or long names."""

from __future__ import annotations

import ast
import builtins
import io
import keyword
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import accumulate, chain, product
from pathlib import Path
from string import ascii_lowercase, ascii_uppercase

MODULES = (
    "core/activity/idle",
    "agent/files",
    "agent/jupyter",
    "agent/meters",
    "agent/lease",
    "agent/sampler",
    "agent/agent",
)


@cache
def source() -> str:
    """Return the agent's program as it is sent to a machine. It is minified because user data is limited to 16 kB.

    Read `agent.py` beside this file first, and `cloudgpu.core.activity.idle` for what counts as activity.
    """
    return minify(assemble(Path(__file__).parents[1]))


def own_meter_source() -> str:
    """Return the text of `own.py`, which meters only the machine's own processes.

    It is sent beside the agent to a machine that shares its computer with others (`local`, `ssh`).
    """
    return Path(__file__).with_name("own.py").read_text(encoding="utf-8")


def assemble(package: Path) -> ast.Module:
    """Return the program made of MODULES, in an order in which each name is defined before it is used.

    Imports of our own modules are removed: what they name is in the same file. Only `from x import y` is handled.
    """
    body: list[ast.stmt] = []
    for module in MODULES:
        text = package.joinpath(f"{module}.py").read_text(encoding="utf-8")
        body += [node for node in ast.parse(text).body if not _is_ours(node)]
    program = ast.Module(body, type_ignores=[])
    for node in ast.walk(program):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("cloudgpu."):
            # Imported inside a function: a file of its own, sent beside this one.
            node.module = node.module.rpartition(".")[2]
    return program


def _is_ours(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("cloudgpu", "__future__")


def minify(program: ast.Module) -> str:
    """Return the program as short text that does the same, with its own names shortened.

    Kept are the fields of a NamedTuple, arguments that a call passes by keyword, and all strings. Strings are not
    searched for names, so a program must not look its own names up by a string, as `getattr` does. No expression in an
    f-string may hold a string: Python 3.12 and later write that in a way that older versions cannot read. Imports move
    to the top; decorators are not handled.
    """
    tree = ast.parse(ast.unparse(program))
    _Stripper().visit(tree)
    _gather_imports(tree)
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    reserved = {alias.name for node in imports for alias in node.names} | set(dir(builtins)) | set(keyword.kwlist)
    _rename_locals(tree, {*reserved, *_global_names(tree)})
    _rename_globals(tree, reserved)
    _rename_attributes(tree)
    return _squeeze(ast.unparse(ast.fix_missing_locations(tree)))


_AROUND_VALUE = (("=", "\n"), ("=", ""))  # tokens before and after an assigned value; the last line may lack a newline
_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")


class _Stripper(ast.NodeTransformer):
    """Removes docstrings and annotations; a NamedTuple becomes a call of `namedtuple`."""

    def visit_Module(self, node: ast.Module) -> ast.AST:
        return self._body(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        for alias in node.names:
            if alias.name == "NamedTuple":
                node.module, alias.name = "collections", "namedtuple"
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        if [ast.unparse(base) for base in node.bases] != ["NamedTuple"]:
            return self._body(node)
        fields = [statement for statement in node.body if isinstance(statement, ast.AnnAssign)]
        names = " ".join(ast.unparse(field.target) for field in fields)
        values = ", ".join(ast.unparse(field.value) for field in fields if field.value)
        defaults = f", defaults=[{values}]" if values else ""
        return ast.parse(f"{node.name} = namedtuple({node.name!r}, {names!r}{defaults})").body[0]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        self.visit(node.args)
        return self._body(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        return ast.copy_location(ast.Assign([node.target], node.value or ast.Constant(None)), node)

    def _body(self, node: ast.Module | ast.ClassDef | ast.FunctionDef) -> ast.AST:
        body = [
            statement
            for statement in node.body
            if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        ]
        node.body = [self.visit(statement) for statement in body or [ast.Pass()]]
        return node


def _gather_imports(tree: ast.Module) -> None:
    """Remove unused and repeated imports, and put those of whole modules into one line at the top."""
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    modules: list[ast.alias] = []
    for node in list(tree.body):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            node.names = [alias for alias in node.names if alias.name in used]
            used -= {alias.name for alias in node.names}  # later imports of the same name are removed
            if not node.names or isinstance(node, ast.Import):
                tree.body.remove(node)
                modules += node.names if isinstance(node, ast.Import) else []
    tree.body[:0] = [ast.Import(modules)] if modules else []


def _global_names(tree: ast.Module) -> dict[str, None]:
    """Return the names that the module defines, in order; the values mean nothing."""
    names: list[str] = []
    for statement in tree.body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            names.append(statement.name)
        else:
            names += [node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and _binds(node)]
    return dict.fromkeys(names)


def _rename_locals(tree: ast.Module, reserved: Iterable[str]) -> None:
    """Shorten the local names of each function, together with those of functions inside it."""
    defined = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    keyword_names = {word.arg for node in calls if _called_name(node) in defined for word in node.keywords}
    for function in _outermost_functions(tree):
        nodes = sorted(
            ast.walk(function), key=lambda node: (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
        )
        arguments = {node.arg for node in nodes if isinstance(node, ast.arg)}
        bound_names = dict.fromkeys(name for node in nodes if _binds(node) and (name := _name(node)))
        local_names = [name for name in bound_names if name not in {*reserved, *(arguments & keyword_names)}]
        used = {name for node in nodes if (name := _name(node))} - set(local_names)
        _apply_names(nodes, dict(zip(local_names, _short_names(ascii_lowercase, {*reserved, *used}), strict=False)))


def _rename_globals(tree: ast.Module, reserved: set[str]) -> None:
    short_names = dict(zip(_global_names(tree), _short_names(ascii_uppercase, reserved), strict=False))
    _apply_names(ast.walk(tree), short_names)
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            node.name = short_names[node.name]


def _rename_attributes(tree: ast.Module) -> None:
    """Shorten attributes that are used on nothing but a method's first argument (`self`)."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    methods = [node for class_ in classes for node in class_.body if isinstance(node, ast.FunctionDef)]
    self_attributes = {
        id(node) for method in methods for node in ast.walk(method) if _is_attribute_of(node, method.args.args[0].arg)
    }
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    other_names = {node.attr for node in attributes if id(node) not in self_attributes}
    names = dict.fromkeys(
        node.attr for node in attributes if node.attr not in other_names and not node.attr.startswith("__")
    )
    short_names = dict(zip(names, _short_names(ascii_lowercase, other_names | set(keyword.kwlist)), strict=False))
    for node in attributes:
        node.attr = short_names.get(node.attr, node.attr)
    for method in methods:
        method.name = short_names.get(method.name, method.name)


def _is_attribute_of(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name


def _called_name(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _short_names(letters: str, reserved: Iterable[str]) -> Iterator[str]:
    candidates = chain(letters, map("".join, product(letters, repeat=2)))
    return (name for name in candidates if name not in set(reserved))


def _outermost_functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield node
        else:
            yield from _outermost_functions(node)


def _apply_names(nodes: Iterable[ast.AST], short_names: Mapping[str, str]) -> None:
    for node in nodes:
        if isinstance(node, ast.Name):
            node.id = short_names.get(node.id, node.id)
        elif isinstance(node, ast.arg):
            node.arg = short_names.get(node.arg, node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            node.name = short_names.get(node.name, node.name)


def _name(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.arg):
        return node.arg
    return node.name if isinstance(node, ast.ExceptHandler) else None


def _binds(node: ast.AST) -> bool:
    """Say whether a node with a name (see `_name`) defines it: assigns it, or is an argument or an exception."""
    return not isinstance(node, ast.Name) or isinstance(node.ctx, ast.Store)


def _squeeze(text: str) -> str:
    """Return the text with few lines, one space per level of indentation, and otherwise only spaces between words."""
    lines: list[tuple[int, str]] = []
    line, level = "", 0
    for kind, piece in _drop_parentheses(list(_tokens(text))):
        level += (kind == tokenize.INDENT) - (kind == tokenize.DEDENT)
        if kind == tokenize.NEWLINE:
            lines.append((level, line))
            line = ""
        elif kind not in (tokenize.INDENT, tokenize.DEDENT, tokenize.NL, tokenize.ENDMARKER):
            line += " " + piece if _is_word(line[-1:]) and _is_word(piece[:1]) else piece
    return "".join(" " * level + line + "\n" for level, line in _join_lines(lines))


def _join_lines(lines: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield the lines with simple statements joined by semicolons, and a block of nothing else behind its colon."""
    joined: list[tuple[int, str]] = []
    for level, line in lines:
        if joined and joined[-1][0] == level and not joined[-1][1].endswith(":") and not line.endswith(":"):
            joined[-1] = level, f"{joined[-1][1]};{line}"
        else:
            joined.append((level, line))
    index = 0
    while index < len(joined):
        level, line = joined[index]
        levels = [level for level, _ in joined[index + 1 : index + 3]] + [0]
        if line.endswith(":") and levels[1] <= level and not joined[index + 1][1].endswith(":"):
            line, index = line + joined[index + 1][1], index + 1
        yield level, line
        index += 1


def _drop_parentheses(tokens: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Drop parentheses around a generator that is a call's only argument, and around a tuple that is assigned."""
    texts = [text for _, text in tokens]
    opening_indexes: list[int] = []
    dropped: set[int] = set()
    for index, text in enumerate(texts):
        if text in _OPENING:
            opening_indexes.append(index)
        elif text in _CLOSING:
            opening = opening_indexes.pop()
            inside, around = texts[opening + 1 : index], (texts[opening - 1], texts[index + 1])
            is_call = _is_word(texts[opening - 2][-1:]) and not keyword.iskeyword(texts[opening - 2])
            is_only_argument = around == ("(", ")") and opening_indexes[-1:] == [opening - 1] and is_call
            if text == ")" and (
                (is_only_argument and _is_outside_brackets("for", inside))
                or (around in _AROUND_VALUE and _is_outside_brackets(",", inside))
            ):
                dropped |= {opening, index}
    return [token for index, token in enumerate(tokens) if index not in dropped]


def _is_outside_brackets(word: str, texts: list[str]) -> bool:
    """Tell whether `word` is among the tokens outside of brackets; no with a lambda, whose it might be."""
    depths = accumulate((text in _OPENING) - (text in _CLOSING) for text in texts)
    return "lambda" not in texts and any(text == word and not depth for text, depth in zip(texts, depths, strict=True))


def _tokens(text: str) -> Iterator[tuple[int, str]]:
    """Yield the kind and the text of each token; an f-string is one token, as before Python 3.12."""
    lines, depth, start = text.splitlines(), 0, (0, 0)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kind = tokenize.tok_name[token.type]
        if kind == "FSTRING_START":
            start = start if depth else token.start
            depth += 1
        elif kind == "FSTRING_END":
            depth -= 1
            if not depth:
                yield tokenize.STRING, lines[start[0] - 1][start[1] : token.end[1]]
        elif not depth:
            yield token.type, token.string


def _is_word(letter: str) -> bool:
    return letter.isalnum() or letter == "_"
