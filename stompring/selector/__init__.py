"""Selectors: the filter language of JMS and Artemis, compiled to predicates (docs/selectors.md)."""

from stompring.selector.syntax_tree import InvalidSelector

from .compile import Properties, Selector, compile_selector

__all__ = ["InvalidSelector", "Properties", "Selector", "compile_selector"]
