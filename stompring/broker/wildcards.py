"""Which wildcard addresses match a concrete one, found by walking words, not by trying every pattern."""

from __future__ import annotations

from stompring.settings.model import WildcardSyntax


class _Node:
    """One word of wildcard addresses, and the address that ends with it, if one does."""

    __slots__ = ("children", "name")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.name: str | None = None


class WildcardAddresses:
    """The wildcard addresses there are, as a tree of words (Artemis, wildcard routing).

    ``#`` stands for any number of words, also none and also in the middle; ``*`` for exactly one. Only a whole
    word is a wildcard.

    ``visited`` counts the nodes that `matching` has entered since the start. One call enters each node at most once.
    Above the first wildcard of an address a name leads to one node per word; only what is below a wildcard can be
    entered for many addresses at once. ``words_after`` is the number of such nodes, so a call enters at most
    ``words_after`` nodes and three per word of the name.
    """

    def __init__(self, syntax: WildcardSyntax) -> None:
        self.syntax = syntax
        self.visited = 0
        self.words_after = 0
        self._root = _Node()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def is_wildcard(self, name: str) -> bool:
        """Whether a name is a pattern."""
        syntax = self.syntax
        if not syntax.routing_enabled:
            return False
        words = name.split(syntax.delimiter)
        return syntax.any_words in words or syntax.single_word in words

    def growth(self, name: str) -> int:
        """By how much `add` would raise ``words_after``."""
        node: _Node | None = self._root
        below = False
        more = 0
        for word in name.split(self.syntax.delimiter):
            node = None if node is None else node.children.get(word)
            more += below and node is None
            below = below or self._is_wildcard_word(word)
        return more

    def add(self, name: str) -> None:
        """A wildcard address was made."""
        self.words_after += self.growth(name)
        node = self._root
        for word in name.split(self.syntax.delimiter):
            child = node.children.get(word)
            if child is None:
                child = node.children[word] = _Node()
            node = child
        node.name = name
        self._size += 1

    def remove(self, name: str) -> None:
        """A wildcard address was deleted; words that nothing needs any more go with it."""
        path = [self._root]
        words = name.split(self.syntax.delimiter)
        for word in words:
            path.append(path[-1].children[word])
        path[-1].name = None
        for parent, word in zip(reversed(path[:-1]), reversed(words), strict=True):
            child = parent.children[word]
            if child.name is not None or child.children:
                break
            del parent.children[word]
        self.words_after -= self.growth(name)
        self._size -= 1

    def matching(self, name: str) -> set[str]:
        """The wildcard addresses that match a concrete name."""
        if not self._size:
            return set()
        words = name.split(self.syntax.delimiter)
        any_words, single_word = self.syntax.any_words, self.syntax.single_word
        # Positions are bits: bit i of `at` says that the first i words of the name lead to a node. With all of a
        # node's positions in one number a node is entered once, whatever the number of ways that lead to it.
        end = 1 << len(words)
        everywhere = 2 * end - 1
        places: dict[str, int] = {}
        for place, word in enumerate(words):
            if not self._is_wildcard_word(word):
                places[word] = places.get(word, 0) | 1 << place
        found: set[str] = set()
        waiting = [(self._root, 1)]
        visited = 0
        while waiting:
            node, at = waiting.pop()
            visited += 1
            if at & end and node.name is not None:
                found.add(node.name)
            children = node.children
            if not children:
                continue
            child = children.get(any_words)
            if child is not None:
                waiting.append((child, everywhere & -(at & -at)))  # from the first position on
            at &= ~end
            if not at:
                continue
            child = children.get(single_word)
            if child is not None:
                waiting.append((child, at << 1))
            if not at & (at - 1):  # one position alone, so one word
                word = words[at.bit_length() - 1]
                child = children.get(word) if word in places else None
                if child is not None:
                    waiting.append((child, at << 1))
            elif len(children) <= len(places):
                for word, child in children.items():
                    here = at & places.get(word, 0)
                    if here:
                        waiting.append((child, here << 1))
            else:
                for word, where in places.items():
                    here = at & where
                    child = children.get(word) if here else None
                    if child is not None:
                        waiting.append((child, here << 1))
        self.visited += visited
        return found

    def _is_wildcard_word(self, word: str) -> bool:
        return word == self.syntax.any_words or word == self.syntax.single_word
