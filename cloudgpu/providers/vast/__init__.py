"""vast.ai: containers with GPUs on other people's computers, rented by offer."""
