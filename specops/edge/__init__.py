"""SpecEdge (arXiv 2505.17052): a client drafts on its own machine, a server's target verifies for many."""
