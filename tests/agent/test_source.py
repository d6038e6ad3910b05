"""What is sent to a machine: one small file that means the same as the files it is made of."""

from __future__ import annotations

import ast
import builtins
import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

import cloudgpu
from cloudgpu.agent import own
from cloudgpu.agent.program import MODULES, assemble, minify, own_meter_source, source

PACKAGE = Path(cloudgpu.__file__).parent
ROOM = 6_200  # bytes compressed: the agent travels in the boot data, which have 16 kB for everything


def test_what_is_sent_is_small():
    assert len(gzip.compress(source().encode(), 9)) <= ROOM


# -- it means the same: node by node, with a name of its own for each name of ours


class Same:
    """Walks two programs side by side; `names` says which name of the one is which of the other."""

    def __init__(self):
        self.top, self.attributes = {}, {}
        self.local = None

    def name(self, read, sent):
        if self.local is not None and read in self.local:
            assert self.local[read] == sent, read
        elif self.local is not None and read in self.bound:
            assert sent not in self.local.values(), f"{read} and another are both {sent}"
            assert sent not in dir(builtins), sent
            assert sent not in self.top.values(), sent
            self.local[read] = sent
        else:
            assert self.top.setdefault(read, sent) == sent, read

    def node(self, read, sent):
        if isinstance(read, list):
            assert len(read) == len(sent)
            for one, other in zip(read, sent, strict=True):
                self.node(one, other)
        elif isinstance(read, ast.FunctionDef) and self.local is None:
            self.function(read, sent)
        elif isinstance(read, ast.AST):
            assert type(read) is type(sent)
            self.fields(read, sent)
        else:
            assert read == sent

    def function(self, read, sent):
        inside = list(ast.walk(read))
        self.bound = {node.arg for node in inside if isinstance(node, ast.arg)}
        self.bound |= {node.name for node in inside if isinstance(node, ast.ExceptHandler)}
        self.bound |= {node.id for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        self.local = {}
        self.fields(read, sent)
        assert len(set(self.local.values())) == len(self.local)
        self.local = None

    def fields(self, read, sent):
        for field in read._fields:
            one, other = getattr(read, field, None), getattr(sent, field, None)
            if (isinstance(one, str) and field in ("id", "arg") and not isinstance(read, ast.keyword)) or (
                isinstance(read, ast.ExceptHandler) and field == "name" and one
            ):
                self.name(one, other)
            elif isinstance(read, ast.Attribute) and field == "attr":
                assert self.attributes.setdefault(one, other) == other, one
            elif isinstance(read, (ast.FunctionDef, ast.ClassDef)) and field == "name":
                names = self.attributes if self.in_class(read) else self.top
                assert names.setdefault(one, other) == other, one
            elif field not in ("ctx", "type_comment", "kind", "annotation", "returns", "type_params"):
                self.node(one, other)

    def in_class(self, read):
        return read in self.methods


def _read():
    """The program as it is read, without what has no meaning: docstrings, annotations, imports that nothing uses."""
    tree = assemble(PACKAGE)
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
            node.body = node.body[1:] or [ast.Pass()]
    tree.body = [
        node for node in tree.body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    ]
    return ast.parse(ast.unparse(_Assigned().visit(tree)))


class _Assigned(ast.NodeTransformer):
    def visit_AnnAssign(self, node):
        return ast.copy_location(ast.Assign([node.target], node.value), node)

    def visit_ClassDef(self, node):
        return node if ast.unparse(node.bases) == "NamedTuple" else self.generic_visit(node)


def _kinds(tree, *, imports):
    return [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom)) is imports]


def test_what_is_sent_means_what_is_read():
    read, sent = _read(), ast.parse(source())
    same = Same()
    same.methods = {node for one in ast.walk(read) if isinstance(one, ast.ClassDef) for node in one.body}
    ours, theirs = _kinds(read, imports=False), _kinds(sent, imports=False)
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        if isinstance(one, ast.ClassDef) and isinstance(other, ast.Assign):
            _check_fields(one, other, same)
        else:
            same.node(one, other)
    assert len(set(same.top.values())) == len(same.top)
    assert len(set(same.attributes.values())) == len(same.attributes)
    assert all(sent == read for read, sent in same.top.items() if read in dir(builtins))


def _check_fields(read, sent, same):
    """A class of nothing but fields is sent as the call that makes one."""
    assert same.top.setdefault(read.name, sent.targets[0].id) == sent.targets[0].id
    fields = [node for node in read.body if isinstance(node, ast.AnnAssign)]
    call = sent.value
    assert ast.literal_eval(call.args[1]).split() == [node.target.id for node in fields]
    values = [ast.literal_eval(node.value) for node in fields if node.value]
    assert [ast.literal_eval(word.value) for word in call.keywords] == ([values] if values else [])


