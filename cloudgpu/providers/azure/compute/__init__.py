"""Virtual machines of Azure: request, launch, list, deallocate, delete."""
