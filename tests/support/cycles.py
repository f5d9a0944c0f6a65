"""Cycles of dependencies between transactions, and what they are called.

    name            the cycle's edges                                     forbidden by
    G0              ww                                                    every level
    G1c             ww and wr, at least one wr                            read committed
    G-single        exactly one rw                                        snapshot isolation
    G-nonadjacent   two rw or more, no two of them in a row               snapshot isolation
    G2-item         two rw in a row                                       serializability

The names are Adya's (1999) and Elle's. `-realtime` behind a name: the cycle needs an edge of real time, "had ended when
it began"; it is looked for only where there is none of that name without.

A cycle without two rw in a row may pass a transaction twice: of each step "ww or wr, then rw or nothing" there must be
no cycle (Cerone and Gotsman, "Analysing Snapshot Isolation", PODC 2016).

Of each name only a few cycles are told, short ones, for one broken rule makes thousands.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias, TypeVar

import networkx as nx

T = TypeVar("T", bound=Hashable)
Kind: TypeAlias = Literal["ww", "wr", "rw", "rt"]

KINDS: tuple[Kind, ...] = ("ww", "wr", "rt", "rw")
"""In the order of preference where two transactions have several edges: a cycle is called by its strictest name."""

MAX_TOLD = 5
"""How many cycles of one name are told."""


@dataclass(frozen=True, slots=True)
class Edge:
    """One dependency: `target` comes after `source` in any serial order, for the reason that `why` says."""

    source: str
    target: str
    kind: Kind
    key: str
    why: str


@dataclass(frozen=True, slots=True)
class Cycle:
    """Dependencies that lead back to where they began."""

    name: str
    edges: tuple[Edge, ...]

    @property
    def transactions(self) -> tuple[str, ...]:
        """The transactions in it, in order."""
        return tuple(edge.source for edge in self.edges)

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys in it, each once."""
        return tuple(dict.fromkeys(edge.key for edge in self.edges if edge.key))

    def __str__(self) -> str:
        way = "".join(f"{edge.source} -{edge.kind}-> " for edge in self.edges)
        return f"{way}{self.edges[0].source}; {'; '.join(edge.why for edge in self.edges)}"


class Dependencies:
    """The graph: transactions by id, and at most one edge of each kind from one to another."""

    def __init__(self, nodes: Iterable[str]) -> None:
        self.nodes = list(nodes)
        self._edges: dict[tuple[str, str], dict[Kind, Edge]] = {}

    def add(self, source: str, target: str, kind: Kind, key: str, why: str) -> None:
        """Add an edge; of several of one kind the first is kept."""
        self._edges.setdefault((source, target), {}).setdefault(kind, Edge(source, target, kind, key, why))

    def edges(self, *kinds: Kind) -> Iterator[Edge]:
        """Return all edges of these kinds, one kind after another."""
        for kind in kinds:
            yield from (found[kind] for found in self._edges.values() if kind in found)

    def edge(self, source: str, target: str, kinds: Sequence[Kind]) -> Edge:
        """Return the strictest edge of these kinds."""
        found = self._edges[source, target]
        return next(found[kind] for kind in KINDS if kind in found and kind in kinds)

    def graph(self, *kinds: Kind) -> nx.DiGraph[str]:
        """Return the graph of the edges of these kinds."""
        made: nx.DiGraph[str] = nx.DiGraph()
        made.add_edges_from((edge.source, edge.target) for edge in self.edges(*kinds))
        return made


def find_cycles(graph: Dependencies) -> list[Cycle]:
    """Return at most `MAX_TOLD` cycles of each name, none where the history has none of that name."""
    plain = _cycles(graph, ("ww", "wr"), "")
    names = {cycle.name for cycle in plain}
    timed = [c for c in _cycles(graph, ("ww", "wr", "rt"), "-realtime") if any(edge.kind == "rt" for edge in c.edges)]
    return plain + [cycle for cycle in timed if cycle.name.removesuffix("-realtime") not in names]


