"""What several providers do alike."""
