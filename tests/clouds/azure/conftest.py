"""The tests of our model of Azure itself."""

from tests.clouds.azure.fixtures import azure_arm, azure_process

__all__ = ["azure_arm", "azure_process"]
