"""Why a node is in a compiled graph, and what the alternatives would have cost: `graphc why`."""
