"""RunPod: containers with GPUs, through its REST API v2."""