def test_braces_of_an_f_string_hold_no_string():
    """Pythons from 3.12 on write it with quotes inside quotes, which older ones cannot read."""
    for node in ast.walk(assemble(PACKAGE)):
        if isinstance(node, ast.FormattedValue):
            inside = [one for one in ast.walk(node.value) if isinstance(one, ast.Constant)]
            assert not any(isinstance(one.value, str) for one in inside), ast.unparse(node)


def test_names_that_are_fields_or_belong_to_others_stay():
    text = (
        "import os\nclass A:\n def __init__(self, long):\n  self.mine = long\n"
        " def read(self, value=3): return self.mine.other + os.getpid() + value\n"
        "def run(program):\n kept = [one for one in program]\n return A(kept).read(value=5) + kept.mine\n"
    )
    sent = minify(ast.parse(text))
    assert "value=5" in sent
    assert "def read(" in sent, "it is asked of something else than self"
    assert ".other" in sent
    assert ".mine" in sent
    assert "long" not in sent
    assert "kept" not in sent


def test_comments_docstrings_and_annotations_go_and_strings_stay():
    text = '"""Say."""\ndef f(a: int) -> str:\n    """Say."""\n    # why\n    b: str = "# no"  # gone\n    return b\n'
    assert minify(ast.parse(text)) == "def A(a):b='# no';return b\n"


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("if x:\n y\n z\nelse:\n w\n", "if x:y;z\nelse:w\n"),
        ("if x:\n if y:\n  z\nw\n", "if x:\n if y:z\nw\n"),
        ("if x:\n y\n if z:\n  w\n v\nu\n", "if x:\n y\n if z:w\n v\nu\n"),
        ("import os\nx(os)\nimport os\nimport json\ny(json)\n", "import os,json;x(os);y(json)\n"),
    ],
)
def test_simple_statements_share_a_line_and_compound_ones_keep_theirs(text, sent):
    assert minify(ast.parse(text)) == sent


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("x = (1, 2)", "A=1,2\n"),
        ("x = (1, 2)[0]", "A=(1,2)[0]\n"),
        ("x = any(y for y in z)", "A=any(y for y in z)\n"),
        ("x = f((y for y in z), 2)", "A=f((y for y in z),2)\n"),
        ("x = len((1, [y for y in z]))", "A=len((1,[y for y in z]))\n"),
        ("x = a if b else (c, d)", "A=a if b else(c,d)\n"),
        ("x = f'{a} {b!r:>4}' + 'it'", "A=f'{a} {b!r:>4}'+'it'\n"),
    ],
)
def test_parentheses_go_only_where_they_mean_nothing(text, sent):
    assert minify(ast.parse(text)).replace("B", "y") == sent
    assert ast.dump(ast.parse(sent)) == ast.dump(ast.parse(minify(ast.parse(text)).replace("B", "y")))


# -- where it runs


def _pythons():
    """This Python, and the oldest that a machine may bring where this computer has it."""
    older = sorted(Path.home().glob(".pyenv/versions/3.8*/bin/python"))
    return [sys.executable, *([str(older[0])] if older else [])]


def test_it_is_python_3_8():
    for text in (source(), own_meter_source()):
        ast.parse(text, feature_version=(3, 8))


def test_it_needs_the_standard_library_only():
    names = set()
    for node in (one for text in (source(), own_meter_source()) for one in ast.walk(ast.parse(text))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            names.add(node.module.partition(".")[0])
    assert names - {"own"} <= sys.stdlib_module_names


def test_it_runs_without_any_installed_package(tmp_path):
    program = tmp_path / "agent.py"
    program.write_text(source())
    for python in _pythons():
        command = [python, "-I", "-S", str(program), "status", "--since", "0"]
        done = subprocess.run(command, capture_output=True, check=True)
        said = json.loads(done.stdout)
        assert said["why"] == "the agent is silent"
        assert said["samples"][-1]["s"] == 1.0


def test_its_second_file_stands_alone(tmp_path):
    (tmp_path / "own.py").write_text(own_meter_source())
    command = [sys.executable, "-S", "-c", "import own; print(own.read_own_meters(['no-such-words'])[3])"]
    assert subprocess.run(command, capture_output=True, check=True, cwd=tmp_path).stdout == b"False\n"
    assert Path(own.__file__).read_text() == own_meter_source()


def test_it_carries_the_very_rules_that_decide_outside():
    assert MODULES[0] == "core/activity/idle"
    imported = (PACKAGE / "agent" / "agent.py").read_text()
    assert "from cloudgpu.core.activity.idle import ACTIVE" in imported
