"""A whole home before and after each shipped template."""

from __future__ import annotations

import json
import subprocess

import pytest

from cloudgpu.config.templates.find import template_names
from tests.cli.machines.test_templates import serve_notebooks, serve_package, site
from tests.providers.ssh.conftest import lab, own
from tests.providers.ssh.homes import everything, parts_of
from tests.providers.ssh.test_home import host, launched

__all__ = ["host", "lab", "own", "site"]
pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


def test_no_shipped_template_is_left_out():
    assert {"bare", "cuda", "d2l", "jupyter", "ngc", "ngc-rapids", "ngc-tensorflow", "pytorch"} == set(
        template_names(search=())
    )


@pytest.mark.parametrize("template", ["bare", "cuda", "jupyter"])
def test_a_home_is_the_same_before_and_after(lab, host, template):
    before = everything(host.home)
    made = launched(lab, host, parts_of(template))
    lab.provider.terminate(made.id)
    assert everything(host.home) == before


@pytest.mark.parametrize("template", ["d2l", "pytorch"])
def test_a_home_is_the_same_before_and_after_environments_were_made(lab, host, site, template):
    root, address = site
    serve_package(root, "tiny-torch")
    settings = {"packages": "tiny-torch", "index": f"{address}/simple"}
    if template == "d2l":
        serve_notebooks(root)
        serve_package(root, "tiny-d2l")
        settings |= {"library": "tiny-d2l", "repository": f"{address}/notebooks.git"}
    before = everything(host.home)
    made = launched(lab, host, parts_of(template, **settings))
    kernel = "python3" if template == "d2l" else template
    spec = json.loads((host.place / "jupyter" / "data" / "kernels" / kernel / "kernel.json").read_text())
    assert spec["argv"][0] == str(host.place / "environments" / template / "bin" / "python")
    subprocess.run([spec["argv"][0], "-c", "import ipykernel, tiny_torch"], check=True)
    if template == "d2l":
        book = host.home / "cloudgpu-one-2" / "d2l"
        subprocess.run(["git", "status"], cwd=book, check=True, capture_output=True)  # writes its index
    lab.provider.terminate(made.id)
    assert everything(host.home) == before
