"""What runs inside the training ranks. Imports nothing heavy: each module says what it needs."""
