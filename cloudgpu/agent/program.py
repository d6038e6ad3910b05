"""Puts the agent's modules together as one program, without what only its readers need.

That is comments, docstrings, annotations and long names of its own.
"""

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

PARTS = (
    "core/activity/idle",
    "agent/files",
    "agent/jupyter",
    "agent/meters",
    "agent/lease",
    "agent/looking",
    "agent/agent",
)


@cache
def source() -> str:
    """Return the agent's program text as it is put on a machine: one file, without what only readers need.

    Boot data has 16 kB for everything, so the text travels bare; `agent.py` beside this file is where to begin reading.
    What it judges by is `cloudgpu.core.activity.idle`, line by line.
    """
    return minified(assembled(Path(__file__).parents[1]))


def own_source() -> str:
    """Return the text of `own.py`, which stands beside the agent on a machine that shares its computer with others."""
    return Path(__file__).with_name("own.py").read_text(encoding="utf-8")


def assembled(package: Path) -> ast.Module:
    """Return the program of PARTS, in their order: each name of ours stands there before it is used.

    Imports of our own modules fall away, for what they name is in the same file. `from x import y` alone is handled.
    """
    body: list[ast.stmt] = []
    for part in PARTS:
        text = package.joinpath(f"{part}.py").read_text(encoding="utf-8")
        body += [node for node in ast.parse(text).body if not _is_ours(node)]
    program = ast.Module(body, type_ignores=[])
    for node in ast.walk(program):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("cloudgpu."):
            node.module = node.module.rpartition(".")[2]  # inside a function: a file of its own, beside this one
    return program


