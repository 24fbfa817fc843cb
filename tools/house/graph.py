"""Directed graphs: circles, the edges that go against the floors, and the number of floors."""

from __future__ import annotations

Graph = dict[str, set[str]]
"""The nodes, each with the nodes that its edges lead to; every node is a key."""


def circles(graph: Graph) -> list[list[str]]:
    """Return the strongly connected components of more than one node (Tarjan), each sorted."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph[node]):
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            place = stack.index(node)
            if len(stack) - place > 1:
                found.append(sorted(stack[place:]))
            del stack[place:]

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return sorted(found)


def back_edges(graph: Graph) -> list[tuple[str, str]]:
    """Return the fewest edges found without which the graph has no circles.

    Each circle's nodes are put in an order, and each node is moved to its best place until no move
    helps. That finds no circle in a graph without one, and the fewest edges in circles of a few nodes.
    """
    return [
        (node, other)
        for circle in circles(graph)
        for order in [_best_order(circle, graph)]
        for place, node in enumerate(order)
        for other in order[:place]
        if other in graph[node]
    ]


def count_floors(graph: Graph) -> int:
    """Return how many nodes the longest path has once the back edges are ignored."""
    ignored = set(back_edges(graph))
    heights: dict[str, int] = {}

    def height(node: str) -> int:
        if node not in heights:
            below = (height(other) for other in graph[node] if (node, other) not in ignored)
            heights[node] = 1 + max(below, default=0)
        return heights[node]

    return max(map(height, graph), default=0)


def _best_order(nodes: list[str], graph: Graph) -> list[str]:
    """Order nodes so that few edges lead to an earlier one."""
    order = sorted(nodes, key=lambda node: (-len(graph[node] & set(nodes)), node))
    best = _backward(order, graph)
    moved = True
    while moved:
        moved = False
        for node in nodes:
            rest = [other for other in order if other != node]
            orders = [[*rest[:at], node, *rest[at:]] for at in range(len(nodes))]
            cost, candidate = min((_backward(one, graph), one) for one in orders)
            if cost < best:
                best = cost
                order = candidate
                moved = True
    return order


def _backward(order: list[str], graph: Graph) -> int:
    """Count the edges that lead to an earlier node of the order."""
    return sum(other in graph[node] for place, node in enumerate(order) for other in order[:place])
