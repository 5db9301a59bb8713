"""Models written for this benchmark."""