def _is_ours(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("cloudgpu", "__future__")


def minified(program: ast.Module) -> str:
    """Return the program's text. What it does stays the same; only its own names may be others.

    Names of fields and of arguments that a call names stay, as do all strings: no program that looks its own names up
    by a string is handled. Braces of an f-string must hold no string: Pythons from 3.12 on would write one that older
    ones cannot read.
    """
    tree = ast.parse(ast.unparse(program))
    _Plain().visit(tree)
    _without_unused_imports(tree)
    kept = _imported(tree) | set(dir(builtins)) | set(keyword.kwlist)
    _rename_locals(tree, {*kept, *_globals(tree)})
    _rename_globals(tree, kept)
    _rename_attributes(tree)
    return _tight(ast.unparse(ast.fix_missing_locations(tree)))


_ASSIGNED = (("=", "\n"), ("=", ""))  # what stands around a value; the last line may end without a newline
_OPEN, _SHUT = ("(", "[", "{"), (")", "]", "}")


class _Plain(ast.NodeTransformer):
    """Removes docstrings and annotations; a class of nothing but fields becomes what makes one."""

    def visit_Module(self, node: ast.Module) -> ast.AST:
        return self._body(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        for one in node.names:
            if one.name == "NamedTuple":
                node.module, one.name = "collections", "namedtuple"
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        if [ast.unparse(one) for one in node.bases] != ["NamedTuple"]:
            return self._body(node)
        fields = [one for one in node.body if isinstance(one, ast.AnnAssign)]
        names = " ".join(ast.unparse(one.target) for one in fields)
        values = ", ".join(ast.unparse(one.value) for one in fields if one.value)
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
        body = [one for one in node.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
        node.body = [self.visit(one) for one in body or [ast.Pass()]]
        return node


def _without_unused_imports(tree: ast.Module) -> None:
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for node in list(tree.body):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            node.names = [one for one in node.names if one.name in used]
            used -= {one.name for one in node.names}  # a second import of it is none
            if not node.names:
                tree.body.remove(node)


def _imported(tree: ast.Module) -> set[str]:
    return {one.name for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom)) for one in node.names}


def _globals(tree: ast.Module) -> dict[str, None]:
    """Return what the module defines, in order."""
    names: list[str] = []
    for one in tree.body:
        if isinstance(one, (ast.FunctionDef, ast.ClassDef)):
            names.append(one.name)
        else:
            names += [node.id for node in ast.walk(one) if isinstance(node, ast.Name) and _binds(node)]
    return dict.fromkeys(names)


def _rename_locals(tree: ast.Module, kept: Iterable[str]) -> None:
    """Give the local names of each function short ones; functions inside it share them."""
    defined = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = {one.arg for node in calls if _called(node) in defined for one in node.keywords}
    for function in _outermost(tree):
        nodes = sorted(
            ast.walk(function), key=lambda node: (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
        )
        arguments = {node.arg for node in nodes if isinstance(node, ast.arg)}
        bound = dict.fromkeys(name for node in nodes if _binds(node) and (name := _name(node)))
        local = [name for name in bound if name not in {*kept, *(arguments & named)}]
        used = {name for node in nodes if (name := _name(node))} - set(local)
        _give(nodes, dict(zip(local, _short(ascii_lowercase, {*kept, *used}), strict=False)))


def _rename_globals(tree: ast.Module, kept: set[str]) -> None:
    short = dict(zip(_globals(tree), _short(ascii_uppercase, kept), strict=False))
    _give(ast.walk(tree), short)
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            node.name = short[node.name]


def _rename_attributes(tree: ast.Module) -> None:
    """Give the attributes short names that are only ever asked of `self`, which is each method's first argument."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    methods = [node for one in classes for node in one.body if isinstance(node, ast.FunctionDef)]
    own = {id(node) for method in methods for node in ast.walk(method) if _is_of(node, method.args.args[0].arg)}
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    others = {node.attr for node in nodes if id(node) not in own}
    mine = dict.fromkeys(node.attr for node in nodes if node.attr not in others and not node.attr.startswith("__"))
    short = dict(zip(mine, _short(ascii_lowercase, others | set(keyword.kwlist)), strict=False))
    for node in nodes:
        node.attr = short.get(node.attr, node.attr)
    for method in methods:
        method.name = short.get(method.name, method.name)


def _is_of(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _short(letters: str, kept: Iterable[str]) -> Iterator[str]:
    every = chain(letters, map("".join, product(letters, repeat=2)))
    return (name for name in every if name not in set(kept))


def _outermost(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield node
        else:
            yield from _outermost(node)


def _give(nodes: Iterable[ast.AST], short: Mapping[str, str]) -> None:
    for node in nodes:
        if isinstance(node, ast.Name):
            node.id = short.get(node.id, node.id)
        elif isinstance(node, ast.arg):
            node.arg = short.get(node.arg, node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            node.name = short.get(node.name, node.name)


def _name(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.arg):
        return node.arg
    return node.name if isinstance(node, ast.ExceptHandler) else None


def _binds(node: ast.AST) -> bool:
    return not isinstance(node, ast.Name) or isinstance(node.ctx, ast.Store)


def _tight(text: str) -> str:
    """Return the text with one space per level, and no others but between words."""
    out, level, before = [], 0, "\n"
    for kind, piece in _without_parentheses(list(_pieces(text))):
        level += (kind == tokenize.INDENT) - (kind == tokenize.DEDENT)
        if kind in (tokenize.INDENT, tokenize.DEDENT, tokenize.NL, tokenize.ENDMARKER):
            continue
        if before == "\n":
            out.append(" " * level)
        elif _is_word(before[-1]) and _is_word(piece[:1]):
            out.append(" ")
        before = "\n" if kind == tokenize.NEWLINE else piece
        out.append(before)
    return "".join(out)


def _without_parentheses(pieces: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Leave out those around a generator that is all that a call is given, and around a tuple that is assigned."""
    texts = [text for _, text in pieces]
    opened: list[int] = []
    gone: set[int] = set()
    for index, text in enumerate(texts):
        if text in _OPEN:
            opened.append(index)
        elif text in _SHUT:
            first = opened.pop()
            inside, around = texts[first + 1 : index], (texts[first - 1], texts[index + 1])
            called = _is_word(texts[first - 2][-1:]) and not keyword.iskeyword(texts[first - 2])
            alone = around == ("(", ")") and opened[-1:] == [first - 1] and called
            if text == ")" and ((alone and _stands("for", inside)) or (around in _ASSIGNED and _stands(",", inside))):
                gone |= {first, index}
    return [piece for index, piece in enumerate(pieces) if index not in gone]


def _stands(word: str, inside: list[str]) -> bool:
    """Tell whether a word stands there outside of all brackets; where there is a lambda, it may be the lambda's."""
    depths = accumulate((text in _OPEN) - (text in _SHUT) for text in inside)
    return "lambda" not in inside and any(
        text == word and not depth for text, depth in zip(inside, depths, strict=True)
    )


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """Yield the kind and the text of each token; an f-string is one, as it was before Python 3.12."""
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
