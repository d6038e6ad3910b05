"""`cloudgpu tunnel`: Jupyter on this machine's loopback."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from cloudgpu.cli import progress
from cloudgpu.cli.common import Format, MaybeName, Output, emit, open_session, tell
from cloudgpu.core.model.machine import Machine

if TYPE_CHECKING:
    from cloudgpu.control.access.jupyter import JupyterEndpoint
    from cloudgpu.control.session.session import Session
    from cloudgpu.views.documents.machines.access import TunnelDocument


def command(
    name: MaybeName = None,
    *,
    port: Annotated[int, typer.Option(help="The first local port to try.")] = 8888,
    open_: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    background: Annotated[
        bool, typer.Option("--background", "-b", help="Keep the tunnel open without this terminal.")
    ] = False,
    stop: Annotated[bool, typer.Option("--stop", help="End the background tunnel.")] = False,
    serve: Annotated[bool, typer.Option("--serve", hidden=True)] = False,  # the process that --background starts
    output: Output = Format.TEXT,
) -> None:
    """Open Jupyter: starts it on the machine if needed, and forwards a local port to it through verified SSH.

    Survives lost connections: new connections wait, and kernels keep running. Ctrl-C ends the tunnel, not Jupyter.
    """
    from cloudgpu.access.tunnel.background import check_port, stop as stop_tunnel

    check_port(port)
    session = open_session()
    machine = session.find(name, running=not stop)
    if stop:
        was_open = stop_tunnel(session.home.tunnels, machine.id) is not None
        message = (
            f"The tunnel to {machine.name} is closed."
            if was_open
            else f"There was no background tunnel to {machine.name}."
        )
        emit(output, {"name": machine.name, "stopped": was_open}, message)
    elif serve:
        from cloudgpu.control.access.jupyter import serve_background

        serve_background(session, machine, first_port=port)
    elif background:
        from cloudgpu.control.access.jupyter import start_background, tunnel_document

        endpoint, pid = start_background(session, machine, first_port=port)
        _show(tunnel_document(machine, endpoint, in_background=True, pid=pid), output)
        if open_:
            _open_in_browser(session, machine, endpoint)
    else:
        _run_in_foreground(session, machine, port, output, open_=open_)


def _run_in_foreground(session: Session, machine: Machine, port: int, output: Format, *, open_: bool) -> None:
    from cloudgpu.access.tunnel.background import remove_jupyter_page
    from cloudgpu.control.access.jupyter import JupyterTunnel

    with JupyterTunnel(session, machine, first_port=port) as tunnel:
        _show(tunnel.document(), output)
        tell("Ctrl-C ends the tunnel; Jupyter and its kernels keep running.")
        progress.end()
        try:
            if open_:
                _open_in_browser(session, machine, tunnel.notebook)
            error = tunnel.wait()
        except KeyboardInterrupt:
            return
        finally:
            remove_jupyter_page(session.home.tunnels, machine.id)
    if error:
        raise error


def _show(document: TunnelDocument, output: Format) -> None:
    emit(
        output, document, f"Jupyter on {document['name']}:\n{document['url']}"
    )  # the URL on its own line, which fits 60 columns


def _open_in_browser(session: Session, machine: Machine, endpoint: JupyterEndpoint) -> None:
    """Open a 0600 page that leads on to Jupyter: a browser's command line would show the token to everybody."""
    import webbrowser

    from cloudgpu.access.jupyter.notebook import open_page
    from cloudgpu.access.tunnel.background import jupyter_page_directory

    page = open_page(jupyter_page_directory(session.home.tunnels, machine.id), endpoint.port, endpoint.token)
    if not webbrowser.open(page.as_uri()):
        tell("No browser could be started; open this yourself:")
        sys.stderr.write(f"{page.as_uri()}\n")
