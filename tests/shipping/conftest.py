"""The wheel and the sdist of the run."""

from ..packages import packages as packages
