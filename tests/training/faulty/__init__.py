"""Strategies with a fault, by name `faulty.<module>`: what the tests must notice."""
