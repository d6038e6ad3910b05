"""`python -m tests.clouds.azure`: our model of Azure for a shell, until it is killed; prints what to export."""

from __future__ import annotations

from tests.clouds.azure.server import AzureServer
from tests.clouds.byhand import main

if __name__ == "__main__":
    main("azure", AzureServer, __doc__)