def _cycles(graph: Dependencies, before: tuple[Kind, ...], suffix: str) -> list[Cycle]:
    """Return cycles of edges of the kinds `before`, and rw."""
    writes: tuple[Kind, ...] = tuple(kind for kind in before if kind != "wr")
    double = _double(graph, before)
    parts: dict[tuple[str, bool], int] = _components(double)
    by_write: dict[str, int] = _components(graph.graph(*writes))
    by_read: dict[str, int] = _components(graph.graph(*before))
    return [
        *_through("G0" + suffix, graph, "ww", writes, lambda e: by_write[e.source] == by_write[e.target]),
        *_through("G1c" + suffix, graph, "wr", before, lambda e: by_read[e.source] == by_read[e.target]),
        *_through("G-single" + suffix, graph, "rw", before, lambda e: parts[e.source, False] == parts[e.target, True]),
        *_nonadjacent("G-nonadjacent" + suffix, graph, before, double),
        *_adjacent("G2-item" + suffix, graph, before),
    ]


def _through(
    name: str, graph: Dependencies, kind: Kind, others: tuple[Kind, ...], may: Callable[[Edge], bool]
) -> list[Cycle]:
    """Return cycles of an edge of one kind and a way back over edges of others; `may` rules most edges out."""
    back = graph.graph(*others)
    found: list[Cycle] = []
    for edge in graph.edges(kind):
        if len(found) == MAX_TOLD:
            break
        if may(edge) and {edge.source, edge.target} <= back.nodes and nx.has_path(back, edge.target, edge.source):
            way = nx.shortest_path(back, edge.target, edge.source)
            found.append(Cycle(name, (edge, *(graph.edge(a, b, others) for a, b in pairwise(way)))))
    return found


def _double(graph: Dependencies, before: tuple[Kind, ...]) -> nx.DiGraph[tuple[str, bool]]:
    """Return a graph whose cycles are those without two rw in a row.

    It has each transaction twice, as one arrives by rw (True) and as one arrives otherwise; an rw edge leaves from the
    latter only.
    """
    double: nx.DiGraph[tuple[str, bool]] = nx.DiGraph()
    for edge in graph.edges(*before):
        double.add_edge((edge.source, True), (edge.target, False))
        double.add_edge((edge.source, False), (edge.target, False))
    for edge in graph.edges("rw"):
        double.add_edge((edge.source, False), (edge.target, True))
    return double


def _nonadjacent(
    name: str, graph: Dependencies, before: tuple[Kind, ...], double: nx.DiGraph[tuple[str, bool]]
) -> list[Cycle]:
    """Return cycles with at least two rw, and never two of them in a row: one for each place where there are any."""
    found: list[Cycle] = []
    for component in nx.strongly_connected_components(double):
        if len(component) == 1 or len(found) == MAX_TOLD:
            continue
        steps = nx.find_cycle(double.subgraph(component))
        edges = [graph.edge(a, b, ("rw",) if by_rw else before) for (a, _), (b, by_rw) in steps]
        if sum(edge.kind == "rw" for edge in edges) > 1:
            found.append(Cycle(name, tuple(edges)))
    return found


def _adjacent(name: str, graph: Dependencies, before: tuple[Kind, ...]) -> list[Cycle]:
    """Return cycles with two rw in a row."""
    kinds: tuple[Kind, ...] = (*before, "rw")
    whole = graph.graph(*kinds)
    component: dict[str, int] = _components(whole)
    found: list[Cycle] = []
    for edge in graph.edges("rw"):
        if len(found) == MAX_TOLD:
            break
        if component[edge.source] != component[edge.target]:
            continue
        way = nx.shortest_path(whole, edge.target, edge.source)
        edges = (edge, *(graph.edge(a, b, kinds) for a, b in pairwise(way)))
        if any(a.kind == b.kind == "rw" for a, b in pairwise((*edges, edges[0]))):
            found.append(Cycle(name, edges))
    return found


def _components(graph: nx.DiGraph[T]) -> dict[T, int]:
    """Number the strongly connected components: where two transactions have the same number, there is a cycle."""
    numbered = enumerate(nx.strongly_connected_components(graph))
    return {node: number for number, nodes in numbered for node in nodes}
