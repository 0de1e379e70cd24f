"""Header blocks with the same names in the same order, of which no two are the same: read by one regular expression.

A producer that puts something unique into each message (an id, a time) has the same names in all of them. From two such
blocks a `Template` is made. What it matches needs neither be split nor looked at line by line: the values that somebody
reads, and all the lines that are passed on as they are, come out of it as a few slices.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from stompring.stomp.decode import decode, decode_plain
from stompring.stomp.frame import Head
from stompring.stomp.scan import HeadLimits
from stompring.stomp.spec import BACKSLASH, COLON

#: Bytes of a block, and header lines, of which a template is made: to compile one takes some milliseconds.
LONGEST_BLOCK, MOST_LINES = 1024, 32

#: Templates of a connection, and blocks that wait for another one with the same names.
MOST_TEMPLATES, MOST_SAMPLES = 8, 16

#: Blocks that are looked at in any case, and of how many of the later ones one is.
EAGER, SELDOM = 64, 64

#: Blocks that no template fits, after which those are given up that have read fewer.
PATIENCE = 4096

_SEND = b"SEND\n"
_LENGTH = b"content-length"
_DIGITS = rb"[0-9]{1,18}+"  # as many as `decode_plain` reads
_PLAIN = rb"[^\n\r:\\\0]*+"
#: With the escapes of 1.2, each of which is how the byte that it stands for is always escaped.
_ESCAPED = rb"[^\n\r:\\\0]*+(?:\\[nrc\\][^\n\r:\\\0]*+)*+"

_new_head = object.__new__


@dataclass(frozen=True, slots=True)
class HeaderUse:
    """What the reader of SENDs does with headers: reads the values of some, and does not pass on others.

    Blocks with one that is ``special`` are not for templates.
    """

    read: frozenset[bytes]
    hidden: frozenset[bytes]
    special: frozenset[bytes]


class Template:
    """What the blocks of SENDs with certain names have in common.

    ``varying`` has the places, among the groups that ``match`` finds, of the values that are read and differ; ``rest``
    those of the lines that are passed on, in their order. ``matched`` counts. ``plan`` is free for whoever reads the
    frames.
    """

    __slots__ = ("length", "match", "matched", "names", "plan", "rest", "varying", "version")

    def __init__(
        self,
        names: tuple[bytes, ...],
        values: list[bytes],
        varying: set[bytes],
        use: HeaderUse,
        version: bytes,
    ) -> None:
        self.names = names
        self.version = version
        self.matched = 0
        self.plan: Any = None
        self.varying: dict[bytes, int] = {}
        self.length = 0  # the place of content-length; 0: there is none
        rest: list[int] = []
        parts, groups, passing = [_SEND], 0, False
        for name, value in zip(names, values, strict=True):
            if passing == (name in use.hidden):
                passing = not passing
                if passing:
                    groups += 1
                    rest.append(groups)
                parts.append(b"(" if passing else b")")
            if name == _LENGTH or (name in use.read and name in varying):
                groups += 1
                if name == _LENGTH:
                    self.length = groups
                else:
                    self.varying[name] = groups
                parts.append(b"%b:(%b)\n" % (re.escape(name), _DIGITS if name == _LENGTH else _PLAIN))
            elif name in use.read:
                parts.append(re.escape(b"%b:%b\n" % (name, value)))
            else:
                parts.append(b"%b:%b\n" % (re.escape(name), _ESCAPED if version == b"1.2" else _PLAIN))
        parts.append(b")\n" if passing else b"\n")
        self.rest = tuple(rest)
        self.match = re.compile(b"".join(parts)).match


class TemplateHead(Head):
    """The head of a SEND that a template matches. ``headers`` and ``block`` are made when somebody asks for them."""

    __slots__ = ("found", "template")

    template: Template
    found: re.Match[bytes]

    def __getattr__(self, name: str) -> Any:
        if name not in ("headers", "block"):
            raise AttributeError(name)
        block = self.found.group()[: -len(b"\n\n")]
        plain = decode_plain(block, _ANY)
        self.headers = decode(block, self.template.version).headers if plain is None else plain.headers
        self.block = b"" if BACKSLASH in block else block
        return self.headers if name == "headers" else self.block


_ANY = HeadLimits(1 << 30, 1 << 30)


class Templates:
    """The templates of one connection, and what becomes templates perhaps."""

    __slots__ = (
        "_learned",
        "_max_line",
        "_refused",
        "_samples",
        "_seen",
        "_use",
        "body",
        "max_body",
        "ready",
    )

    def __init__(self, use: HeaderUse, limits: HeadLimits) -> None:
        self.ready: list[Template] = []
        self.body = 0  # the offset after the block that `read` found last
        self.max_body = 0
        self._max_line = limits.max_line
        self._use = use
        self._seen = 0  # blocks that none fits
        self._samples: dict[tuple[bytes, ...], list[bytes]] = {}  # values by names, of the first block
        self._learned: dict[tuple[bytes, ...], set[bytes]] = {}  # which of them differ, of templates
        self._refused: set[tuple[bytes, ...]] = set()

    def read(self, data: bytes, start: int) -> TemplateHead | None:
        """The head at ``start``, None where no template fits."""
        for template in self.ready:
            found = template.match(data, start)
            if found is not None:
                break
        else:
            return None
        length = int(found[template.length]) if template.length else -1
        end = found.end()
        if length > self.max_body or end - start > self._max_line:
            return None  # what may break a limit is looked at by those who know them
        template.matched += 1
        head = _new_head(TemplateHead)
        head.command = b"SEND"
        head.content_length = length
        head.kin = None
        head.plan = None
        head.template = template
        head.found = found
        self.body = end
        return head

    def learn(self, block: bytes, version: bytes) -> None:
        """A block of a SEND that no template fits, without fault, with LF line ends and within the limits."""
        self._seen += 1
        if self._seen >= PATIENCE:
            self._review()
        if (self._seen > EAGER and self._seen % SELDOM) or len(block) > LONGEST_BLOCK:
            return
        _, *lines = block.split(b"\n")
        pairs = [line.partition(b":") for line in lines]
        names = tuple([name for name, _, _ in pairs])
        values = [value for _, _, value in pairs]
        if names in self._refused or not self._fit(names, values):
            return
        before = self._samples.setdefault(names, values)
        if before is values:
            if len(self._samples) > MOST_SAMPLES:
                self._samples = {names: values}
            return
        read = self._use.read
        differing = {
            name
            for name, one, other in zip(names, before, values, strict=True)
            if name in read and one != other
        }
        known = self._learned.get(names)
        if known is None:
            if len(self.ready) >= MOST_TEMPLATES:
                return
        elif differing <= known:
            return  # it is another thing that did not fit
        else:
            differing |= known
            self.ready = [template for template in self.ready if template.names != names]
        self._learned[names] = differing
        self.ready.append(Template(names, values, differing, self._use, version))

    def _fit(self, names: tuple[bytes, ...], values: list[bytes]) -> bool:
        """Whether blocks with these names are for templates: what is repeated, or passed on otherwise, is not."""
        use, distinct = self._use, set(names)
        return (
            len(distinct) == len(names) <= MOST_LINES
            and distinct.isdisjoint(use.special)
            and not any(BACKSLASH in name for name in names)
            and not any(
                COLON in value and name in use.read and name not in use.hidden
                for name, value in zip(names, values, strict=True)
            )
        )

    def _review(self) -> None:
        """Give up templates by which less is read than they do not fit."""
        self._seen = EAGER
        for template in self.ready:
            if template.matched < PATIENCE:
                self.refuse(template)
            template.matched = 0

    def refuse(self, template: Template) -> None:
        """Nothing is won by it."""
        if len(self._refused) >= MOST_SAMPLES:
            self._refused.clear()
        self._refused.add(template.names)
        self._learned.pop(template.names, None)
        self.ready = [each for each in self.ready if each is not template]

    def clear(self) -> None:
        """Forget all of them."""
        self.ready = []
        self._samples.clear()
        self._learned.clear()
