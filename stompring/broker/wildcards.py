"""Which wildcard addresses match a concrete one, found by walking words, not by trying every pattern."""

from __future__ import annotations

from stompring.settings.model import WildcardSyntax


class _Node:
    """One word of wildcard addresses, and the addresses that end with it."""

    __slots__ = ("children", "names")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.names: set[str] = set()


class WildcardAddresses:
    """The wildcard addresses there are, as a tree of words (Artemis, wildcard routing).

    ``#`` stands for any number of words, also none and also in the middle; ``*`` for exactly one. Only a whole
    word is a wildcard.
    """

    def __init__(self, syntax: WildcardSyntax) -> None:
        self.syntax = syntax
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

    def add(self, name: str) -> None:
        """A wildcard address was made."""
        node = self._root
        for word in name.split(self.syntax.delimiter):
            node = node.children.setdefault(word, _Node())
        node.names.add(name)
        self._size += 1

    def remove(self, name: str) -> None:
        """A wildcard address was deleted; words that nothing needs any more go with it."""
        path = [self._root]
        words = name.split(self.syntax.delimiter)
        for word in words:
            path.append(path[-1].children[word])
        path[-1].names.discard(name)
        for parent, word in zip(reversed(path[:-1]), reversed(words), strict=True):
            child = parent.children[word]
            if child.names or child.children:
                break
            del parent.children[word]
        self._size -= 1

    def matching(self, name: str) -> set[str]:
        """The wildcard addresses that match a concrete name."""
        if not self._size:
            return set()
        words = name.split(self.syntax.delimiter)
        any_words, single_word = self.syntax.any_words, self.syntax.single_word
        found: set[str] = set()
        seen: set[tuple[int, int]] = set()
        waiting = [(self._root, 0)]  # nodes to enter, each with the number of words that led there
        while waiting:
            node, at = waiting.pop()
            # a node is entered once per position: `#.a.#.a.#` would otherwise try every split of the words
            if (id(node), at) in seen:
                continue
            seen.add((id(node), at))
            rest = node.children.get(any_words)
            if rest is not None:
                waiting += [(rest, after) for after in range(at, len(words) + 1)]
            if at == len(words):
                found |= node.names
                continue
            for word in (single_word, words[at]):
                child = node.children.get(word)
                if child is not None and word != any_words:
                    waiting.append((child, at + 1))
        return found
