"""Errors that a user can act on."""


class UserError(Exception):
    """A mistake or a missing thing, told in one sentence: what, where and what to do next.

    Commands print the message alone, without a traceback, and exit with status 2.
    """
