from __future__ import annotations

import ast
import gzip
import subprocess
import sys
from pathlib import Path

from cloudgpu.agent import agent, source
from cloudgpu.agent.bare import bare

READ = Path(agent.__file__).read_text()
ROOM = 5_200  # bytes of the 6,000 that the agent may have when it also samples GPU, CPU and the clouds' channels


def _meaning(text):
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
            node.body = node.body[1:] or node.body
    return ast.dump(tree)


def test_what_is_sent_is_small():
    assert len(gzip.compress(source().encode(), 9)) <= ROOM


def test_what_is_sent_means_what_is_read():
    assert _meaning(source()) == _meaning(READ)


def test_comments_go_and_strings_stay():
    text = (
        'def f():\n    """Say."""\n    # why\n    return "# no comment"  # gone\n\n\nclass A:\n    """Only this."""\n'
    )
    assert bare(text) == 'def f():\n return "# no comment"\nclass A:\n """Only this."""\n'


def test_it_is_python_3_8():
    ast.parse(source(), feature_version=(3, 8))


def test_it_needs_the_standard_library_only():
    names = set()
    for node in ast.walk(ast.parse(source())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            names.add(node.module.partition(".")[0])
    assert names <= sys.stdlib_module_names


def test_it_runs_without_any_installed_package(tmp_path):
    program = tmp_path / "agent.py"
    program.write_text(source())
    done = subprocess.run([sys.executable, "-I", "-S", str(program), "status"], capture_output=True, check=True)
    assert b'"why": "the agent is silent"' in done.stdout
