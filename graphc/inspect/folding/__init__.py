"""Folding: a graph as a tree of groups, and pictures of it at the level of thought.

    tree = group_tree(graph)                    # once per graph, linear in nodes and edges
    scene = folded(tree, open_at(tree, Level.LAYERS))   # boxes and edges, with some groups open

A scene is a cut through the tree: a group is a box if it is closed and all groups around it are
open. So every value is in one box, and what is opened shows what is in it.
"""

from __future__ import annotations

from graphc.inspect.folding.build import group_tree
from graphc.inspect.folding.cut import SCREEN, fitting, folded, open_at, picture
from graphc.inspect.folding.items import Item
from graphc.inspect.folding.tree import BoxGroup, Fold, GroupTree, Level

__all__ = [
    "SCREEN", "BoxGroup", "Fold", "GroupTree", "Item", "Level", "fitting", "folded", "group_tree",
    "open_at", "picture",
]  # fmt: skip
