"""The base of expected errors, in a module without the libraries of the extra ``spark``."""

from __future__ import annotations


class PipelineError(Exception):
    """Base of expected errors that have no other class. They are shown by their message alone."""
