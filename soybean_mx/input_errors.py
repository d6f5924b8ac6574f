"""What is raised where something was given that cannot be used."""
from __future__ import annotations


class InputError(ValueError):
    """Something that a user gave cannot be used; the message is one sentence with its value, and what to do.

    The command line prints it, and ends with status 2.
    """
