"""JupyterLab on a machine: started, found, stopped."""
